"""The parser of the command line: what it does not know is told with what was probably meant, and
with the usage of the command that was given it.
"""

from __future__ import annotations

import argparse
from typing import Any

from ..core.nearest import did_you_mean, nearest


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
        near = nearest(option, [*known, *places])
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
