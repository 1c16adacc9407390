"""The JSON schemas of Pydantic's classes, of which every answer is a value of the class.

Pydantic's own schema of a `Decimal` takes any text beside numbers, of which few are one.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

_DIGITS = r"^-?[0-9]{1,18}(\.[0-9]{1,18})?$"
_BOUNDS = frozenset(("ge", "gt", "le", "lt", "multiple_of", "max_digits", "decimal_places"))


class Answers(GenerateJsonSchema):
    """As Pydantic's own, for what is read; but a `Decimal` is a number, or digits as a text."""

    def decimal_schema(self, schema: core_schema.DecimalSchema) -> JsonSchemaValue:
        """A number alone where it is bounded, as bounds do not apply to text."""
        number, text = super().decimal_schema(schema)["anyOf"]
        is_bounded = not _BOUNDS.isdisjoint(schema)
        return number if is_bounded else {"anyOf": [number, {**text, "pattern": _DIGITS}]}


def schema_of(kind: Any) -> dict[str, Any]:
    """The schema of a Pydantic model, of a class that has a `model_json_schema` of its own, or of
    what Pydantic can read: a dataclass, a TypedDict. Raises as these do."""
    schema: dict[str, Any]
    if issubclass(kind, BaseModel):
        schema = kind.model_json_schema(schema_generator=Answers)
    elif hasattr(kind, "model_json_schema"):
        schema = kind.model_json_schema()
    else:
        schema = TypeAdapter(kind).json_schema(schema_generator=Answers)
    return schema


def differs(kind: type[BaseModel]) -> bool:
    """Whether this schema of a model is another than Pydantic's own."""
    return schema_of(kind) != kind.model_json_schema()
