"""A replica is killed again and again under streams: what becomes of every call.

Replicas in child processes, which are started again when they die, answer streamed greedy calls,
so many at a time. Each kill (SIGKILL) takes one replica in turn while calls are open there. Every
call must end once; one of which nothing was delivered must be answered, with the text that was
there before any kill; one of which a part was delivered may end in EngineDied.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import forkroot
from forkroot.adapters.router.router import Router
from forkroot.benchmarks.common.report import parser, report
from forkroot.core.api.protocol import Backend, Call, EngineDied, Reply, Sampling, Text
from forkroot.core.model.hub.folders import model_folder
from forkroot.core.process.supervisor import Backoff, RestartingBackend, WarmEngines

_WORDS = ("river", "stone", "lamp", "garden", "letter", "window", "horse", "winter", "music")
_SECONDS_TO_RETURN = 120.0


class Streams:
    """So many streamed calls at a time, and how each of them ended."""

    def __init__(self, backend: Router, prompts: list[str], length: int) -> None:
        self._backend, self._prompts = backend, prompts
        self._sampling = Sampling(max_tokens=length, temperature=0.0, ignore_eos=True)
        self._lock = threading.Lock()
        self._next = 0
        self._ends: list[int] = []
        self.expected: dict[str, str] = {}
        self.outcomes: Counter[str] = Counter()
        self.is_stopped = False
        self.num_open = 0

    def learn(self) -> None:
        """The text of every prompt, before anything is killed."""
        replies = {prompt: self._backend.submit(self._call(prompt)) for prompt in self._prompts}
        self.expected = {prompt: reply.result().text for prompt, reply in replies.items()}

    def start(self, count: int) -> None:
        """So many calls, and another one whenever one ends."""
        for _ in range(count):
            self._send()

    def _call(self, prompt: str) -> Call:
        return Call((Text(prompt),), self._sampling, stream=True)

    def _send(self) -> None:
        with self._lock:
            if self.is_stopped:
                return
            number = self._next
            self._next += 1
            self._ends.append(0)
            self.num_open += 1
        prompt = self._prompts[number % len(self._prompts)]
        reply = self._backend.submit(self._call(prompt))
        reply.when_done(lambda ended: self._note(number, prompt, ended))

    def _note(self, number: int, prompt: str, reply: Reply) -> None:
        with self._lock:
            self._ends[number] += 1
            self.num_open -= 1
            self.outcomes[self._outcome(prompt, reply)] += 1
        threading.Thread(target=self._send, daemon=True).start()

    def _outcome(self, prompt: str, reply: Reply) -> str:
        error, text = reply.error(), ""
        try:
            for chunk in reply:
                text += chunk.text
        except forkroot.ForkrootError:
            pass
        if error is None:
            whole = reply.result(0).text
            is_same = whole == self.expected[prompt] == text
            return "answered" if is_same else "another answer"
        if isinstance(error, EngineDied) and text and self.expected[prompt].startswith(text):
            return "broken off"
        return f"{type(error).__name__} after {text[:20]!r}" if text else f"lost: {error}"

    def finish(self) -> dict[str, Any]:
        """Wait for the last ones; how all of them ended."""
        self.is_stopped = True
        end = time.monotonic() + _SECONDS_TO_RETURN
        while self.num_open and time.monotonic() < end:
            time.sleep(0.05)
        ends = Counter(self._ends)
        return {
            "calls": len(self._ends),
            "never_ended": ends[0],
            "ended_twice": sum(count for times, count in ends.items() if times > 1),
            **self.outcomes,
        }


def wait_until(is_so: Callable[[], bool]) -> None:
    """Raises TimeoutError if it does not come to be so."""
    end = time.monotonic() + _SECONDS_TO_RETURN
    while not is_so():
        if time.monotonic() > end:
            raise TimeoutError("a replica did not come back")
        time.sleep(0.05)


def wait_until_ready(backend: Router, count: int) -> None:
    """Until so many replicas take calls. Raises TimeoutError."""
    wait_until(lambda: sum(view.state == "ready" for view in backend.replicas) >= count)


def replicas_of(num: int, settings: dict[str, Any]) -> dict[str, Backend]:
    """Engines as `connect(replicas=..., restart=True)` starts them, but that are started again
    however often they die within a minute."""
    folder, settings = model_folder("tiny"), {"engines": num, **settings}
    makers = [WarmEngines(folder, **settings) for _ in range(num)]
    forever = Backoff(settled=0.0)
    return {
        str(index): RestartingBackend(make, forever, release=make.close)
        for index, make in enumerate(makers)
    }


def run(num_replicas: int, num_kills: int, num_streams: int, length: int, seed: int) -> Any:
    """The kills; how all calls ended."""
    chance = random.Random(seed)
    roots = [" ".join(chance.choices(_WORDS, k=60)) for _ in range(8)]
    prompts = [f"{root} {chance.choice(_WORDS)} {n}" for n in range(5) for root in roots]
    settings: dict[str, Any] = {
        "num_slots": 20_000,
        "dtype": "float32",
        "deterministic": True,
        "max_running": 16,
    }
    settings |= {"hang_timeout": None}  # a busy machine
    with Router(replicas_of(num_replicas, settings), patience=_SECONDS_TO_RETURN) as backend:
        streams = Streams(backend, prompts, length)
        streams.learn()
        streams.start(num_streams)
        start = time.monotonic()
        for number in range(num_kills):
            wait_until_ready(backend, num_replicas)
            time.sleep(chance.uniform(0.1, 0.6))
            views = backend.replicas
            name = views[number % len(views)].name
            victim: Any = backend.fleet.named(name).backend
            pid = victim.engine_pid
            with suppress(ProcessLookupError):  # it has died by itself: that counts as well
                os.kill(pid, signal.SIGKILL)
            wait_until(lambda victim=victim, pid=pid: victim.engine_pid != pid)
            print(number, name, dict(streams.outcomes), flush=True)
        wait_until_ready(backend, num_replicas)
        seconds = time.monotonic() - start
        found = streams.finish()
        counters = backend.info().counters
        backend.check()
    return found | {"resent": counters["resent"], "seconds": round(seconds, 1)}


def main() -> None:
    """Kill and print the row."""
    options = parser(__doc__)
    options.add_argument("--replicas", type=int, default=2)
    options.add_argument("--kills", type=int, default=50)
    options.add_argument("--streams", type=int, default=100)
    options.add_argument("--length", type=int, default=32, help="tokens of an answer")
    args = options.parse_args()
    figures = run(args.replicas, args.kills, args.streams, args.length, args.seed)
    fixed = {"replicas": args.replicas, "kills": args.kills, "streams": args.streams}
    report("router_kills", figures, args.out, seed=args.seed, length=args.length, **fixed)


if __name__ == "__main__":
    main()
