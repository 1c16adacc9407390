"""Token masks on logits, and sampling from a whole vocabulary, by compiled loops.

Entry: `nucleus.CompiledSampler` and `masks`.
May import `kernels.cpu.jit`; loads no torch.
Never knows sequences or constraints: masks are packed bits.
"""
