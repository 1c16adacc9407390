"""Attention on a GPU: a step is cut into parts, each for a kernel of its own.

Entry: `attention.GpuAttention`; `flashinfer.FlashInferAttention` does the same by FlashInfer.
May import `kernels.interface`, `kernels.sharing` and `kernels.gpu`.
Never knows layers or sequences.
"""
