"""Tool calls of a program: the grammar that a model writes them in, and what the tool answers.

Guidance's own local models have none. A call is written as `<tool_call>{"name": ..., "arguments":
...}</tool_call>`, that of a tool with a grammar of its own as `<tool=name>...</tool>`.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import NamedTuple

from guidance import json as json_grammar
from guidance import select, token_limit
from guidance._ast import GrammarNode, LarkNode, LiteralNode, RegexNode, RuleNode, ToolCallNode
from guidance._grammar import subgrammar
from guidance._tools import CustomTool, Tool

from ...core.api.protocol import CallTooLarge

LEAST_LIMIT = 256  # tokens of a call's arguments, where the context is small
SHARE = 8  # one of so many parts of a larger context
MARGIN = 32  # tokens of the context that a call's end is left
PLAIN_TEXT = r"[^<](?s:.*)"
_FUNCTION = re.compile(r"<tool_call>(\{.*\})</tool_call>", re.DOTALL)
_CUSTOM = re.compile(r"<tool=([^>]+)>(.*)</tool>", re.DOTALL)


class Result(NamedTuple):
    """What a tool answered."""

    tool: str
    text: str


def limit_of(num_prompt: int, context_len: int) -> int:
    """Tokens that a call's arguments may take, after so many of the prompt. Raises CallTooLarge
    where the context holds none."""
    most = context_len - MARGIN
    if num_prompt >= most:
        allowed = f"fewer than {most} before a tool call (context of {context_len})"
        raise CallTooLarge("prompt", f"{num_prompt} tokens", allowed)
    return min(max(LEAST_LIMIT, context_len // SHARE), most - num_prompt)


def opening_of(node: ToolCallNode) -> GrammarNode:
    """How a call of one of the tools begins; or plain text, where the model may choose."""
    begins = [LiteralNode(_opening(name, tool)) for name, tool in node.tools.items()]
    if node.tool_choice == "required":
        return select(begins)
    return select([*begins, RegexNode(node.plaintext_regex or PLAIN_TEXT)])


def called(node: ToolCallNode, text: str) -> Tool | None:
    """The tool whose call begins with just this text."""
    started = (tool for name, tool in node.tools.items() if _opening(name, tool) == text)
    return next(started, None)


def rest_of(tool: Tool, limit: int) -> GrammarNode:
    """What follows the beginning of a call, its arguments within so many tokens."""
    if not isinstance(tool.tool, CustomTool):
        arguments: GrammarNode = json_grammar(schema=tool.tool.get_schema(), max_tokens=limit)
        return LiteralNode(" ") + arguments + "}</tool_call>"
    tool_format = tool.tool.format
    if tool_format.syntax == "regex":
        body: GrammarNode = RegexNode(tool_format.definition)
    else:
        body = subgrammar(RuleNode("tool", LarkNode(tool_format.definition)))
    return token_limit(body, limit) + "</tool>"


def check_whole(tool: Tool, rest: str, num_tokens: int, limit: int) -> None:
    """Raise CallTooLarge for the rest of a call whose arguments were cut off: they are not JSON,
    or, in a grammar of their own, have all the tokens that they may."""
    if isinstance(tool.tool, CustomTool):
        if num_tokens <= limit:
            return
    else:
        with suppress(ValueError):
            json.loads(rest.removesuffix("}</tool_call>"))
            return
    allowed = f"arguments that end within {limit} tokens, as far as the context holds them"
    raise CallTooLarge(f"call of {tool.name}", rest, allowed)


def result_of(node: ToolCallNode, text: str) -> Result | None:
    """Call the tool that a text names; None where it names none. What the tool raises is its
    answer, as Guidance words it."""
    if found := _FUNCTION.fullmatch(text):
        call = json.loads(found[1])
        name = call["name"]
        answer = node.tools[name].call(**call["arguments"])
    elif found := _CUSTOM.fullmatch(text):
        name = found[1]
        answer = node.tools[name].call(found[2])
    else:
        return None
    return Result(name, answer if isinstance(answer, str) else json.dumps(answer, default=str))


def _opening(name: str, tool: Tool) -> str:
    if isinstance(tool.tool, CustomTool):
        return f"<tool={name}>"
    return f'<tool_call>{{"name": {json.dumps(name)}, "arguments":'
