"""What crosses the interface between programs and runtimes: calls, replies, errors, settings.

Entry: `protocol.Backend` and `calls.Call`; `batch.Batch` is the same between engine and model.
May import `core.common`, the standard library and numpy.
Never knows who answers a call: an engine, a child process or a server.
"""
