"""Attention on a GPU: decode, extend and shared prefixes of a step, each with its kernel.

Entry: `attention.GpuAttention`; `flashinfer.FlashInferAttention` does the same by FlashInfer.
May import `kernels.interface`, `kernels.sharing` and `kernels.gpu`.
Never knows layers or sequences.
"""
