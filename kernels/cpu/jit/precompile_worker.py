"""A worker of `precompile`: compiles the loops that it is sent into numba's cache. Ends when its
parent has closed the pipe or is gone, also amid a loop."""

from __future__ import annotations

import json
import os
import queue
import select
import threading

from .code_cache import is_cached
from .features import fingerprint
from .loops import Loop
from .precompile import compiler_of

_SECONDS_BETWEEN_LOOKS = 1.0


def main() -> None:
    """Compile a loop for each line on stdin, a JSON list of a `Loop`'s fields, and answer each by a
    line on stdout: "done" when it is in the cache, or "failed". The first line is "ready" and
    the processor that code is made for."""
    lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(lines, os.getppid()), daemon=True).start()
    print("ready", fingerprint(), flush=True)
    while True:
        print("done" if _compile(Loop(*json.loads(lines.get()))) else "failed", flush=True)


def _read(lines: queue.SimpleQueue[bytes], parent: int) -> None:
    """Pass on whole lines until there are no more. A fork of the parent may keep the pipe open."""
    rest = b""
    while os.getppid() == parent:
        if select.select([0], [], [], _SECONDS_BETWEEN_LOOKS)[0]:
            data = os.read(0, 1 << 16)
            if not data:
                break
            *whole, rest = (rest + data).split(b"\n")
            for line in whole:
                lines.put(line)
    os._exit(0)


def _compile(loop: Loop) -> bool:
    """Whether the loop is in the cache now. Another process may have put it there meanwhile."""
    compiler, signature = compiler_of(loop)
    if not is_cached(compiler, signature):
        compiler.compile(*([signature] if loop.signature else []))
        compiler, signature = compiler_of(loop)
    return is_cached(compiler, signature)
