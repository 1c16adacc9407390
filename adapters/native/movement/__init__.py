"""Code movement: constant parts of a prompt are moved ahead of its arguments, where that is safe.

Entry: `rules.Rules` proposes an order, `checks.Checks` accepts or refuses any.
May import `core.api` and `core.common`.
Never knows graphs, backends or tokens; what it knows of language is English.
"""
