"""A `forkroot serve` beside a benchmark: started on a free port, queried, and ended."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from forkroot.benchmarks.common.processes import (
    command_of,
    cpu_seconds,
    family,
    memory_bytes,
    oldest_first,
)

SLOTS = 32_768
_GAUGE = re.compile(r"^forkroot_(\w+) (\S+)$", re.MULTILINE)
QUIET = ("requests_open", "calls_open", "running", "waiting", "locked_slots")


@dataclass(frozen=True, slots=True)
class Served:
    """A server at work. log: what it writes to its standard error. admin_key: "" for none."""

    process: subprocess.Popen[str]
    url: str
    log: IO[str]
    admin_key: str = ""

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        parts = urlsplit(self.url)
        return parts.hostname or "", parts.port or 0

    @property
    def engine(self) -> int:
        """The process id of its engine."""
        return self.processes("core.child")[0]

    def processes(self, module: str) -> list[int]:
        """The ids of its processes that run this module of the package, the oldest first."""
        found = [pid for pid in family(self.process.pid) if module in command_of(pid)]
        return oldest_first(found)

    def memory_mb(self) -> float:
        """Memory of all its processes."""
        return round(memory_bytes(self.process.pid) / 1e6, 1)

    def cpu(self) -> dict[str, float]:
        """Processor seconds so far of the server itself and of its engine."""
        taken = cpu_seconds(self.process.pid)
        return {"server": taken[self.process.pid], "engine": taken[self.engine]}

    def sockets(self) -> int:
        """Sockets that its own process holds."""
        found = 0
        for path in Path(f"/proc/{self.process.pid}/fd").iterdir():
            with suppress(OSError):
                found += os.readlink(path).startswith("socket:")
        return found

    def tasks(self) -> list[str]:
        """Its asyncio tasks at work; only of a watched one."""
        assert self.process.stdout is not None
        self.process.send_signal(signal.SIGUSR1)
        found: list[str] = json.loads(self.process.stdout.readline())
        return found

    def ask(
        self, method: str, path: str, body: Any = None, timeout: float = 30.0
    ) -> tuple[int, bytes]:
        """A plain request, as an admin. Raises OSError where nobody answers."""
        line = HTTPConnection(*self.address, timeout=timeout)
        headers = {"Content-Type": "application/json"}
        if self.admin_key:
            headers["Authorization"] = f"Bearer {self.admin_key}"
        try:
            line.request(method, path, None if body is None else json.dumps(body), headers)
            response = line.getresponse()
            return response.status, response.read()
        finally:
            line.close()

    def metrics(self) -> dict[str, float]:
        """Its metrics without labels."""
        _, page = self.ask("GET", "/metrics")
        return {name: float(value) for name, value in _GAUGE.findall(page.decode())}

    def quiet_after(self, seconds: float = 20.0) -> float | None:
        """Seconds until nothing was at work; None where that took longer than allowed."""
        start = time.perf_counter()
        while time.perf_counter() - start < seconds:
            found = self.metrics()
            if not any(found[name] for name in QUIET):
                return round(time.perf_counter() - start, 3)
            time.sleep(0.02)
        return None


@contextmanager
def serving(
    *options: str,
    is_watched: bool = False,
    admin_key: str = "",
    num_slots: int = SLOTS,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Served]:
    """A server of the embedded model; gone at the end, with its engine. environment: variables
    beside those of this process."""
    runs = [str(Path(__file__).parent / "server_watched.py")] if is_watched else ["-m", "forkroot"]
    command = [sys.executable, *runs, "serve", "--port", "0", "--set", f"num_slots={num_slots}"]
    command += ["--admin-key", admin_key] if admin_key else []
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            [*command, *options],
            env={**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})},
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        assert process.stdout is not None
        members: list[int] = []
        try:
            url = process.stdout.readline().strip()
            members = family(process.pid)
            if not url:
                log.seek(0)
                raise RuntimeError(f"the server did not start: {log.read()[-2000:]}")
            yield Served(process, url, log, admin_key)
        finally:
            _end(process, members)


def _end(process: subprocess.Popen[str], members: list[int]) -> None:
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(10)
    for pid in members:
        if "forkroot" in command_of(pid) or "core.child" in command_of(pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    process.communicate()
