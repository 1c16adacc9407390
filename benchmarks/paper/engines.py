"""The engines of a run: ours in its modes, the baseline, and peers over the OpenAI wire.

Each is started when it is first used and closed at the end of the run; servers sleep while they are
not measured.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from subprocess import SubprocessError
from types import MappingProxyType
from typing import Any

from forkroot.benchmarks.common.processes import cpu_seconds, sleep, wake
from forkroot.core.api.protocol import Backend
from forkroot.core.model.hub.folders import model_folder
from forkroot.core.text.tokenizer import Tokenizer

from .figure import Settings
from .serial import Serial

NUM_SLOTS = 32_768
AT_ONCE = 8
ALL = frozenset({"regex", "json", "choice", "score", "cached", "images"})
OURS = "ours"
BASELINE = "baseline"
MODES: Mapping[str, dict[str, Any]] = MappingProxyType(
    {
        OURS: {},
        "nothing": {"cache": False, "hints": False, "jumps": False},
        "no hints": {"hints": False},
        "fcfs": {"order": "fcfs"},
        "random": {"order": "random"},
        "no cache": {"cache": False},
        "no jumps": {"jumps": False},
    }
)


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine that runs. features: of ALL. hints: whether programs send fork hints.
    is_serial: one call of a program at a time. pid: of its process; None: this one."""

    name: str
    backend: Any
    features: frozenset[str]
    hints: bool = False
    is_serial: bool = False
    pid: int | None = None

    def can_run(self, needs: frozenset[str]) -> bool:
        """Whether it has these features."""
        return needs <= self.features

    @contextmanager
    def awake(self) -> Iterator[None]:
        """Measured from an empty cache, if it can be emptied."""
        if self.pid is not None:
            wake(self.pid)
        clear = getattr(self.backend, "clear_cache", None)
        if clear is not None:
            clear()
        try:
            yield
        finally:
            if self.pid is not None:
                sleep(self.pid)

    def cpu(self) -> float:
        """Seconds of processor time so far, of this process and of the engine's."""
        others = 0.0 if self.pid is None else sum(cpu_seconds(self.pid).values())
        return time.process_time() + others

    def for_program(self) -> Backend:
        """The backend as one run of a program has it."""
        backend: Backend = Serial(self.backend) if self.is_serial else self.backend
        return backend


class Engines:
    """All engines that the steps of a run have used so far."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._stack = ExitStack()
        self._engines: dict[str, Engine] = {}
        self._refused: dict[str, str] = {}

    def __enter__(self) -> Engines:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all engines."""
        self._engines.clear()
        self._stack.close()
        self._stack = ExitStack()

    def ours(self, mode: str = OURS, **settings: Any) -> Engine:
        """Ours in this process. mode: of MODES."""
        name = mode + "".join(f", {key}={value}" for key, value in sorted(settings.items()))
        if name not in self._engines:
            from forkroot.core.local import LocalBackend

            options = {"num_slots": NUM_SLOTS, "device": self.settings.device, **MODES[mode]}
            if self.settings.device == "cpu":
                options["dtype"] = "float32"
            import torch

            torch.set_num_threads(self.settings.threads)
            backend = LocalBackend.from_folder(self.settings.model, **{**options, **settings})
            self._stack.callback(backend.close)
            hints = MODES[mode].get("hints", True)
            self._engines[name] = Engine(mode, backend, ALL - {"images"}, hints)
        return self._engines[name]

    def baseline(self) -> Engine:
        """transformers, one call after another."""
        if BASELINE not in self._engines:
            from .baseline import Baseline

            backend = Baseline(self.settings.model, self.settings.threads)
            self._stack.callback(backend.close)
            self._engines[BASELINE] = Engine(BASELINE, backend, frozenset({"score"}))
        return self._engines[BASELINE]

    def peer(self, name: str) -> Engine | str:
        """A peer by name, such as "vllm" or "vllm bfloat16"; or why it is not here."""
        if name in self._refused:
            return self._refused[name]
        if name not in self._engines:
            try:
                self._engines[name] = self._start(name)
            except (OSError, RuntimeError, SubprocessError, StopIteration) as error:
                last = str(error).strip().splitlines()[-1:] or [type(error).__name__]
                self._refused[name] = f"not started: {last[0][:200]}"
                return self._refused[name]
        return self._engines[name]

    def tokenizer(self) -> Tokenizer:
        """That of the model."""
        return Tokenizer.from_folder(model_folder(self.settings.model))

    def _start(self, name: str) -> Engine:
        from forkroot.benchmarks.common.remote import DIALECTS, Remote
        from forkroot.benchmarks.peers.peer_servers import PEERS
        from forkroot.benchmarks.peers.peers import theirs

        kind, _, dtype = name.partition(" ")
        url, model = self.settings.peers.get(kind, ""), model_folder(self.settings.model)
        if url:
            dialect = DIALECTS.get("vllm" if kind == "sglang" else kind, DIALECTS["plain"])
            backend = Remote(url, str(model), self.tokenizer(), dialect)
            self._stack.callback(backend.close)
            return Engine(name, backend, dialect.features)
        if kind not in PEERS:
            raise RuntimeError(f"nothing here starts it; run it and pass --peers {kind}=URL")
        folder = self.settings.peers_folder
        started = theirs(kind, model, folder, AT_ONCE, dtype or "float32")
        running = self._stack.enter_context(started)
        return Engine(name, running.backend, running.features, pid=running.pid)
