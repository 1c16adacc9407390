"""The parser of the command line and the checks of its values.

Errors for unknown arguments have suggestions and the usage of the command; errors for numbers name
the allowed range.
"""

from __future__ import annotations

import argparse
import ast
import json
import shlex
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, TypeVar

from ..core.api.keywords import ENGINE_SETTINGS, OTHER_NAMES
from ..core.api.protocol import InvalidCall, InvalidModel
from ..core.common.suggestions import closest, did_you_mean
from ..core.model.hub.embedded import EMBEDDED_VISION
from ..core.model.hub.folders import DUMMY, EMBEDDED
from .connection import check_name, is_url

T = TypeVar("T", int, float)
_TEXTS = ("api_key", "host_file")  # settings whose values are always strings


def number(kind: type[T], low: T | None = None, high: T | None = None) -> Callable[[str], T]:
    """A reader of an option's value: a number from `low` to `high`, inclusive; None: no such bound.
    It raises argparse.ArgumentTypeError with the allowed range."""
    expected = "an integer" if kind is int else "a number"
    if low is not None:
        expected += f", {low:,g} or more" if high is None else f" from {low:,g} to {high:,g}"

    def read(text: str) -> T:
        with suppress(ValueError):
            value = kind(text)
            if (low is None or value >= low) and (high is None or value <= high):
                return value
        raise argparse.ArgumentTypeError(f"invalid value {text!r}: expected {expected}")

    return read


def no_server(reason: str) -> Callable[[str], str]:
    """A reader of a model's name that refuses the URL of a server with this reason, by
    argparse.ArgumentTypeError."""

    def read(text: str) -> str:
        if not is_url(text):
            return text
        allowed = "a checkpoint folder, or the name of a model"
        raise argparse.ArgumentTypeError(f"{text} {reason}; expected {allowed}")

    return read


def settle_model(options: argparse.Namespace) -> None:
    """Set `options.model` to the dummy, or to the embedded model if none is given: the one that
    sees, if options.image. With a dummy, the only text of a chat is its message. Raises InvalidCall
    for a model beside a dummy."""
    given = options.model
    if not options.dummy:
        embedded = EMBEDDED_VISION if getattr(options, "image", False) else EMBEDDED
        options.model = embedded if given is None else given
        return
    if "message" in options and options.message is None:
        options.message, given = given, None
    if given is not None:
        raise InvalidCall("model", given, f"no model beside --dummy {options.dummy}")
    options.model = f"{DUMMY}{options.dummy}"


def check_chat_model(model: str) -> None:
    """Raise InvalidModel for a message in the place of the model, with the command to use."""
    try:
        check_name(model)
    except InvalidModel as error:
        is_path = "/" in model and " " not in model
        if "; did you mean" in str(error) or is_path or not model.strip():
            raise
        is_plain = not set(model) & set('"$`\\!')
        quoted = f'"{model}"' if is_plain else shlex.quote(model)
        suggestion = f"; did you mean forkroot chat {EMBEDDED} {quoted}?"
        raise InvalidModel(f"{error}{suggestion}") from None


def read_settings(items: Iterable[str]) -> dict[str, Any]:
    """The settings that are given as NAME=VALUE. Values are JSON or Python; any other text is a
    string. Raises InvalidCall."""
    found: dict[str, Any] = {}
    for item in items:
        name, mark, text = item.partition("=")
        if not mark:
            raise InvalidCall("set", item, "NAME=VALUE, such as chunk_tokens=256")
        found[name] = text if name in _TEXTS else _value(text)
    return found


def _value(text: str) -> Any:
    for read in (json.loads, ast.literal_eval):
        with suppress(ValueError, SyntaxError, RecursionError):
            return read(text)
    return text


class Parser(argparse.ArgumentParser):
    """argparse's parser, also for each subcommand, with suggestions for unknown names."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Parse all arguments; an unknown one is an error of this command. Raises SystemExit."""
        options, unknown = super().parse_known_args(args, namespace)
        if unknown:
            misspelled = next((text for text in unknown if text.startswith("-")), "")
            suggestion = self._suggestion(misspelled.partition("=")[0])
            self.error(f"unrecognized arguments: {' '.join(unknown)}{suggestion}")
        return options, unknown

    def _suggestion(self, option: str) -> str:
        known = [name for action in self._actions for name in action.option_strings]
        positional = [f"--{action.dest}" for action in self._actions if not action.option_strings]
        owns = {name: name for name in ENGINE_SETTINGS} | OTHER_NAMES if "--set" in known else {}
        owns = {name: own for name, own in owns.items() if own in ENGINE_SETTINGS}
        settings = {f"--{name.replace('_', '-')}": own for name, own in owns.items()}
        near = closest(option.replace("_", "-"), [*known, *positional, *settings])
        if near in positional:
            return f"; {near[2:]} is given without a name before it"
        if near in settings:
            name = settings[near]
            return f"; {name} is a setting: --set {name}=VALUE (see docs/settings.md)"
        return f"; did you mean {near}?" if near is not None else ""

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Raise for a value that is not one of the choices; commands are choices as well."""
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            error.message += did_you_mean(str(value), map(str, action.choices or ()))
            raise
