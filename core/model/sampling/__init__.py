"""From logits to tokens: masks, penalties, samples and log-probabilities.

Entry: `sampler.sample`; `there` does the same on the device that has the logits.
May import `kernels`, `core.api` and `core.model`.
Never knows layers, attention or the pool.
"""
