"""Pictures and clips: from what users hold to encoded bytes, and from those to arrays of pixels.

Entry: `load.load`, which the engine's input asks; `sources` is what programs and servers ask.
May import `core.api` and `core.common`.
Never knows models, prompts or where bytes came from.
"""
