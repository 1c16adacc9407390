"""Kernels for CPUs: loops compiled by numba, torch and oneDNN, chosen by the processor's features.

Entry: `attention.attention.CpuAttention` and `decoder.fused.CpuBackend`.
May import `kernels.interface` and the packages of `kernels.cpu`.
Never knows models, batches or calls.
"""
