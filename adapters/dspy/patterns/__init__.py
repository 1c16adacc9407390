"""From a signature and its adapter's format to the pattern of the answer.

Entry: `formats.Formats`.
May import `adapters.common`.
Never knows calls or backends.
"""
