"""What several adapters need: tool calls, schemas of classes, JSON spelling.

Entry: `tools.ToolFormat` and `toolreader`.
May import `core.api` and `core.common`.
Never knows a framework.
"""
