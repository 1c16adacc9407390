"""Our own routes: the protocol over HTTP, pinned prefixes, the page, health and metrics.

Entry: `calls.routes`, which `client.RemoteBackend` calls.
May import `core.api` and the packages of `adapters.http` below it.
Never knows the client.
"""
