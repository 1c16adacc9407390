"""The small made-up world that the embedded model learned: facts, people, words, texts.

Entry: `facts`; everything is drawn from a seed.
May import the standard library and the essay judge of the examples.
Never knows tokens or training.
"""
