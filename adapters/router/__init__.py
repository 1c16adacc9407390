"""One backend over many replicas of a model, which keeps what shares a prefix together.

Entry: `router.Router`, a `Backend`; `start.over` starts its replicas.
May import `core.api`, `core.common`, `adapters` and `adapters.common`.
Never knows an engine, a tokenizer's insides, HTTP or a framework.
"""
