"""One step on a device: a batch becomes tensors, runs through the model, and is sampled.

Entry: `runner.ModelRunner`; `ranks.RankedRunner` is the same for a model in several processes.
May import `kernels`, `core.api`, `core.model` and `core.model.sampling`.
Never knows sequences, the cache or how a model was loaded.
"""
