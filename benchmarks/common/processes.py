"""Servers beside a benchmark: started, waited for, put to sleep, and ended with all their children.

Reads /proc: Linux only.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path

_TICK = os.sysconf("SC_CLK_TCK")


def end_on_sigterm() -> None:
    """Let SIGTERM end this process as `sys.exit` does, so that what it started ends with it."""

    def end(*_: object) -> None:
        raise SystemExit(128 + signal.SIGTERM)

    signal.signal(signal.SIGTERM, end)


def cpu_seconds(pid: int) -> dict[int, float]:
    """Processor time of a process and of each that it started."""
    return {member: _ticks(member) / _TICK for member in family(pid)}


def family(pid: int) -> list[int]:
    """A process and its descendants."""
    parents = {int(path.name): _fields(int(path.name)) for path in Path("/proc").glob("[0-9]*")}
    found = [pid]
    for member in found:
        found += [other for other, fields in parents.items() if fields and int(fields[1]) == member]
    return found


def oldest_first(pids: Iterable[int]) -> list[int]:
    """These processes in the order in which they were started; without those that are gone."""
    known = {pid: _fields(pid) for pid in pids}
    return sorted((pid for pid in known if known[pid]), key=lambda pid: int(known[pid][19]))


def _fields(pid: int) -> list[str]:
    """Of /proc/pid/stat, from the state on; empty for a process that is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _ticks(pid: int) -> int:
    """User and system time, with that of children that have ended."""
    return sum(map(int, _fields(pid)[11:15]))


def command_of(pid: int) -> str:
    """The command line of a process; empty for one that has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
    except OSError:
        return ""


def memory_bytes(pid: int) -> int:
    """Memory in use by a process and its descendants; shared pages count for each."""
    return sum(_memory_of(member) for member in family(pid))


def _memory_of(pid: int) -> int:
    try:
        pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    except (OSError, IndexError):
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def sleep(pid: int) -> None:
    """Let a family rest: an idle server that polls takes nothing from its neighbours."""
    _signal(pid, signal.SIGSTOP)


def wake(pid: int) -> None:
    """Let it go on."""
    _signal(pid, signal.SIGCONT)


def _signal(pid: int, number: signal.Signals) -> None:
    for member in family(pid):
        with suppress(ProcessLookupError):
            os.kill(member, number)


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextmanager
def server(
    command: Sequence[str], environment: Mapping[str, str], port: int, log: Path
) -> Iterator[int]:
    """The process id of a server that answers on /health; at the end all its family is gone.

    Raises RuntimeError, with the end of its log, where it does not come up.
    """
    with log.open("wb") as out:
        process = subprocess.Popen(
            command,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        _wait(process, port, log)
        yield process.pid
    finally:
        _end(process)


def _wait(process: subprocess.Popen[bytes], port: int, log: Path, seconds: float = 300) -> None:
    deadline = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < deadline:
        if _is_healthy(port):
            return
        time.sleep(0.5)
    raise RuntimeError(f"{process.args!r} did not come up:\n{log.read_text()[-3000:]}")


def _is_healthy(port: int) -> bool:
    line = HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        line.request("GET", "/health")
        return line.getresponse().status == 200
    except (OSError, HTTPException):
        return False
    finally:
        line.close()


def _end(process: subprocess.Popen[bytes]) -> None:
    members = family(process.pid)
    wake(process.pid)
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(15)
    for member in members:
        with suppress(ProcessLookupError):
            os.kill(member, signal.SIGKILL)
    process.wait()
