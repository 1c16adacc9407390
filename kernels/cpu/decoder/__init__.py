"""All layers of a decoder in one call, and which loops that needs.

Entry: `stack.Stack`; `fused` says which layers can be computed so.
May import `kernels.interface` and everything in `kernels.cpu` but sampling.
Never knows checkpoints or batches.
"""
