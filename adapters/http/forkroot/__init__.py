"""Our own routes: the protocol over HTTP, pinned prefixes, the page, health and metrics.

Entry: `calls.routes`, which `client.RemoteBackend` asks.
May import `core.api` and the packages of `adapters.http` below it.
Never knows the client.
"""
