"""Concurrent calls of LangChain and LangGraph: batches, forks, the tasks of a step.

Entry: `call_context.CallContext`, the context of a model call in its program.
May import `core.api`, `core.common` and `adapters.hints`.
Never knows chat models or answers.
"""
