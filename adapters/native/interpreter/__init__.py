"""Runs the nodes: one stream of steps a state, forks and joins, variables, the growing prompt.

Entry: `interpreter.Interpreter`.
May import `core.api`, `core.common`, `adapters.hints` and `adapters.native.language`.
Never knows programs or batches of them.
"""
