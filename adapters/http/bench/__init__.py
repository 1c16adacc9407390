"""`forkroot bench`: load on any server of OpenAI's kind, and its latencies.

Entry: `bench.bench`.
May import `core.api` and `adapters.usage`.
Never knows a server from inside.
"""
