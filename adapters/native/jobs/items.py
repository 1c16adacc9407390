"""The items of a job: a file with one JSON object of arguments in each line, checked as a whole
before anything runs."""

from __future__ import annotations

import hashlib
import json
import os
from array import array
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ....core.api.protocol import InvalidCall, Shown
from ...common.surrogates import check_texts

_SHOWN = 60


class Items:
    """The arguments of each item of the file `path`, which are read again when they are needed.

    check: of the arguments of one; raises InvalidCall. Blank lines are no items. Raises InvalidCall
    for the first line that is not one, with its number.
    """

    def __init__(
        self, path: str | os.PathLike[str], check: Callable[[Mapping[str, Any]], object]
    ) -> None:
        self._path = Path(path)
        self._offsets = array("Q")
        digest = hashlib.sha256()
        try:
            self._file = self._path.open("rb")
        except OSError as error:
            raise self._refused("args", f"a file that can be read ({error.strerror})") from error
        try:
            place = 0
            for number, line in enumerate(self._file, 1):
                if line.strip():
                    self._check(line, number, check)
                    self._offsets.append(place)
                    digest.update(line.strip() + b"\n")
                place += len(line)
        except BaseException:
            self._file.close()
            raise
        self.digest = digest.hexdigest()[:32]

    def __len__(self) -> int:
        return len(self._offsets)

    def __getitem__(self, index: int) -> dict[str, Any]:
        """The arguments of an item. Raises InvalidCall where the file was changed meanwhile."""
        content = os.pread(self._file.fileno(), self._len(index), self._offsets[index])
        try:
            found: dict[str, Any] = json.loads(content)
        except ValueError as error:
            allowed = "a file that nobody changes while it is used"
            raise self._refused("args", allowed) from error
        return found

    def close(self) -> None:
        """No item is read any more."""
        self._file.close()

    def _len(self, index: int) -> int:
        is_last = index + 1 == len(self._offsets)
        end = os.fstat(self._file.fileno()).st_size if is_last else self._offsets[index + 1]
        return end - self._offsets[index]

    def _check(
        self, line: bytes, number: int, check: Callable[[Mapping[str, Any]], object]
    ) -> None:
        """Raise InvalidCall, with the number of the line, where it is no item."""
        where = f"{self._path}, line {number}"
        try:
            found = json.loads(line, parse_constant=_no_number)
        except (ValueError, RecursionError) as error:
            shown = line.strip()[:_SHOWN].decode("utf-8", "replace")
            raise InvalidCall(where, shown, f"a JSON object of arguments ({error})") from None
        if not isinstance(found, dict):
            shown = Shown(repr(found)[:_SHOWN])
            raise InvalidCall(where, shown, "a JSON object of arguments, by name")
        try:
            check_texts(found)
            check(found)
        except InvalidCall as error:
            raise InvalidCall(f"{where}: {error.field}", error.value, error.allowed) from None

    def _refused(self, field: str, allowed: str) -> InvalidCall:
        return InvalidCall(field, str(self._path), allowed)


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")
