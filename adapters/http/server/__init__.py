"""The base of every route: the backend, keys, limits, errors as HTTP, streams, metrics.

Entry: `runtime.Runtime`; `admission` is the middleware that every request passes.
May import `core.api`, `adapters.common` and `adapters.http.wire`.
Never knows a route.
"""
