"""Messages over a socket between a process and its child: each with its length before it.

When either is gone the other notices at once: the connection breaks. A child also ends when its
parent is gone and another process still holds the connection.
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
import traceback
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, NoReturn

from ..api.codec import pack, unpack
from ..api.errors import CallFailed, ForkrootError

_LENGTH = struct.Struct("<Q")
_MAX_BYTES = 2**31
_CHUNK = 1 << 20
_CHECK_INTERVAL = 1.0  # seconds
_send = ctypes.PyDLL(None).send  # unlike `socket.send`, does not release the interpreter lock
_send.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int)
_send.restype = ctypes.c_ssize_t
_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]);"
    "from importlib import import_module as load;"
    "load(sys.argv[2]).main(int(sys.argv[3]), *sys.argv[4:])"
)


class Child(NamedTuple):
    """A child process and the connection to it."""

    process: subprocess.Popen[bytes]
    connection: Connection


def spawn(module: str, *options: str) -> Child:
    """Start a process that runs `main(fd, *options)` of a module (by its full name) with the other
    end of a connection. It does not get this terminal's Ctrl-C, and uses this process's module
    path."""
    parent_end, child_end = socket.socketpair()
    paths = json.dumps([os.path.abspath(path) for path in sys.path])
    fd = child_end.fileno()
    with child_end:
        process = subprocess.Popen(
            [sys.executable, "-c", _START, paths, module, str(fd), *options],
            pass_fds=(fd,),
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            env={"THP_MEM_ALLOC_ENABLE": "1", **os.environ},  # torch then asks for large pages
        )
    return Child(process, Connection(parent_end, sends_directly=True))


def serve_parent(fd: int, serve: Callable[[Connection], None]) -> NoReturn:
    """In a child: serve the parent at the other end of this socket until it is gone. An error of
    `serve` is printed, and ends this process with code 1."""
    threading.Thread(target=_exit_with_parent, args=(os.getppid(),), daemon=True).start()
    try:
        serve(Connection(socket.socket(fileno=fd)))
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)  # nothing needs the threads that still run


def sendable(error: Exception) -> ForkrootError:
    """The error itself if it is one of the protocol, else a CallFailed that says what it was."""
    if isinstance(error, ForkrootError):
        return error
    return CallFailed(f"{type(error).__name__}: {error}")


class Connection:
    """One end of a connection. Messages are sent by a thread of its own, many at once where many
    wait; a caller never waits for the other end.

    sends_directly: the caller's own thread sends what the socket takes at once. This lowers the
    latency of a message and the throughput of many. The thread holds the interpreter lock
    meanwhile: it would wait for other computing threads after every message.
    """

    def __init__(self, sock: socket.socket, sends_directly: bool = False) -> None:
        self._socket = sock
        self._sends_directly = sends_directly
        self._lock = threading.Lock()
        self._num_queued = 0
        self._queue: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._sender = threading.Thread(
            target=self._send_all, name="forkroot-connection", daemon=True
        )
        self._sender.start()

    def send(self, *message: Any) -> None:
        """Send a message, soon; nothing happens where the other end is gone. Raises InvalidCall
        for what cannot be sent."""
        data = pack(message)
        data = _LENGTH.pack(len(data)) + data
        if not self._sends_directly:
            self._queue.put(data)
            return
        with self._lock:
            rest = data if self._num_queued else data[self._send_without_waiting(data) :]
            if rest:
                self._num_queued += 1
                self._queue.put(rest)

    def messages(self) -> Iterator[Any]:
        """What comes in, until the other end is gone. Raises ValueError for an invalid message."""
        buffer = bytearray()
        while True:
            while len(buffer) >= _LENGTH.size:
                (size,) = _LENGTH.unpack_from(buffer)
                if size > _MAX_BYTES:
                    raise ValueError(f"a message of {size} bytes; at most {_MAX_BYTES} are allowed")
                end = _LENGTH.size + size
                if len(buffer) < end:
                    break
                message = unpack(bytes(buffer[_LENGTH.size : end]))
                del buffer[:end]
                yield message
            try:
                data = self._socket.recv(_CHUNK)
            except OSError:
                return
            if not data:
                return
            buffer += data

    def close(self) -> None:
        """Send what still waits, and hang up."""
        self._queue.put(None)
        if threading.current_thread() is not self._sender:
            self._sender.join(timeout=5)
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        with self._lock:  # so that nothing is sent to a reused file descriptor
            self._socket.close()

    def _send_without_waiting(self, data: bytes) -> int:
        """How many of these bytes were sent without waiting; 0 also where the other end is gone,
        which the sending thread then notices."""
        count: int = _send(self._socket.fileno(), data, len(data), socket.MSG_DONTWAIT)
        return max(0, count)

    def _send_all(self) -> None:
        while (data := self._queue.get()) is not None:
            parts = [data]
            is_last = False
            while not self._queue.empty():
                more = self._queue.get()
                if more is None:
                    is_last = True
                    break
                parts.append(more)
            try:
                self._socket.sendall(b"".join(parts))
            except OSError:
                return
            if is_last:
                return
            if self._sends_directly:
                with self._lock:
                    self._num_queued -= len(parts)


def _exit_with_parent(parent: int) -> None:
    """End this process once its parent is gone."""
    while os.getppid() == parent:
        time.sleep(_CHECK_INTERVAL)
    os._exit(1)
