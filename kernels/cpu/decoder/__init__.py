"""Decoder backends: all layers by one call on a CPU, layer by layer elsewhere.

Entry: `fused.CpuBackend` and `layerwise.LayerwiseBackend`, as `kernels.backend.DecoderBackend`.
May import `kernels.backend`, `kernels.interface` and everything in `kernels.cpu` but sampling.
Never knows checkpoints or batches.
"""
