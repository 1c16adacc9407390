"""A chat with a model in a terminal: what `forkroot chat` runs."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from unicodedata import category

from rich.console import Console

from .. import (
    Backend,
    BackendClosed,
    Call,
    Chat,
    Completion,
    ForkrootError,
    InvalidCall,
    Message,
    Sampling,
    Text,
)

_HELP = """\
/clear    start a new conversation
/help     show this list
/quit     leave (Ctrl-D does, too)
Ctrl-C    stop the answer that is being written"""


class Conversation:
    """A chat that is kept as the model wrote it, so that each turn finds those before in the cache.

    system: the system message, if not empty.
    """

    def __init__(self, backend: Backend, sampling: Sampling, system: str = "") -> None:
        self._backend = backend
        self._sampling = sampling
        self._start = (Message("system", (Text(system),)),) if system else ()
        self._messages = self._start

    def clear(self) -> None:
        """Forget every turn."""
        self._messages = self._start

    def say(self, text: str, write: Callable[[str], object]) -> Completion:
        """A turn, its answer written as it comes. Ctrl-C meanwhile ends it early. A turn that
        fails is forgotten; its error is raised."""
        messages = (*self._messages, Message("user", (Text(text),)))
        reply = self._backend.submit(Call(Chat(messages), self._sampling, stream=True))
        written = 0
        try:
            for chunk in reply:
                write(chunk.text)
                written += len(chunk.text)
        except KeyboardInterrupt:
            reply.cancel()
        completion = reply.result()
        write(completion.text[written:])
        self._messages = (*messages, Message("assistant", completion.outputs[0].segments))
        return completion


def talk(conversation: Conversation) -> bool:
    """Answer lines of standard input until its end or /quit; whether all of them were answered. A
    line that cannot be answered is reported on standard error. Raises BackendClosed."""
    is_terminal, is_well = sys.stdin.isatty(), True
    if is_terminal:
        print("Type a message and press Enter; /help lists the commands.", file=sys.stderr)
    for number, line in enumerate(_lines("> " if is_terminal else ""), 1):
        try:
            if line == "/quit":
                break
            completion = _turn(conversation, line)
        except BackendClosed:
            raise
        except ForkrootError as error:
            is_well = False
            prefix = "" if is_terminal else f"line {number}: "
            print(f"forkroot: {prefix}{visible(str(error))}", file=sys.stderr)
        else:
            if is_terminal and completion is not None:
                Console(stderr=True).print(_cost(completion), style="dim", highlight=False)
    return is_well


def answer(conversation: Conversation, message: str) -> Completion:
    """One turn, its answer on standard output. Raises as `Conversation.say`."""
    completion = conversation.say(message, _write)
    _write("\n")
    return completion


def _turn(conversation: Conversation, line: str) -> Completion | None:
    """What a line asks for, with the answer written; None where there is none. Raises as
    `Conversation.say`, and InvalidCall."""
    try:
        line.encode()
    except UnicodeEncodeError as error:
        encoding = sys.stdin.encoding
        given = line.encode(encoding, "surrogateescape")
        raise InvalidCall("input", given, f"text in {encoding.upper()}") from error
    if line == "/clear":
        conversation.clear()
    elif line == "/help":
        print(_HELP, file=sys.stderr)
    elif line.startswith("/"):
        raise InvalidCall("command", line, "/help, /clear, /quit")
    elif line:
        return answer(conversation, line)
    return None


def visible(text: str) -> str:
    """The text without characters that steer a terminal."""
    return "".join(char for char in text if char in "\n\t" or category(char) != "Cc")


def _lines(prompt: str) -> Iterator[str]:
    """What the user types, line by line; Ctrl-C drops a line and says how to leave. Bytes that are
    no text stay in it, as lone surrogates."""
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="surrogateescape")
    with suppress(ImportError):
        import readline  # noqa: F401  (input() then edits lines and knows those before)
    while True:
        try:
            line = input(prompt)
        except EOFError:
            return
        except KeyboardInterrupt:
            print("\n(Ctrl-D or /quit leaves)" if prompt else "", file=sys.stderr)
            continue
        yield line.strip()


def _write(text: str) -> None:
    print(visible(text), end="", flush=True)


def _cost(completion: Completion) -> str:
    usage = completion.usage
    is_cut = completion.outputs[0].finish_reason == "length"
    found = f"{usage.cached_tokens:,} of {usage.prompt_tokens:,} prompt tokens were cached"
    return f"{found}, {usage.completion_tokens:,} written{' (cut short)' if is_cut else ''}"
