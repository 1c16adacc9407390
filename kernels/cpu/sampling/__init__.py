"""Token masks on logits, and draws from a whole vocabulary, by compiled loops.

Entry: `nucleus.Drawer` and `masks`.
May import `kernels.cpu.jit`; loads no torch.
Never knows sequences or constraints: masks are packed bits.
"""
