"""The small made-up world that the embedded model learned: facts, people, words, texts.

Entry: `facts`; everything is drawn from a seed. Word lists and texts are data, in files beside the
modules: `facts.toml` holds those of `facts.py`.
May import the standard library and the essay judge of the examples.
Never knows tokens or training.
"""
