"""From a batch of integers to tokens. The modules here are shared by its packages.

Entry: `model.Model`, what the runner needs of a model; `inputs.Inputs` and `pool.KVPool` are its
arguments, `config` and `sizes` describe a checkpoint. May import `kernels`, `core.api`,
`core.common` and `core.model.hub`. Never knows calls, text or the cache.
Importing the package loads no torch.
"""
