"""Calls of LangChain and LangGraph that run side by side: batches, forks, the tasks of a step.

Entry: `place.Place`, where in a program a call stands.
May import `core.api`.
Never knows chat models or answers.
"""
