"""The parser of the command line: what it does not know is told with what was probably meant, and
with the usage of the command that was given it; numbers are told with what is allowed.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from ..core.api.protocol import InvalidCall
from ..core.common.suggestions import closest, did_you_mean
from ..core.model.hub.folders import DUMMY, EMBEDDED
from .connection import is_url

T = TypeVar("T", int, float)


def number(kind: type[T], low: T | None = None, high: T | None = None) -> Callable[[str], T]:
    """What reads the value of an option: a number from `low` to `high`, both allowed; None: there
    is no such bound. It raises argparse.ArgumentTypeError, with what is allowed."""
    told = "an integer" if kind is int else "a number"
    if low is not None:
        told += f", {low:,g} or more" if high is None else f" from {low:,g} to {high:,g}"

    def read(text: str) -> T:
        with suppress(ValueError):
            value = kind(text)
            if (low is None or value >= low) and (high is None or value <= high):
                return value
        raise argparse.ArgumentTypeError(f"invalid value {text!r}: expected {told}")

    return read


def no_server(told: str) -> Callable[[str], str]:
    """What reads the name of a model where the URL of a server is none. told: why not, as what goes
    on behind the URL. It raises argparse.ArgumentTypeError."""

    def read(text: str) -> str:
        if not is_url(text):
            return text
        allowed = "a checkpoint folder, or the name of a model"
        raise argparse.ArgumentTypeError(f"{text} {told}; expected {allowed}")

    return read


def settle_model(options: argparse.Namespace) -> None:
    """Set `options.model` where none is given: to the dummy, or the embedded model. With a dummy
    the only text of a chat is its message. Raises InvalidCall for a model beside a dummy."""
    given = options.model
    if not options.dummy:
        options.model = EMBEDDED if given is None else given
        return
    if "message" in options and options.message is None:
        options.message, given = given, None
    if given is not None:
        raise InvalidCall("model", given, f"no model beside --dummy {options.dummy}")
    options.model = f"{DUMMY}{options.dummy}"


class Parser(argparse.ArgumentParser):
    """As argparse's own, of which each subcommand's is one, too."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Parse all: what is not known is refused here, where it was given. Raises SystemExit."""
        options, unknown = super().parse_known_args(args, namespace)
        if unknown:
            misspelled = next((text for text in unknown if text.startswith("-")), "")
            meant = self._meant(misspelled.partition("=")[0])
            self.error(f"unrecognized arguments: {' '.join(unknown)}{meant}")
        return options, unknown

    def _meant(self, option: str) -> str:
        known = [name for action in self._actions for name in action.option_strings]
        places = [f"--{action.dest}" for action in self._actions if not action.option_strings]
        near = closest(option, [*known, *places])
        if near in places:
            return f"; {near[2:]} is given without a name before it"
        return f"; did you mean {near}?" if near is not None else ""

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """What is none of an argument's choices; argparse asks here for commands, too."""
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            error.message += did_you_mean(str(value), map(str, action.choices or ()))
            raise
