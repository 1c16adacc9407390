"""The passes over a graph: each changes or finds out one thing, and no answer.

Entry: one function in each module.
May import `core.api`, `core.common`, `adapters.native.language` and
`adapters.native.compiler.graph`.
Never knows how a graph is run, nor a backend.
"""
