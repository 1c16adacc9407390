"""Regular expressions: a pattern is parsed, made an automaton over bytes, and minimized.

Entry: `regex.compile_regex`, from a pattern to an automaton of `dfa`.
May import `core.api`.
Never knows tokens, vocabularies or JSON.
"""
