"""The compiler: programs traced into graphs, what is found out about these, and how they run.

Entry: `executor.execute`.
May import `core.api`, `core.common`, `adapters.native.language`, `adapters.native.interpreter` and
the packages in it.
Never knows programs or batches of them.
"""
