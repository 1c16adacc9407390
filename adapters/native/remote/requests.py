"""Arguments and settings of a run, as JSON and back: plain data, checked at both ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from ....core.api.protocol import Backend, Call, InvalidCall, Text
from ..language.plain import decoded, encoded
from ..language.settings import SAMPLING_FIELDS, Settings, sampling_fields

_DEFAULTED = (
    "hints",
    "stream",
    "scored_from",
    "namespace",
    "priority",
    "deadline",
    "tenant",
    "weight",
)
_PLAIN = "plain data, as an ended state has it"


@dataclass(frozen=True, slots=True)
class RunRequest:
    """What a run is given. arguments: of the program. sampling: fields of `Sampling`. The others
    are as in `Settings`. passes: of the compiler, by name; None: all. tenant, weight: as in `Call`,
    where somebody sends the runs of others."""

    arguments: Mapping[str, Any] = field(default_factory=dict)
    sampling: Mapping[str, Any] = field(default_factory=dict)
    hints: bool = True
    stream: bool = False
    scored_from: int | None = None
    namespace: str = ""
    priority: int = 0
    deadline: float | None = None
    passes: Sequence[str] | None = None
    tenant: str | None = None
    weight: float = 1.0

    @classmethod
    def of(
        cls, arguments: Mapping[str, Any], settings: Settings, passes: Sequence[str] | None
    ) -> RunRequest:
        """Those of a run here."""
        return cls(
            arguments,
            settings.sampling,
            settings.hints,
            settings.stream,
            settings.scored_from,
            settings.namespace,
            settings.priority,
            settings.deadline,
            passes,
        )

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> RunRequest:
        """What `as_json` gave; fields may be missing. Raises InvalidCall."""
        known = [entry.name for entry in fields(cls)]
        for name in found:
            if name not in known:
                raise InvalidCall(f"{name:.100}", "...", f"one of {', '.join(known)}")
        given = {name: value for name, value in found.items() if value is not None}
        for name in ("arguments", "sampling"):
            if not isinstance(given.get(name, {}), Mapping):
                raise InvalidCall(name, given[name], "an object of names and values")
        try:
            given["arguments"] = decoded(given.get("arguments", {}))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise InvalidCall("arguments", "...", f"{_PLAIN} ({error!r:.80})") from None
        given["sampling"] = _sampling(given.get("sampling", {}))
        request = cls(**given)
        request.settings(None)
        call = Call(
            (Text("."),),
            namespace=request.namespace,
            priority=request.priority,
            deadline=request.deadline,
            tenant=request.tenant,
            weight=request.weight,
        )
        call.check()
        return request

    def as_json(self) -> dict[str, Any]:
        """As plain JSON; what has its default is left out. Raises InvalidCall for arguments that
        are not plain data."""
        body: dict[str, Any] = {"arguments": encoded_arguments(self.arguments)}
        if self.sampling:
            body["sampling"] = {name: _json(value) for name, value in self.sampling.items()}
        default = RunRequest()
        for name in _DEFAULTED:
            if getattr(self, name) != getattr(default, name):
                body[name] = getattr(self, name)
        if self.passes is not None:
            body["passes"] = list(self.passes)
        return body

    def settings(self, backend: Backend | None) -> Settings:
        """The settings of the run, on this backend. Raises InvalidCall."""
        return Settings(
            backend=backend,
            sampling=self.sampling,
            hints=self.hints,
            stream=self.stream,
            scored_from=self.scored_from,
            namespace=self.namespace,
            priority=self.priority,
            deadline=self.deadline,
        )


def encoded_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments as JSON. Raises InvalidCall for what is not plain data, by its name."""
    return {name: encoded(value, f"arguments.{name}") for name, value in arguments.items()}


def _json(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): item for key, item in value.items()}
    return list(value) if isinstance(value, tuple) else value


def _sampling(given: Mapping[str, Any]) -> dict[str, Any]:
    for name in given:
        if name not in SAMPLING_FIELDS:
            allowed = f"the fields of sampling: {', '.join(sorted(SAMPLING_FIELDS))}"
            raise InvalidCall("sampling", name, allowed)
    bias = given.get("logit_bias")
    if isinstance(bias, Mapping):
        given = {**given, "logit_bias": {_token(key): value for key, value in bias.items()}}
    return sampling_fields(given)


def _token(key: Any) -> Any:
    """A token's id, which is a text as a key of JSON."""
    is_id = isinstance(key, str) and key.isascii() and key.isdecimal() and len(key) < 10
    return int(key) if is_id else key
