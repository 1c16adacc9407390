"""API models as backends: `connect("openai:MODEL")`, `connect("anthropic:MODEL")`.

A call becomes one HTTP request (or n), its answer one completion. Entry: `plugin.Plugin`, which the
registry has as it has a third party's. Never knows an engine, a tokenizer or a framework.
"""
