"""Programs to read and to run; `forkroot demo` shows one of them at work.

Entry: `demo`, and each `python -m forkroot.examples.NAME`.
May import the public names of `forkroot` and of its adapters, and `core.media`, which decodes.
Never knows an engine or a model.
"""
