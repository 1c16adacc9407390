"""The server and its client. The modules here join the packages below.

Entry: `app.build_app`, the application; `serve.serve` runs it; `client.RemoteBackend` calls it.
May import `core.api`, `core.common` and `adapters`.
Never knows which backend answers.
"""
