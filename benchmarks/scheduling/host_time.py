"""How long the host's thread works for a decode step, with a device that takes no time.

The engine is the ordinary one, with overlap; each launched batch samples the same tokens, by what a
GPU's runner does on the host: sampling parameters become arrays, results are read. Kernel launches
and the plans of attention are not in it. Prints one JSON row: microseconds of the thread's
processor time for a step, medians, by the kind of call.
"""

from __future__ import annotations

import cProfile
import pstats
from collections.abc import Mapping
from dataclasses import replace
from statistics import median
from time import thread_time_ns
from typing import Any

import torch

from forkroot.benchmarks.common.fake_runner import byte_tokenizer
from forkroot.benchmarks.common.report import parser, report
from forkroot.core.api.batch import Batch, Outcome, SamplingParams
from forkroot.core.api.config import EngineConfig
from forkroot.core.api.protocol import Call, Sampling, Tokens
from forkroot.core.api.reply import Mailbox
from forkroot.core.assembly import build_engine
from forkroot.core.engine.engine import Engine
from forkroot.core.engine.input import InputProcessor
from forkroot.core.model.sampling.device_sampler import sample_on_device
from forkroot.core.model.sampling.fetch import Fetch

BATCH, PROMPT_LEN, NUM_STEPS, VOCABULARY, TOKEN = 256, 500, 300, 257, 65
CALLS: Mapping[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "greedy": ({"temperature": 0.0}, {}),
    "sampled": ({"temperature": 1.0, "seed": 1}, {}),
    "top_p 0.9": ({"temperature": 1.0, "seed": 1, "top_p": 0.9}, {}),
    "greedy, streamed": ({"temperature": 0.0}, {"stream": True}),
    "sampled, streamed": ({"temperature": 1.0, "seed": 1}, {"stream": True}),
    "greedy, stop string": ({"temperature": 0.0, "stop": ("stop",)}, {}),
    "sampled, penalty": ({"temperature": 1.0, "seed": 1, "presence_penalty": 0.5}, {}),
    "greedy, logprobs": ({"temperature": 0.0, "logprobs": 0}, {}),
}


class IdleDevice:
    """A `Launcher` whose every sample is the same token."""

    def __init__(self) -> None:
        self._logits = torch.zeros(BATCH, VOCABULARY)
        self._tokens = torch.full((BATCH,), TOKEN, dtype=torch.int32)

    def run(self, batch: Batch) -> Outcome:
        """As `Runner.run`."""
        launched = self.launch(batch)
        launched.sample(batch.sampling_params)
        return launched.result()

    def launch(self, batch: Batch) -> IdleBatch:
        """As `Launcher.launch`."""
        return IdleBatch(self)

    def samples(self, logits: torch.Tensor, *settings: torch.Tensor) -> torch.Tensor:
        """As `DeviceSampler`."""
        return self._tokens[: len(logits)]

    def sample(self, params: tuple[SamplingParams, ...]) -> Any:
        """What gives the samples."""
        fetch = Fetch(self._logits.device)
        return sample_on_device(self._logits[: len(params)], params, self.samples, fetch).result


class IdleBatch:
    """The `InFlightBatch` of an idle device."""

    def __init__(self, device: IdleDevice) -> None:
        self._device = device

    def sample(self, params: tuple[SamplingParams, ...]) -> None:
        """As `InFlightBatch.sample`."""
        self._read = self._device.sample(params) if params else None

    def result(self) -> Outcome:
        """As `InFlightBatch.result`."""
        found = self._device.sample(())() if self._read is None else self._read()
        return Outcome(found.tokens, found.logprobs, found.tops, log_masses=found.log_masses)


def engine_with(sampling: dict[str, Any], call: dict[str, Any]) -> Engine:
    """An engine in which calls of a kind decode, nothing of them shared."""
    num_slots = BATCH * (PROMPT_LEN + NUM_STEPS + 2)
    sizes = {"num_slots": num_slots, "context_len": 4096, "max_running": BATCH}
    config = EngineConfig.from_settings({**sizes, "chunk_tokens": 1 << 20, "overlap": True})
    tokenizer = byte_tokenizer()
    engine, _ = build_engine(config, tokenizer, IdleDevice())
    input_processor = InputProcessor(tokenizer, 4096, num_slots, VOCABULARY, frozenset())
    full = Sampling(max_tokens=NUM_STEPS, ignore_eos=True, **sampling)
    for index in range(BATCH):
        prompt = Tokens((index, *range(1, PROMPT_LEN // 2), *range(PROMPT_LEN // 2)))
        one = Call((prompt,), replace(full, seed=index) if full.temperature else full, **call)
        engine.admit(input_processor.job(one, Mailbox(one)))
    return engine


def measure(sampling: dict[str, Any], call: dict[str, Any]) -> float:
    """Microseconds of a step in which all sequences decode."""
    engine, times = engine_with(sampling, call), []
    while engine.has_work:
        started = thread_time_ns()
        engine.step()
        times.append(thread_time_ns() - started)
    assert engine.counters.completion_tokens == BATCH * NUM_STEPS
    return round(median(times[20:-20]) / 1000, 1)


def profile(sampling: dict[str, Any], call: dict[str, Any]) -> None:
    """Print where the time of such steps goes; the profiler adds its own."""
    engine, profiler = engine_with(sampling, call), cProfile.Profile()
    for _ in range(20):
        engine.step()
    for _ in range(NUM_STEPS - 40):
        profiler.runcall(engine.step)
    pstats.Stats(profiler).strip_dirs().sort_stats("tottime").print_stats(40)


def main() -> None:
    """Measure and print the row."""
    options = parser(__doc__)
    options.add_argument("--repeats", type=int, default=3)
    options.add_argument("--profile", choices=CALLS, help="print a profile of this kind instead")
    args = options.parse_args()
    torch.set_num_threads(1)
    if args.profile:
        profile(*CALLS[args.profile])
        return
    runs = [{name: measure(*kind) for name, kind in CALLS.items()} for _ in range(args.repeats)]
    best = {name: min(run[name] for run in runs) for name in CALLS}
    figures = {"batch": BATCH, "microseconds": best}
    report("host_time", figures, args.out, seed=args.seed, clock=thread_time_ns.__name__)


if __name__ == "__main__":
    main()
