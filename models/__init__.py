"""The embedded model: how it is trained (`train`) and measured (`evaluate`), and itself (`tiny/`).

Entry: `python -m forkroot.models.train` and `python -m forkroot.models.evaluate`.
May import torch and transformers.
Never known to the runtime, which reads the folder `tiny/` as any checkpoint.
"""
