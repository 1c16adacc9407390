"""From calls to hints: what calls share is found, named, sent ahead and counted.

Entry: `prefix.Prefixes`.
May import `core.api`.
Never knows a framework.
"""
