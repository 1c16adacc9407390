"""From a signature and its adapter's format to the pattern of the answer.

Entry: `formats.Formats`.
May import `core.api`, and `core.fsm` up to `core.fsm.json_schema`, which reads schemas.
Never knows calls or backends.
"""
