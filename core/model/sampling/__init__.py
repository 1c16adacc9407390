"""From logits to tokens: masks, penalties, samples and log-probabilities.

Entry: `sampler.sample`; `device_sampler` does the same on a GPU.
May import `kernels`, `core.api` and `core.model`.
Never knows layers, attention or the pool.
"""
