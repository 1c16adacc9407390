"""Decoders by our own code; each reads as its diagram.

Entry: `llama.Llama` (also Mistral and Qwen) and `mixtral`; a new decoder is a module here and an
entry in `core.model.architectures`. May import `kernels` and `core.model`.
Never knows files, batches of calls or sampling.
"""
