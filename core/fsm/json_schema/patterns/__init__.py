"""Patterns of JSON values: strings, numbers, lists, formats, and the keyword `pattern`.

Entry: `strings.pattern`, from a set of texts to the pattern of its JSON strings.
May import `core.api` and `core.fsm.regex`.
Never knows a schema as a whole.
"""
