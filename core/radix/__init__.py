"""The radix cache: tokens in, slots out; integers and numpy only.

Entry: `cache.RadixCache`, whose `acquire` gives a `Lease` on the longest cached prefix.
May import `core.api` and `core.common`.
Never knows calls, tensors or what a token means.
"""
