"""What is sent for a call, and what comes back: the same values for every API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeAlias

from ...core.api.protocol import Call, FinishReason
from .failures import Failure
from .structured import Form


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request. headers: of the API, beside its key.

    stops: texts at which an answer is cut here, as the API does not stop at them. strips_blanks:
      the blanks with which an answer begins are already in the prompt. form: what the answer must
      be, if it has a constraint.
    """

    path: str
    body: Mapping[str, Any]
    is_streamed: bool = False
    stops: tuple[str, ...] = ()
    strips_blanks: bool = False
    form: Form | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Piece:
    """More text of an answer."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class ToolPiece:
    """More of tool call `number` of an answer: its name, or arguments as JSON text."""

    index: int
    number: int
    name: str = ""
    arguments: str = ""


@dataclass(frozen=True, slots=True)
class Ending:
    """An answer has ended. matched: the stop text, where the API reports it."""

    index: int
    reason: FinishReason
    matched: str | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """The model, or a filter of the API, refuses an answer."""

    index: int
    text: str


class Tokens(NamedTuple):
    """Tokens so far; None: not reported."""

    prompt: int | None = None
    cached: int | None = None
    completion: int | None = None


def counted(value: Any) -> int:
    """A number of tokens that an API reports; 0 for none. Raises ValueError for what is none."""
    if value is None:
        return 0
    if type(value) not in (int, float) or not 0 <= value < 1e12:
        raise ValueError("not a number of tokens")
    return int(value)


def text_of(value: Any) -> str:
    """A text of an answer; "" for None. Raises ValueError for what is none."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ValueError(f"a {type(value).__name__} in place of a text")
    return value


Event: TypeAlias = Piece | ToolPiece | Ending | Refusal | Tokens


class Wire(Protocol):
    """The language of one API."""

    is_single: bool  # one answer a request

    def request(self, call: Call, number: int) -> Request:
        """The request for a call, the `number`-th of those that ask the same. Raises
        UnsupportedCall for what the API cannot do."""

    def events(self, value: Mapping[str, Any], request: Request) -> Sequence[Event]:
        """What a JSON value of the answer means. Raises Failure, and KeyError, TypeError,
        ValueError or AttributeError for one that is not of this API."""

    def adapts(self, request: Request, failure: Failure) -> bool:
        """Whether further requests are made in another way because of this refusal."""
