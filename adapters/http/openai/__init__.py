"""OpenAI's routes: chat completions, completions, responses, models, and vLLM's tokenize.

Entry: `chat.routes`, and `routes` of the modules beside it.
May import `core.api`, `adapters.common` and the packages of `adapters.http` below it.
Never knows other routes.
"""
