"""From calls to hints: what calls share is found, named, sent ahead and counted.

Entry: `prefix.Prefixes`.
May import `core.api` and `core.common`.
Never knows a framework.
"""
