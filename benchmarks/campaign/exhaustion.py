"""Disks that are full, memory and descriptors that run out.

The file of the host tier is made in programs of their own, under a limit on the size of files, on a
small full file system (where the machine lets an ordinary user mount one) and over files that are
there already. The server is given little memory, and few descriptors, while it serves.
"""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from forkroot.benchmarks.campaign.legal import COMPLETION
from forkroot.benchmarks.campaign.runner import Bars, Plan, Verdict
from forkroot.benchmarks.common.processes import family
from forkroot.benchmarks.server.server_child import Served, serving
from forkroot.benchmarks.server.server_client import Line, request

_SECONDS = 40.0  # for a program
_SMALL = 1 << 20  # bytes that a file may have
_ROOM = 384 << 20  # bytes of address space that a server may still take
_DESCRIPTORS, _CONNECTIONS = 80, 200
_BODIES = 12
_USES_HOST = """
import resource, sys
sys.argv[1:2] and resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2)
from pathlib import Path
from forkroot import connect
from forkroot.core.api.protocol import Call, ForkrootError, Sampling, Text
try:
    backend = connect("tiny", num_slots=512, host_slots=int(sys.argv[2]), host_file=sys.argv[3])
except (ForkrootError, OSError) as error:
    print(f"{type(error).__name__}: {error}")
    sys.exit(3)
with backend:
    if sys.argv[4:]:
        with open(sys.argv[4], "wb", buffering=0) as filler:
            try:
                while filler.write(bytes(1 << 16)):
                    pass
            except OSError:
                pass
    for i in range(12):
        text = " ".join(f"{i} {j}" for j in range(60))
        backend.submit(Call((Text(text),), Sampling(max_tokens=2))).result(30)
print("answered")
"""


def run(plan: Plan) -> Verdict:
    """All cases, one after another."""
    bars = Bars()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _over_a_file(bars, folder)
        _over_a_fifo(bars, folder)
        _limited_files(bars, folder)
        _full_file_system(bars, folder)
    with serving(num_slots=8192) as served:
        expected = _answer(served)
        _few_descriptors(served, bars, expected)
        _little_memory(served, bars, expected)
    return bars.verdict("exhaustion")


def _program(
    host_file: Path,
    *more: str,
    limit: int = resource.RLIM_INFINITY,
    slots: int = 4096,
    prefix: tuple[str, ...] = (),
) -> tuple[int | None, str]:
    """The exit code of a program that uses a host tier in this file, negative for a signal and None
    for a hang; and its last line."""
    command = [*prefix, sys.executable, "-c", _USES_HOST, str(limit), str(slots), str(host_file)]
    process = subprocess.Popen(
        [*command, *more], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        out, _ = process.communicate(timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return None, "a hang"
    return process.returncode, (out.strip().splitlines() or [""])[-1][:200]


def _over_a_file(bars: Bars, folder: Path) -> None:
    """A file that is there keeps its content, and the program says so."""
    path = folder / "valuable"
    path.write_bytes(b"valuable")
    code, line = _program(path)
    is_there = path.exists() and path.read_bytes() == b"valuable"
    bars.note(over_a_file=line)
    bars.equal("over_a_file_exit", code, 3)
    bars.equal("over_a_file_content_is_kept", is_there, True)


def _over_a_fifo(bars: Bars, folder: Path) -> None:
    path = folder / "fifo"
    os.mkfifo(path)
    code, line = _program(path)
    bars.note(over_a_fifo=line)
    bars.equal("over_a_fifo_exit", code, 3)


def _limited_files(bars: Bars, folder: Path) -> None:
    """Where files may not be as large as the tier: a typed error, no signal, and no file."""
    path = folder / "limited"
    code, line = _program(path, limit=_SMALL)
    bars.note(limited_files=line)
    bars.equal("limited_files_exit", code, 3)
    bars.equal("limited_files_left", path.exists(), False)


def _full_file_system(bars: Bars, folder: Path) -> None:
    """A file system that others fill after the start: calls are answered, as its room was taken."""
    mounted = folder / "mounted"
    mounted.mkdir()
    prefix = (
        "unshare",
        "-rm",
        "sh",
        "-c",
        f'mount -t tmpfs -o size=96m tmpfs {mounted} && exec "$@"',
        "sh",
    )
    try:
        is_possible = subprocess.run([*prefix, "true"], capture_output=True).returncode == 0
    except OSError:
        is_possible = False
    if not is_possible:
        bars.note(full_file_system="not tried: no file system may be mounted here")
        return
    filler = str(mounted / "filler")
    code, line = _program(mounted / "host", filler, prefix=prefix)
    bars.note(full_file_system=line)
    bars.equal("full_file_system_exit", code, 0)


def _few_descriptors(served: Served, bars: Bars, expected: str) -> None:
    """More connections than descriptors: few lines in the log, and service when they are gone."""
    served.log.seek(0, os.SEEK_END)
    begin, start = served.log.tell(), time.monotonic()
    lines: list[socket.socket] = []
    with _limited([served.process.pid], resource.RLIMIT_NOFILE, lambda pid: _DESCRIPTORS):
        for _ in range(_CONNECTIONS):
            line = socket.socket()
            line.settimeout(2.0)
            with suppress(OSError):
                line.connect(served.address)
            lines.append(line)
        time.sleep(2.5)
    for line in lines:
        line.close()
    back = _back_after(served, expected)
    seconds = time.monotonic() - start
    served.log.seek(begin)
    text = served.log.read()
    num = sum("Too many open files" in it or "accept" in it for it in text.splitlines())
    bars.at_most("descriptors_log_lines", num, 2 * (1 + seconds))
    bars.at_most("descriptors_log_kb", round(len(text) / 1000, 1), 50.0)
    bars.at_most("descriptors_back_s", back, 10.0)


def _little_memory(served: Served, bars: Bars, expected: str) -> None:
    """Large bodies while the server has little memory left; then it answers as before."""
    pids = family(served.process.pid)
    with _limited(pids, resource.RLIMIT_AS, lambda pid: _address_space(pid) + _ROOM):
        statuses = asyncio.run(_large_bodies(served))
    bars.note(little_memory_statuses=sorted(statuses))
    bars.equal("little_memory_hangs", statuses.count(-1), 0)
    bars.at_most("little_memory_back_s", _back_after(served, expected), 10.0)
    bars.at_most(
        "little_memory_quiet_s",
        served.quiet_after() if served.process.poll() is None else None,
        10.0,
    )


async def _large_bodies(served: Served) -> list[int]:
    """Several legal ones at a time that take much memory: the status of each; 0 for a connection
    that was closed, -1 for a hang."""

    async def one(number: int) -> int:
        body = {"prompt": [[number % 100 + 300] * 100] * 200, "max_tokens": 1}
        body |= {"user": "x" * (8 << 20)}
        try:
            line = await Line.to(served.address)
        except OSError:
            return 0
        try:
            answer = await asyncio.wait_for(line.ask(request(COMPLETION, body)), 30)
            return answer.status
        except TimeoutError:
            return -1
        except ConnectionError:
            return 0
        finally:
            line.close()

    return list(await asyncio.gather(*map(one, range(_BODIES))))


@contextmanager
def _limited(pids: list[int], kind: int, limit: Callable[[int], int]) -> Iterator[None]:
    """A lower limit for these processes for a while."""
    before: dict[int, tuple[int, int]] = {}
    for pid in pids:
        with suppress(ProcessLookupError):
            before[pid] = resource.prlimit(pid, kind)
            resource.prlimit(pid, kind, (limit(pid), before[pid][1]))
    try:
        yield
    finally:
        for pid, limits in before.items():
            with suppress(ProcessLookupError):
                resource.prlimit(pid, kind, limits)


def _address_space(pid: int) -> int:
    pages = Path(f"/proc/{pid}/statm").read_text().split()[0]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def _answer(served: Served) -> str:
    body: dict[str, Any] = {"prompt": "Once upon a time", "max_tokens": 8, "temperature": 0}
    status, data = served.ask("POST", COMPLETION, body, timeout=5)
    if status != 200:
        raise OSError(f"{status} {data[-200:]!r}")
    return str(data.partition(b'"text":')[2].partition(b'"logprobs"')[0])


def _back_after(served: Served, expected: str) -> float | None:
    """Seconds until it answers as before; None for never."""
    start = time.monotonic()
    while time.monotonic() < start + 15:
        with suppress(OSError):
            if _answer(served) == expected:
                return round(time.monotonic() - start, 2)
        time.sleep(0.1)
    return None
