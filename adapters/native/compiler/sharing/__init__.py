"""Moves code for sharing: texts of a graph are reordered so that its constant prefix grows.

Entry: `moves.move`.
May import `core.api`, `core.common`, `adapters.native.movement` and the graph.
Never knows how a graph is run, nor what language says.
"""
