"""Text and tokens: the tokenizer of a checkpoint and its chat template.

Entry: `tokenizer.Tokenizer`, with `tokenizer.StreamDecoder` for text that is still growing.
May import `core.api`.
Never knows stop rules, sequences or caches.
"""
