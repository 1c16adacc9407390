"""Probabilities of declared answers: a request whose schema lists what each property may be.

DSPy calls such a property a judgment: a boolean, a choice, or an ordered level. Each is answered by
scoring all its values after the prompt and the object's text so far, and the likeliest is taken;
every other property is generated. So the answer is the object, with a distribution for each choice.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dspy import lm15

from ...core.api.protocol import (
    Call,
    Chat,
    Completion,
    InvalidCall,
    Message,
    Regex,
    Text,
    UnsupportedCall,
    Usage,
)
from ..common.tools import ToolFormat
from .options import found
from .patterns.schema import Writer
from .patterns.spelling import UnsupportedSchema
from .request import chat_of, sampling_of
from .runtime import Runtime

METHOD = "candidate_sequence_likelihood"


@dataclass(slots=True)
class Judging:
    """One such request."""

    runtime: Runtime
    request: lm15.Request
    judgments: Mapping[str, Mapping[str, str]]
    schema: Mapping[str, Any]
    usage: Usage = field(default_factory=Usage)

    @classmethod
    def of(cls, runtime: Runtime, request: lm15.Request) -> Judging | None:
        """None for a request without probabilities, or one that declares nothing to judge."""
        if request.config.probabilities in (None, "off"):
            return None
        response_format = request.config.response_format or {}
        judgments = declared(response_format.get("schema"))
        if not judgments:
            return None
        return cls(runtime, request, judgments, response_format["schema"])

    def response(self) -> lm15.Response:
        """The object and its distributions. Raises InvalidCall or a subclass."""
        chat = chat_of(self.request, ToolFormat())
        probabilities = dict[str, dict[str, float]]()
        prefill = "{"
        properties = self.schema["properties"]
        for index, name in enumerate(properties):
            prefill += f"{', ' if index else ''}{json.dumps(name, ensure_ascii=False)}: "
            after = "}" if index + 1 == len(properties) else ","
            if name in self.judgments:
                spelled = self.judgments[name]
                options = tuple(text + after for text in spelled.values())
                scores = self._complete(Call(_opened(chat, prefill), options=options)).scores
                logprobs = (score.logprob for score in scores)
                measured = shares(dict(zip(spelled, logprobs, strict=True)))
                probabilities[name] = measured
                prefill += spelled[max(measured, key=lambda key: measured[key])]
            else:
                prefill += self._value(chat, prefill, properties[name], after)
        part = lm15.DataPart(json.loads(prefill + "}"), probabilities, METHOD)
        return lm15.Response(
            id=None,
            model=self.request.model,
            message=lm15.Message(role="assistant", parts=(part,)),
            finish_reason="stop",
            usage=lm15.Usage(
                input_tokens=self.usage.prompt_tokens,
                output_tokens=self.usage.completion_tokens,
                cache_read_tokens=self.usage.cached_tokens,
            ),
        )

    def _value(self, chat: Chat, prefill: str, schema: Any, after: str) -> str:
        """The generated value of a property that is not a judgment."""
        document = {**self.schema, "properties": {}, **schema}
        try:
            pattern = Writer(document).pattern()
        except UnsupportedSchema as error:
            allowed = "a schema that constrained generation supports"
            raise UnsupportedCall("response_format", str(error), allowed) from error
        sampling = sampling_of(self.request, found(self.request.config.extensions))
        constraint = Regex(f"(?:{pattern}){after}")
        call = Call(_opened(chat, prefill), replace(sampling, logprobs=None), constraint)
        output = self._complete(call).outputs[0]
        if output.finish_reason != "stop":
            raise InvalidCall("max_tokens", sampling.max_tokens, "enough for every property")
        return output.text.removesuffix(after)

    def _complete(self, call: Call) -> Completion:
        options = found(self.request.config.extensions)
        deadline = self.runtime.timeout if options.deadline is None else options.deadline
        call = replace(call, namespace=options.namespace, deadline=deadline)
        completion = self.runtime.submit(call).result()
        self.usage = self.usage + completion.usage
        return completion


def _opened(chat: Chat, prefill: str) -> Chat:
    """The chat with the answer so far."""
    answer = Message("assistant", (Text(prefill),))
    return replace(chat, messages=(*chat.messages, answer), open_last=True)


def declared(schema: Any) -> dict[str, dict[str, str]]:
    """The properties of a schema that list their values: each value's key, and how the object has
    it. As in DSPy: booleans, texts, and levels from 0 on."""
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    if not isinstance(properties, Mapping):
        return {}
    found = {name: _keys(value) for name, value in properties.items()}
    return {name: keys for name, keys in found.items() if keys}


def shares(logprobs: Mapping[str, float]) -> dict[str, float]:
    """Probabilities that are in proportion to these and sum to 1."""
    best = max(logprobs.values())
    weights = {key: math.exp(value - best) for key, value in logprobs.items()}
    total = sum(weights.values())
    return {key: weight / total for key, weight in weights.items()}


def _keys(schema: Any) -> dict[str, str]:
    if not isinstance(schema, Mapping):
        return {}
    if schema.get("type") == "boolean":
        return {"true": "true", "false": "false"}
    branches = schema.get("anyOf", ())
    consts = [branch.get("const") for branch in branches if isinstance(branch, Mapping)]
    values = schema.get("enum", consts)
    if values and all(isinstance(value, str) and value for value in values):
        return {value: json.dumps(value, ensure_ascii=False) for value in values}
    is_levels = len(values) > 1 and all(type(it) is int for it in values)
    is_levels = is_levels and list(values) == list(range(len(values)))
    return {str(value): str(value) for value in values} if is_levels else {}
