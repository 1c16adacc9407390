"""The results of a job: a file with one line of JSON for each item that has ended, behind a header.

The file is the job's memory: an item that it has is not run again. Items are in the order in which
they ended; of an item that was run again after an error, the last line counts.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ....core.api.protocol import ForkrootError, InvalidCall
from ..interpreter.saved import Saved
from ..records import Kind, RecordFile
from ..state import ProgramState

_KIND = Kind("out", "results", 1, "forkroot run", "job", "result")


class Results:
    """The results in `path`; `header` says which job they are of.

    done: the items that have ended well. failed: those that have ended in an error, and the class
    of each. Raises InvalidCall, as `RecordFile` does.
    """

    def __init__(self, path: str | os.PathLike[str], header: Mapping[str, Any]) -> None:
        self.done: set[int] = set()
        self.failed: dict[int, str] = {}
        self._num_items = int(header["num_items"])
        self._file = RecordFile(path, _KIND, header, self._take)

    def add(self, record: Mapping[str, Any]) -> None:
        """Write a result; thread-safe. Raises InvalidCall where the file cannot be written."""
        self._file.append(record)

    def close(self) -> None:
        """Await the disk."""
        self._file.close()

    def _take(self, record: Mapping[str, Any]) -> None:
        index = record["item"]
        if type(index) is not int or not 0 <= index < self._num_items:
            raise ValueError(f"no item has the number {index}")
        if "error" in record:
            self.failed[index] = str(record["error"]["type"])
            return
        record["variables"]  # of every result
        self.done.add(index)
        self.failed.pop(index, None)


def result_of(index: int, saved: Saved, state: ProgramState, with_meta: bool) -> dict[str, Any]:
    """The line of an item that has ended well. Raises InvalidCall for a variable that is not plain
    data."""
    found = saved.as_json()
    record: dict[str, Any] = {"item": index, "variables": found["variables"]}
    if found["ret_value"] is not None:
        record["value"] = found["ret_value"]
    messages = state.messages()
    if messages:
        record["messages"] = _messages(messages)
    else:
        record["text"] = state.text()
    if with_meta:
        record["meta"] = found["meta"]
    return {**record, "usage": found["totals"], "retries": saved.num_retries}


def failure_of(index: int, error: BaseException, num_retries: int) -> dict[str, Any]:
    """The line of an item that has ended in an error."""
    found: dict[str, Any] = {"type": type(error).__name__, "message": str(error)}
    if isinstance(error, InvalidCall):
        found["field"] = error.field
    if not isinstance(error, ForkrootError):
        found["message"] = f"{type(error).__name__}: {error}"
    return {"item": index, "error": found, "retries": num_retries}


def _messages(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Messages without the data of pictures and clips, which the items have."""
    return [{**message, "content": _content(message["content"])} for message in messages]


def _content(content: Any) -> Any:
    if isinstance(content, str):
        return content
    return [{key: it for key, it in part.items() if key != "data"} for part in content]
