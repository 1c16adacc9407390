"""Runs of programs on a server: what goes there, and the state made of what comes back.

Entry: `remote_run.RemoteRun`; the server's end uses `progress` and `requests`.
May import `core.api`, `core.common`, `adapters` and `adapters.native` below it.
Never knows HTTP, nor what is in a graph.
"""
