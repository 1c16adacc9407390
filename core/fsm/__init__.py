"""Constraints as automata: which tokens may come next, and which text must.

Entry: `constraints.Constraints`; it gives a `Guide` for a constraint, a guide gives a `Cursor` for
a sequence, and the `Retokenizer` turns forced text into tokens. The modules here join the packages
below. May import `core.api` and `core.common`.
Never knows sequences, batches or models.
"""
