"""Tool calls over HTTP: the format in which a model's template makes it write them, and the tools
of a request as the other adapters know them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ....core.api.protocol import Chat, InvalidCall, Message, Text
from ...common.tools import OPEN, ToolFormat, ToolSpec, check_tools
from ..server.runtime import Texts
from ..wire.wire import Tool

_UNKNOWN = ToolFormat("\n")
_GAP = re.compile(re.escape(OPEN) + r"(\s*)\{")


def format_of(texts: Texts) -> ToolFormat:
    """The format that the model's chat template shows where there are tools."""
    function = {"name": "f", "description": "f", "parameters": {"type": "object"}}
    tools = ({"type": "function", "function": function},)
    chat = Chat((Message("user", (Text("?"),)),), tools=tools)
    try:
        shown = texts.decode(texts.encode_prompt(chat))
    except InvalidCall:  # it has no template, or one that knows no tools
        return _UNKNOWN
    found = _GAP.search(shown)
    return ToolFormat(found[1]) if found else _UNKNOWN


def specs_of(tools: Sequence[Tool], within: str) -> tuple[ToolSpec, ...]:
    """The tools of a request. within: as in `check_tools`. Raises InvalidCall for one that cannot
    be called."""
    functions = [tool.function for tool in tools]
    specs = tuple(ToolSpec(it.name, it.description or "", it.parameters) for it in functions)
    check_tools(specs, within)
    return specs
