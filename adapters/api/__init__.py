"""API models as backends: `connect("openai:MODEL")`, `connect("anthropic:MODEL")`.

Entry: `backend.ApiBackend`; `plugin.Plugin` makes it, registered as a third party's plugin is.
May import `core.api`, `core.common`, `adapters` and `adapters.common`.
Never knows an engine, a tokenizer or a framework.
"""
