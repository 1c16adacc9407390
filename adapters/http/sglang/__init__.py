"""SGLang's routes: `/generate`, its streams, and what else its clients request.

Entry: `routes.routes`.
May import `core.api` and the packages of `adapters.http` below it.
Never knows OpenAI's routes.
"""
