"""What may be appended to a state: frozen nodes, constraints, choices, sampling and settings.

Entry: `expressions.Expression`.
May import `core.api`, `core.common`, `adapters.common` and `adapters.connection`.
Never knows how a node is run.
"""
