"""The base of every route of the server: a backend, its tokens, and what is allowed.

Routes turn a request into calls of the protocol and replies into bodies; they share nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

from ....core.api.protocol import Backend, Chat, Segment
from .fetch import Fetcher
from .workers import Workers


class Texts(Protocol):
    """The methods that the server needs of a tokenizer.

    token_bytes: [vocabulary] the bytes that each token adds to the text; empty for special tokens.
    start_ids: what the model expects in front of a prompt of plain text.
    """

    token_bytes: list[bytes]
    start_ids: tuple[int, ...]

    def encode(self, text: str, most: int | None = None) -> list[int]:
        """Token ids of a text, with nothing added. most: tokens that are allowed; a long text of
        more may raise CallTooLarge before it is encoded."""

    def decode(self, ids: Sequence[int]) -> str:
        """The text of these tokens without special tokens."""

    def encode_prompt(
        self, prompt: tuple[Segment, ...] | Chat, most: int | None = None
    ) -> list[int]:
        """Token ids of a whole prompt, with all that a model expects. most: as in `encode`. Raises
        InvalidCall."""


@runtime_checkable
class Elsewhere(Protocol):
    """A backend in another process, which prepares calls there: its `submit` never waits."""

    @property
    def pid(self) -> int:
        """The id of that process."""


@dataclass(frozen=True, slots=True)
class ProgramLimits:
    """Limits of programs that the server runs.

    max_kept, max_kept_bytes: programs of one key that are kept, and the bytes of their graphs; of
      more, those used longest ago are forgotten. max_nodes, max_streams: of a graph; a stream is a
      state: the program's own, or a branch of a fork. max_calls, max_tokens: of a run; tokens that
      its calls may generate (`max_tokens` times `n`). max_chars: of all texts that a run writes.
    max_runs: at work at a time, each in a thread; more wait in turn. One key's part of them holds
      a batch of 256, the most threads of a client with 16 processors. max_seconds: of a run, and of
      its wait before.
    """

    max_kept: int = 256
    max_kept_bytes: int = 64 << 20
    max_nodes: int = 8192
    max_streams: int = 1024
    max_calls: int = 8192
    max_tokens: int = 1 << 20
    max_chars: int = 16 << 20
    max_runs: int = 320
    max_seconds: float = 600.0


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one request, and of all of them together. Sizes in bytes or characters, times
    in seconds.

    max_body: of a request's body. max_values: texts, numbers, keys and so on in it.
      max_containers: its lists and objects. max_depth: of these within one another. max_fields: of
      the body itself. max_objects: in a list of its fields, such as messages. max_prompts: prompts
      in one request. max_values_of_plugins: as max_values, for the routes of plugins.
    max_n: answers to each. max_answers: prompts times n. max_stops: stop texts.
    max_top_logprobs: of each token.
    max_constraint: size of a pattern, schema or grammar. max_streams: requests at work at a time,
      over which 503 and Retry-After are answered. default_max_tokens: where a request names none.
    max_connections: open ones of one address. request_timeout: for the headers of a request, and
      for its body, which has a second more for every 64 KiB.
    deadline: of a request that names none; None: none. drain: for running requests at the end.
    programs: of those that the server runs.
    """

    max_body: int = 16 << 20
    max_values: int = 1 << 20
    max_containers: int = 1 << 16
    max_values_of_plugins: int = 1 << 16
    max_depth: int = 256
    max_fields: int = 256
    max_objects: int = 8192
    max_prompts: int = 256
    max_n: int = 32
    max_answers: int = 512
    max_stops: int = 16
    max_top_logprobs: int = 20
    max_constraint: int = 1 << 20
    max_streams: int = 1024
    max_connections: int = 2048
    request_timeout: float = 10.0
    default_max_tokens: int = 128
    deadline: float | None = None
    drain: float = 30.0
    programs: ProgramLimits = field(default_factory=ProgramLimits)

    @property
    def of_plugins(self) -> Limits:
        """The limits of bodies for the routes of plugins, which FastAPI reads at once."""
        return replace(self, max_values=min(self.max_values, self.max_values_of_plugins))


@dataclass(frozen=True, slots=True)
class Runtime:
    """One served model.

    names: the model's names; the first is the one that replies bear. limits: see there.
    passes_on: the backend's `submit` only sends a call to another process. version: of forkroot.
    workers: prepare large requests. fetcher: gets what a request names by its URL.
    """

    backend: Backend
    texts: Texts
    names: tuple[str, ...]
    limits: Limits = field(default_factory=Limits)
    passes_on: bool = False
    version: str = ""
    workers: Workers = field(default_factory=Workers)
    fetcher: Fetcher = field(default_factory=Fetcher)

    @property
    def name(self) -> str:
        """The name that replies bear."""
        return self.names[0]
