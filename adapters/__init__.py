"""How programs reach a runtime: connections, plugins, and one package a framework.

Entry: `connection.connect`; `hookspecs` is what a plugin may implement.
May import `core.api`, `core.common` and `core.model.hub`; `connect` alone fetches a runtime.
Never knows an engine, a cache or a model.
"""
