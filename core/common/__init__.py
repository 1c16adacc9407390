"""Helpers that any package may use: suggestions for misspelled names, counters, clean-up at exit.

Entry: none; each module is independent.
May import the standard library only.
Never knows calls, tokens or models.
"""
