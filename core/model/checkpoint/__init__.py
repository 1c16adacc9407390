"""From a checkpoint folder to a model: whose code runs it, its number types, memory and weights.

Entry: `load.load_model`, and `load.describe` before any weight is read.
May import everything in `core.model`, and `kernels`.
Never knows batches or the runner.
"""
