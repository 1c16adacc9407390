"""Messages over a socket between a process and its child: each with its length before it.

When either is gone the other knows at once: the line breaks. A child also ends when its parent is
gone and another process still holds the line.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import queue
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, NoReturn

from ..api.codec import pack, unpack

_LENGTH = struct.Struct("<Q")
_MOST = 2**31
_CHUNK = 1 << 20
_SECONDS_BETWEEN_LOOKS = 1.0
_send = ctypes.PyDLL(None).send  # unlike `socket.send`, does not let go of the interpreter
_send.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int)
_send.restype = ctypes.c_ssize_t
_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]);"
    "from importlib import import_module; import_module(sys.argv[2]).main(int(sys.argv[3]))"
)


class Child(NamedTuple):
    """A child process and the line to it."""

    process: subprocess.Popen[bytes]
    line: Line


def spawn(module: str) -> Child:
    """Start a process that runs `main(fd)` of a module (by its full name) with the other end of a
    line. It does not get this terminal's Ctrl-C, and finds modules where this process does."""
    ours, theirs = socket.socketpair()
    paths = json.dumps([os.path.abspath(path) for path in sys.path])
    fd = theirs.fileno()
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-c", _START, paths, module, str(fd)],
            pass_fds=(fd,),
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            env={"THP_MEM_ALLOC_ENABLE": "1", **os.environ},  # torch then asks for large pages
        )
    return Child(process, Line(ours, is_prompt=True))


def answer(fd: int, serve: Callable[[Line], None]) -> NoReturn:
    """What a child does: serve its parent at the other end of this socket until it goes."""
    threading.Thread(target=_watch, args=(os.getppid(),), daemon=True).start()
    serve(Line(socket.socket(fileno=fd)))
    os._exit(0)  # whatever still runs here has nobody to run for


class Line:
    """One end of a connection. Messages are sent by a thread of its own, many at once where many
    wait; whoever sends is never held up by the other end.

    is_prompt: what need not wait is sent by the caller's own thread. A message is then there
    sooner, and many take longer to send. The thread keeps the interpreter meanwhile: where others
    compute, it would wait for each of them after every message.
    """

    def __init__(self, connection: socket.socket, is_prompt: bool = False) -> None:
        self._connection = connection
        self._is_prompt = is_prompt
        self._lock = threading.Lock()
        self._num_waiting = 0
        self._waiting: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._sender = threading.Thread(target=self._send_all, name="forkroot-line", daemon=True)
        self._sender.start()

    def send(self, *message: Any) -> None:
        """Send a message, soon; nothing happens where the other end is gone. Raises InvalidCall
        for what cannot be sent."""
        data = pack(message)
        data = _LENGTH.pack(len(data)) + data
        if not self._is_prompt:
            self._waiting.put(data)
            return
        with self._lock:
            rest = data if self._num_waiting else data[self._sent_now(data) :]
            if rest:
                self._num_waiting += 1
                self._waiting.put(rest)

    def messages(self) -> Iterator[Any]:
        """What comes in, until the other end is gone. Raises ValueError for what is no message."""
        buffer = bytearray()
        while True:
            while len(buffer) >= _LENGTH.size:
                (size,) = _LENGTH.unpack_from(buffer)
                if size > _MOST:
                    raise ValueError(f"a message of {size} bytes; at most {_MOST} are allowed")
                end = _LENGTH.size + size
                if len(buffer) < end:
                    break
                message = unpack(bytes(buffer[_LENGTH.size : end]))
                del buffer[:end]
                yield message
            try:
                data = self._connection.recv(_CHUNK)
            except OSError:
                return
            if not data:
                return
            buffer += data

    def close(self) -> None:
        """Send what still waits, and hang up."""
        self._waiting.put(None)
        if threading.current_thread() is not self._sender:
            self._sender.join(timeout=5)
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        with self._lock:  # nobody sends to what has this number next
            self._connection.close()

    def _sent_now(self, data: bytes) -> int:
        """How many of these bytes the other end had room for; 0 too where it is gone, as the line's
        own thread will find."""
        count: int = _send(self._connection.fileno(), data, len(data), socket.MSG_DONTWAIT)
        return max(0, count)

    def _send_all(self) -> None:
        while (data := self._waiting.get()) is not None:
            parts = [data]
            is_last = False
            while not self._waiting.empty():
                more = self._waiting.get()
                if more is None:
                    is_last = True
                    break
                parts.append(more)
            try:
                self._connection.sendall(b"".join(parts))
            except OSError:
                return
            if is_last:
                return
            if self._is_prompt:
                with self._lock:
                    self._num_waiting -= len(parts)


def _watch(parent: int) -> None:
    """End this process once its parent is gone."""
    while os.getppid() == parent:
        time.sleep(_SECONDS_BETWEEN_LOOKS)
    os._exit(1)
