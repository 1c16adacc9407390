"""Kernels for GPUs, in Triton, each with its launcher beside it.

Entry: `rows.GpuRows`, `sampler` and, in `attention/`, `GpuAttention`.
May import `kernels.interface`.
Never knows models, batches or calls; `kernels.reference` and plain torch are what it is held to.
"""
