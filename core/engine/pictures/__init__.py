"""Pictures and clips on their way through the engine: decoded, put into prompts, encoded.

Entry: `features.Features`, which says what a step's tower computes; `pool.PicturePool` decodes.
May import `core.api`, `core.common` and `core.text`.
Never knows towers, batches of tokens or who else is scheduled.
"""
