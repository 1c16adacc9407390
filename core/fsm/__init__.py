"""Constraints as automata: what may be written next, and what must be."""
