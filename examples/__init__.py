"""Programs to read and to run; `forkroot demo` shows one of them at work.

Entry: `demo`, and each `python -m forkroot.examples.NAME`.
May import the public names of `forkroot` and of its adapters.
Never knows an engine or a model.
"""
