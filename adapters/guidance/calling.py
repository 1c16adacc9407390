"""Tool calls of a program: the grammar that a model writes them in, and what the tool answers.

Guidance's own local models have none. A call is written as `<tool_call>{"name": ..., "arguments":
...}</tool_call>`, that of a tool with a grammar of its own as `<tool=name>...</tool>`.
"""

from __future__ import annotations

import json
import re
from typing import NamedTuple

from guidance import json as json_grammar
from guidance import select
from guidance._ast import GrammarNode, LarkNode, LiteralNode, RegexNode, RuleNode, ToolCallNode
from guidance._grammar import subgrammar
from guidance._tools import CustomTool, Tool

PLAIN_TEXT = r"[^<](?s:.*)"
_FUNCTION = re.compile(r"<tool_call>(\{.*\})</tool_call>", re.DOTALL)
_CUSTOM = re.compile(r"<tool=([^>]+)>(.*)</tool>", re.DOTALL)


class Result(NamedTuple):
    """What a tool answered."""

    tool: str
    text: str


def grammar_of(node: ToolCallNode) -> GrammarNode:
    """A call of one of the tools; or plain text, where the model may choose."""
    calls = [_call(name, tool) for name, tool in node.tools.items()]
    if node.tool_choice == "required":
        return select(calls)
    return select([*calls, RegexNode(node.plaintext_regex or PLAIN_TEXT)])


def result_of(node: ToolCallNode, text: str) -> Result | None:
    """Call the tool that a text asks for; None where it asks for none. What the tool raises is its
    answer, as Guidance words it."""
    if found := _FUNCTION.fullmatch(text):
        asked = json.loads(found[1])
        name = asked["name"]
        answer = node.tools[name].call(**asked["arguments"])
    elif found := _CUSTOM.fullmatch(text):
        name = found[1]
        answer = node.tools[name].call(found[2])
    else:
        return None
    return Result(name, answer if isinstance(answer, str) else json.dumps(answer, default=str))


def _call(name: str, tool: Tool) -> GrammarNode:
    if isinstance(tool.tool, CustomTool):
        said = tool.tool.format
        body = RegexNode(said.definition) if said.syntax == "regex" else _lark(said.definition)
        return LiteralNode(f"<tool={name}>") + body + "</tool>"
    lead = f'<tool_call>{{"name": {json.dumps(name)}, "arguments": '
    arguments: GrammarNode = json_grammar(schema=tool.tool.get_schema())
    return LiteralNode(lead) + arguments + "}</tool_call>"


def _lark(definition: str) -> GrammarNode:
    body: GrammarNode = subgrammar(RuleNode("tool", LarkNode(definition)))
    return body
