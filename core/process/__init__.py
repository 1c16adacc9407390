"""Other processes of a runtime: its engine in a child, tensor-parallel ranks, the compile worker.

Entry: `client.ProcessBackend`, the parent's side of an engine in a child process.
May import `core.api`, `core.common`, `core.text`, `core.media`, `core.fsm`, `core.model.hub` and
`core.model.vision`.
Never knows torch: children are started by the name of their module.
"""
