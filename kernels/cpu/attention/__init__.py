"""Attention on a CPU: a step is split into work items, which loops compute in place.

Entry: `attention.CpuAttention`, an `Attention` of `kernels.interface`.
May import `kernels.interface`, `kernels.sharing`, `kernels.cpu.jit` and `kernels.cpu.loops`.
Never knows layers or sequences.
"""
