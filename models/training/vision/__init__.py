"""Trains the eyes of the embedded model on drawn scenes, and measures them.

Entry: `python -m forkroot.models.training.vision.train` and `...vision.evaluate`.
May import torch, transformers and `models.training`.
Never known to the runtime, and not in the wheel. It leaves `tiny/` as it is.
"""
