"""A DSPy adapter of one's own: one line for each field, as in "Grade: A".

The embedded model learned to judge essays in such lines, and has no use for the headers of DSPy's
own adapters. Every prompt of a program whose signatures have the same task and inputs is the same:
which outputs are wanted is said by the pattern of the answer alone, see `pattern`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, get_args

from .savings import needed

try:
    import dspy
    from dspy.utils.exceptions import AdapterParseError
except ImportError as error:
    needed("dspy", error)

YES_OR_NO = ("no", "yes")


class Lines(dspy.ChatAdapter):  # type: ignore[misc]
    """The task as the system's message, inputs and outputs as lines."""

    def __init__(self) -> None:
        super().__init__(use_json_adapter_fallback=False)

    def format_system_message(self, signature: type[dspy.Signature]) -> str:
        """The task alone."""
        return str(signature.instructions).strip()

    def format_user_message_content(
        self, signature: type[dspy.Signature], inputs: dict[str, Any], *args: Any, **kwargs: Any
    ) -> str:
        """A line for each input."""
        return "\n".join(
            line(name, inputs[name]) for name in signature.input_fields if name in inputs
        )

    def format_assistant_message_content(
        self, signature: type[dspy.Signature], outputs: dict[str, Any], *args: Any, **kwargs: Any
    ) -> str:
        """A line for each output."""
        return "\n".join(line(name, outputs.get(name)) for name in signature.output_fields)

    def parse(self, signature: type[dspy.Signature], completion: str) -> dict[str, Any]:
        """The outputs in the types of their fields. Raises AdapterParseError."""
        found = dict(text.partition(": ")[::2] for text in completion.splitlines())
        try:
            return {
                name: value_of(field.annotation, found[name.capitalize()])
                for name, field in signature.output_fields.items()
            }
        except (KeyError, ValueError) as error:
            raise AdapterParseError("Lines", signature, completion, message=str(error)) from error


def line(name: str, value: Any) -> str:
    """A field as it is written."""
    text = YES_OR_NO[value] if isinstance(value, bool) else str(value)
    return f"{name.capitalize()}: {text}"


def value_of(kind: Any, text: str) -> Any:
    """A field's value of its type: a bool, one of a Literal's texts, or a text. Raises ValueError
    for any other text."""
    if kind is bool:
        return bool(YES_OR_NO.index(text))
    if kind is not str and text not in get_args(kind):
        raise ValueError(f"{text!r} is none of {get_args(kind)}")
    return text


def pattern(signature: type[dspy.Signature], known: Mapping[str, str] | None = None) -> str:
    """The answers that `Lines` parses: for the `regex=` of a Predict, or of one of its calls.

    known: outputs whose text is settled already; it is computed in one pass, and not written token
    by token.
    """
    known = known or {}
    return "\n".join(
        re.escape(f"{name.capitalize()}: {known[name]}")
        if name in known
        else f"{name.capitalize()}: {_values(field.annotation)}"
        for name, field in signature.output_fields.items()
    )


def _values(kind: Any) -> str:
    if kind is str:
        return r"[^\n]{1,60}\."
    return "(" + "|".join(map(re.escape, YES_OR_NO if kind is bool else get_args(kind))) + ")"
