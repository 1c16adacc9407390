"""Kernels for GPUs, in Triton, each with its launcher beside it. `kernels.reference` and plain
torch are what they are held against."""
