"""SGLang's routes: `/generate`, its streams, and what its clients ask beside.

Entry: `routes.routes`.
May import `core.api` and the packages of `adapters.http` below it.
Never knows OpenAI's routes.
"""
