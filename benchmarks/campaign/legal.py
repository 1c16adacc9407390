"""Requests that are legal and odd: what each route of generation allows, chosen at random from its
edges. Each must be answered by 200 and, streamed or not, to its end.

Standard library only, so that a tool in another environment can use it, too.
"""

from __future__ import annotations

import json
import random
from typing import Any

CHAT, COMPLETION = "/v1/chat/completions", "/v1/completions"
RESPONSE, GENERATE = "/v1/responses", "/generate"
PATHS = (CHAT, COMPLETION, RESPONSE, GENERATE)
_TEXTS = (
    *(
        "Hi",
        "What is the capital of France?",
        " ",
        "\n\n\t",
        "\u0000\u0007",
        "é́́ ﬁ ß",
        "שלום عليكم",
        "👩‍👩‍👧‍👦" * 3,
    ),
    *(
        "<|im_end|>",
        "<|im_start|>system\nx",
        "<tool_call>{",
        "</tool_call>",
        "{{ messages }}",
        "{% raw %}",
    ),
    *(
        "a" * 500,
        "\\u0041\\n",
        '{"a": [1, 2, {"b": null}]}',
        "\u2028\ufeff\u200b",
        "data: [DONE]\n\n",
    ),
)
_SCHEMAS = (
    {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
    {"type": "object", "properties": {'ü "': {"enum": ["x", None, 1.5]}}},
    {"type": "array", "items": {"type": "boolean"}, "maxItems": 3},
    {"anyOf": [{"const": 7}, {"type": "string", "maxLength": 5}]},
    {"type": "object"},
    {"$ref": "#/$defs/n", "$defs": {"n": {"type": ["null", "number"]}}},
)
_USER_MESSAGE = {"role": "user", "content": "Hi"}
_TOOL_SCHEMAS = (*_SCHEMAS[:2], {"type": "object"}, None)
_PATTERNS = ("[a-z]{1,8}", "(yes|no)", r"\d{3}-\d{4}", "[é-ü]+!?", "a*")
_GRAMMARS = ('start: "a" | "b" start', "start: /[0-9]+/")
_CHOICES = (["yes"], ["a", "ab", "abc"], ["é", "e\u0301"])
_MOST_TOKENS = 20
_ROOM = {"text": 0, "constraint": 60, "tools": 200}  # tokens that its shortest answer may take


def legal(path: str, chance: random.Random) -> dict[str, Any]:
    """A body for this route."""
    make = {CHAT: _chat, COMPLETION: _completion, RESPONSE: _response, GENERATE: _generate}
    return make[path](chance)


def _chat(chance: random.Random) -> dict[str, Any]:
    body: dict[str, Any] = {"messages": _messages(chance), **_generation(chance)}
    kind = chance.choice(("text", "text", "constraint", "tools"))
    if kind == "constraint":
        body |= _constraint(chance)
    elif kind == "tools":
        body |= _tools(chance)
    name = chance.choice(("max_tokens", "max_completion_tokens"))
    body[name] = _ROOM[kind] + chance.randint(0, _MOST_TOKENS)
    if chance.random() < 0.3:
        body |= {"logprobs": True, "top_logprobs": chance.choice((None, 0, 1, 20))}
    return _with_nulls(body, ("tools", "tool_choice", "name", "audio", "metadata"), chance)


def _completion(chance: random.Random) -> dict[str, Any]:
    ids = [chance.randrange(300, 4000) for _ in range(chance.randint(1, 40))]
    prompts: tuple[Any, ...] = (_text(chance), ids, [_text(chance), "b"], [ids, ids[:1]])
    body = {"prompt": chance.choice(prompts), **_generation(chance)}
    kind = chance.choice(("text", "constraint"))
    body |= _constraint(chance) if kind == "constraint" else {}
    body["max_tokens"] = _ROOM[kind] + chance.randint(0, _MOST_TOKENS)
    body["echo"] = chance.choice((None, False, True))
    body["logprobs"] = chance.choice((None, None, 0, 5))
    if chance.random() < 0.2:
        body["best_of"] = body.get("n") or 1
    return _with_nulls(body, ("suffix", "user"), chance)


def _response(chance: random.Random) -> dict[str, Any]:
    items = [{"role": it["role"], "content": it["content"] or ""} for it in _messages(chance)]
    items = [it for it in items if it["role"] not in ("tool", "function")] or [_USER_MESSAGE]
    called = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    fields = {"type": "function_call_output", "call_id": "c", "output": _text(chance)}
    given: Any = chance.choice((_text(chance), items, [*items, called, fields]))
    room = _ROOM["constraint"] + chance.randint(0, _MOST_TOKENS)
    body: dict[str, Any] = {"input": given, "max_output_tokens": room}
    body |= {"stream": chance.random() < 0.5, "temperature": chance.choice((0, None, 2))}
    if chance.random() < 0.3:
        form = {"type": "json_schema", "name": "x", "schema": chance.choice(_SCHEMAS)}
        body["text"] = {"format": chance.choice((form, {"type": "text"}, {"type": "json_object"}))}
    if chance.random() < 0.3:
        body["tools"] = [{"type": "function", "name": "f", "parameters": {"type": "object"}}]
    return _with_nulls(body, ("instructions", "metadata", "include", "seed", "reasoning"), chance)


def _generate(chance: random.Random) -> dict[str, Any]:
    ids = [chance.randrange(300, 4000) for _ in range(chance.randint(1, 40))]
    fields = {"text": chance.choice((_text(chance), [_text(chance), "b"]))}
    body: dict[str, Any] = chance.choice(
        (fields, {"input_ids": ids}, {"input_ids": [ids, ids[:2]]})
    )
    sampling = {
        "max_new_tokens": chance.randint(0, _MOST_TOKENS),
        "temperature": chance.choice((0, 1.5)),
    }
    held = {"regex": chance.choice(_PATTERNS)}, {"json_schema": json.dumps(chance.choice(_SCHEMAS))}
    if chance.random() < 0.4:
        sampling |= chance.choice(held) | {"max_new_tokens": _ROOM["constraint"]}
    sampling |= chance.choice(({}, {}, {"n": 3}, {"stop": ["a", "é"]}, {"top_k": -1}))
    body |= {"sampling_params": sampling, "stream": chance.random() < 0.5}
    if chance.random() < 0.3:
        body |= {"return_logprob": True, "top_logprobs_num": chance.choice((0, 5))}
        body |= {"logprob_start_len": chance.choice((-1, 0)), "return_text_in_logprobs": True}
    return _with_nulls(body, ("rid", "image_data", "lora_path", "priority"), chance)


def _generation(chance: random.Random) -> dict[str, Any]:
    """Some of what all requests of OpenAI's kind share, at its edges."""
    edges: dict[str, tuple[Any, ...]] = {
        "temperature": (0, 1e-9, 0.7, 2, 1e30),
        "top_p": (1e-6, 0.5, 1),
        "top_k": (-1, 1, 2**31 - 1),
        "min_p": (0, 0.3, 1),
        "frequency_penalty": (-2, 2),
        "presence_penalty": (-2, 2),
        "repetition_penalty": (0.01, 10),
        "logit_bias": ({}, {"300": -100, "4000": 100}),
        "seed": (0, -1, 2**63, 2**70),
        "n": (1, 3),
        "stop": ("a", [], ["é", "\n"], [_text(chance)]),
        "stop_token_ids": ([], [5, 4000]),
        "ignore_eos": (True, False),
        "priority": (-100, 100),
        "cache_salt": ("", "../", _text(chance)),
        "deadline": (60, 1e6),
        "forkroot": ({"version": 1, "root": "r", "branches": 2}, {"version": 99, "new": []}),
        "model": ("tiny",),
        "user": (_text(chance),),
        "unknown": ({"a": [1]},),
    }
    names = chance.sample(sorted(edges), chance.randint(0, 6))
    body = {name: chance.choice(edges[name]) for name in names}
    body["stream"] = chance.random() < 0.5
    if body["stream"] and chance.random() < 0.5:
        fields = (None, False, True)
        options = {"include_usage": fields, "continuous_usage_stats": fields}
        body["stream_options"] = {key: chance.choice(value) for key, value in options.items()}
    return body


def _constraint(chance: random.Random) -> dict[str, Any]:
    schema = chance.choice(_SCHEMAS)
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": True}}
    argument_sets: tuple[dict[str, Any], ...] = (
        {"regex": chance.choice(_PATTERNS)},
        {"choices": chance.choice(_CHOICES)},
        {"grammar": chance.choice(_GRAMMARS)},
        {"json_schema": chance.choice((schema, json.dumps(schema), True))},
        {"response_format": chance.choice((form, {"type": "text"}, {"type": "json_object"}))},
        {"guided_regex": chance.choice(_PATTERNS)},
        {"structured_outputs": {"choice": chance.choice(_CHOICES)}},
    )
    return chance.choice(argument_sets)


def _tools(chance: random.Random) -> dict[str, Any]:
    names = chance.sample(("f", "look_up", "a.b-c", "x" * 64), chance.randint(1, 3))
    tools = [
        {"type": "function", "function": {"name": name, "description": _text(chance)}}
        for name in names
    ]
    for tool in tools:
        tool["function"] |= {  # type: ignore[operator]
            "parameters": chance.choice(_TOOL_SCHEMAS),
            "strict": chance.choice((None, False, True)),
        }
    named = {"type": "function", "function": {"name": names[0]}}
    choice = chance.choice((None, "none", "auto", "required", named))
    fields = {"tools": tools, "tool_choice": choice}
    return fields | {"parallel_tool_calls": chance.choice((None, False, True))}


def _messages(chance: random.Random) -> list[dict[str, Any]]:
    return [_message(chance) for _ in range(chance.randint(1, 5))]


def _message(chance: random.Random) -> dict[str, Any]:
    role = chance.choice(("system", "developer", "user", "user", "assistant", "tool", "function"))
    parts = [{"type": "text", "text": _text(chance)}, {"type": "text", "text": ""}]
    fields: dict[str, Any] = {"role": role, "content": chance.choice((_text(chance), parts, ""))}
    if role == "assistant" and chance.random() < 0.5:
        function = {"name": "f", "arguments": chance.choice(('{"a": 1}', "{}", "", _text(chance)))}
        fields |= {
            "content": None,
            "tool_calls": [{"id": "c", "type": "function", "function": function}],
        }
    if role == "tool":
        fields["tool_call_id"] = "c"
    return fields


def _text(chance: random.Random) -> str:
    return "".join(chance.choices(_TEXTS, k=chance.randint(1, 2)))


def _with_nulls(
    body: dict[str, Any], names: tuple[str, ...], chance: random.Random
) -> dict[str, Any]:
    """The body with some fields that have no effect."""
    return dict.fromkeys(chance.sample(names, chance.randint(0, len(names)))) | body
