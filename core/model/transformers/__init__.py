"""Decoders by the code of transformers, on our paged KV pool.

Entry: `model.HubModel`, as `core.model.model.Model`.
May import `kernels`, `core.api`, `core.common`, `core.model` and `core.model.hub`.
Never knows the network: files are there when it runs.
"""
