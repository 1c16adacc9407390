"""The graph of a traced program: frozen nodes, streams and blocks, and their JSON.

Entry: `graph.Graph`.
May import `core.api`, `core.common` and `adapters.native.language`.
Never knows how a graph is traced, run or changed.
"""
