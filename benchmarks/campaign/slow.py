"""Clients that are slow on purpose: half-sent headers, bodies byte by byte, streams nobody reads.

The server must close the first two kinds within its limits (10 s), stay as fast for a neighbour,
and hold nothing of any of them afterwards.
"""

from __future__ import annotations

import random
import socket
import time
from contextlib import suppress

from forkroot.benchmarks.campaign.legal import CHAT
from forkroot.benchmarks.campaign.neighbour import neighbour
from forkroot.benchmarks.campaign.runner import Bars, Plan, Verdict
from forkroot.benchmarks.server.server_child import Served, serving
from forkroot.benchmarks.server.server_client import request

LIMIT = 10.0  # seconds that headers and bodies may take
_SLACK = 2.0
_OF_EACH, _OF_EACH_FULL = 40, 200
_READERS = 8
_SECONDS_TO_WARM, _SECONDS_ALONE = 1.5, 2.0
_LONG = {"max_tokens": 1900, "ignore_eos": True, "stream": True, "temperature": 0}


def run(plan: Plan) -> Verdict:
    """All three kinds at once; a neighbour is timed before and meanwhile."""
    bars, chance = Bars(), random.Random(plan.seed)
    num = _OF_EACH_FULL if plan.is_full else _OF_EACH
    with serving(num_slots=_READERS * 2048 + 4096) as served:
        served.quiet_after()
        sockets = served.sockets()
        with neighbour(served) as other:
            time.sleep(_SECONDS_TO_WARM)
            begin = time.monotonic()
            time.sleep(_SECONDS_ALONE)
            start = time.monotonic()
            headers, bodies = _half_sent(served, num), _slow_bodies(served, num)
            closed = _closed(headers, bodies, chance)
            window = start, time.monotonic()
            for kind, it in closed.items():
                bars.equal(f"{kind}_closed", it[0], num)
                bars.at_most(f"{kind}_last_closed_s", it[1], LIMIT + _SLACK)
            _read_slowly(served, bars)
        bars.note(p99_alone_ms=other.p99_ms("call", (begin, start)))
        ratio = other.p99_ms("call", window) / other.p99_ms("call", (begin, start))
        bars.at_most("p99_ratio", round(ratio, 2), 2.0)
        bars.at_most("stall_ms", other.worst_ms("health", *window), 250.0)
        bars.at_most("quiet_after_s", served.quiet_after(), 10.0)
        time.sleep(0.5)
        bars.at_most("sockets_left", served.sockets() - sockets, 2)
        bars.equal("slots_leaked", _leaked(served), 0)
    return bars.verdict("slow")


def _half_sent(served: Served, num: int) -> list[socket.socket]:
    """Connections with a request's first line, and no end of its headers."""
    found = [socket.create_connection(served.address) for _ in range(num)]
    for line in found:
        line.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nX-Slow: ")
    return found


def _slow_bodies(served: Served, num: int) -> list[socket.socket]:
    """Connections with whole headers, and a body of which little has come."""
    found = [socket.create_connection(served.address) for _ in range(num)]
    for line in found:
        line.sendall(request(CHAT, b"{" + b" " * 4000)[:-3900])
    return found


def _closed(
    headers: list[socket.socket], bodies: list[socket.socket], chance: random.Random
) -> dict[str, tuple[int, float | None]]:
    """How many of each kind the server has closed or answered, and when the last; a byte is sent on
    each connection now and then."""
    start = time.monotonic()
    closed: dict[str, dict[socket.socket, float]] = {"headers": {}, "bodies": {}}
    kinds = {"headers": headers, "bodies": bodies}
    while time.monotonic() < start + LIMIT + _SLACK:
        for kind, lines in kinds.items():
            for line in lines:
                if line not in closed[kind] and _is_closed(line, chance.random() < 0.2):
                    closed[kind][line] = time.monotonic() - start
        if all(len(closed[kind]) == len(lines) for kind, lines in kinds.items()):
            break
        time.sleep(0.2)
    for line in (*headers, *bodies):
        line.close()
    return {
        kind: (len(found), round(max(found.values()), 2) if found else None)
        for kind, found in closed.items()
    }


def _is_closed(line: socket.socket, sends: bool) -> bool:
    """Whether the server has ended a connection, by a close or an answer."""
    line.setblocking(False)
    try:
        if sends:
            line.send(b" ")
        line.recv(4096)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def _read_slowly(served: Served, bars: Bars) -> None:
    """Streams that nobody reads, with small buffers; the server's memory must not hold much more
    than the streams are long, and all goes when they hang up."""
    before = served.memory_mb()
    lines = []
    for number in range(_READERS):
        line = socket.socket()
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        line.connect(served.address)
        line.sendall(
            request(CHAT, {"messages": [{"role": "user", "content": f"Tell {number}"}]} | _LONG)
        )
        lines.append(line)
    end = time.monotonic() + 4
    while time.monotonic() < end and served.metrics()["running"] > 1:
        time.sleep(0.1)
    bars.at_most("unread_streams_memory_ratio", round(served.memory_mb() / before, 3), 1.10)
    for line in lines:
        with suppress(OSError):
            line.close()


def _leaked(served: Served) -> int:
    found = served.metrics()
    return int(found["slots"] - found["free_slots"] - found["cached_slots"])
