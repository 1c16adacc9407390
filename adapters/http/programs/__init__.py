"""Programs that the server runs beside its engine: kept by their digests, run with arguments.

Entry: `routes.routes`, which `client.RemoteBackend` calls.
May import `core.api`, `core.common`, `adapters.native` and the packages of `adapters.http` below.
Never knows the client, and runs no code of a client: a program is a graph of known nodes.
"""
