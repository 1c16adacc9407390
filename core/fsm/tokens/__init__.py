"""Automata over a vocabulary: token masks, forced text, and texts as tokens.

Entry: `regular.regular_guide`, from an automaton and a `vocabulary.Vocabulary` to a guide.
May import `core.api` and `core.fsm.regex`.
Never knows where an automaton comes from.
"""
