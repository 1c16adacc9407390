"""Trains the embedded model from a synthetic world, and measures the checkpoint.

Entry: `python -m forkroot.models.training.train` and `python -m forkroot.models.training.evaluate`.
May import torch, transformers and `examples`.
Never known to the runtime, and not in the wheel.
"""
