"""Multiple choice as lm-evaluation-harness requests it: `/v1/completions` with `echo`, `logprobs` 1
and `max_tokens` 1, one prompt of token ids for each option, all behind the same 20 examples.

Two servers, one that keeps log-probabilities of cached tokens and one that keeps none, get the same
questions in turn: each question's four prompts one after another, as one request with a list, or as
four requests at once. Prints one JSON row. Of each way and server: seconds of processor time (of
server and engine) and wall clock, of the first question, and of each later one (medians); tokens
computed for a later question. `times`: how many times less the later questions, and all of them,
take with log-probabilities kept. `gap`: the largest difference between two log-probabilities of one
token.
"""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from forkroot.benchmarks.common.checkpoints import MODELS, STORED, make
from forkroot.benchmarks.common.programs import Ids, Maker
from forkroot.benchmarks.common.report import parser, report
from forkroot.benchmarks.server.server_child import Served, serving

SERVERS = {"kept": (), "none": ("--set", "logprob_bytes=0")}
WAYS = ("one by one", "as a list", "at once")
FIRST_TOKEN = 300


@dataclass(slots=True)
class Costs:
    """Of the questions so far, each: seconds of processor time and wall clock, tokens computed."""

    cpu: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)
    computed: list[float] = field(default_factory=list)

    def figures(self) -> dict[str, float]:
        """Of the first question, and of each later one."""
        return {
            "first_cpu": round(self.cpu[0], 3),
            "first_wall": round(self.wall[0], 3),
            "cpu": round(median(self.cpu[1:]), 3),
            "wall": round(median(self.wall[1:]), 3),
            "computed": median(self.computed[1:]),
        }


def post(served: Served, prompt: Any) -> list[list[float]]:
    """The log-probabilities of each prompt's tokens but the first, and of one token more."""
    body = {"prompt": prompt, "echo": True, "logprobs": 1, "max_tokens": 1, "temperature": 0}
    status, answer = served.ask("POST", "/v1/completions", body)
    if status != 200:
        raise RuntimeError(f"status={status}: {answer[:500]!r}")
    return [choice["logprobs"]["token_logprobs"][1:] for choice in json.loads(answer)["choices"]]


def ask(served: Served, prompts: list[Ids], way: str) -> list[list[float]]:
    """The log-probabilities of one question's prompts."""
    if way == "as a list":
        return post(served, prompts)
    with ThreadPoolExecutor(1 if way == "one by one" else len(prompts)) as pool:
        return [found for (found,) in pool.map(lambda prompt: post(served, prompt), prompts)]


def measured(served: Served, prompts: list[Ids], way: str, costs: Costs) -> list[list[float]]:
    """As `ask`; what it took is added to the costs."""
    before = served.metrics()["computed_tokens_total"]
    started, cpu = time.perf_counter(), sum(served.cpu().values())
    found = ask(served, prompts, way)
    costs.wall.append(time.perf_counter() - started)
    costs.cpu.append(sum(served.cpu().values()) - cpu)
    costs.computed.append(served.metrics()["computed_tokens_total"] - before)
    return found


def compare(servers: dict[str, Served], maker: Maker, way: str, num: int) -> dict[str, Any]:
    """One set of questions, put to both servers in turn."""
    shots, costs, gap = maker.ids(2000), {name: Costs() for name in servers}, 0.0
    for question in maker.texts(num, 30, 70):
        prompts = [shots + question + option for option in maker.texts(4, 5, 15)]
        found = {name: measured(servers[name], prompts, way, costs[name]) for name in servers}
        pairs = zip(*(chain.from_iterable(found[name]) for name in ("kept", "none")), strict=True)
        gap = max(gap, *(abs(one - other) for one, other in pairs))
    kept, none = costs["kept"], costs["none"]
    return {
        **{name: cost.figures() for name, cost in costs.items()},
        "times": {
            "cpu": round(median(none.cpu[1:]) / median(kept.cpu[1:]), 1),
            "wall": round(median(none.wall[1:]) / median(kept.wall[1:]), 1),
            "cpu_with_first": round(sum(none.cpu) / sum(kept.cpu), 1),
            "wall_with_first": round(sum(none.wall) / sum(kept.wall), 1),
        },
        "gap": gap,
    }


def main() -> None:
    """Run it on a checkpoint of random weights."""
    options = parser(__doc__)
    options.add_argument("--model", choices=MODELS, default="56m")
    options.add_argument("--stored", choices=STORED, default="bfloat16")
    options.add_argument("--questions", type=int, default=5)
    options.add_argument("--folder", type=Path, help="where the checkpoint is, or is made")
    given = options.parse_args()
    with TemporaryDirectory() as made:
        model = make(given.model, given.folder or Path(made), 0, given.stored)
        size = json.loads((model / "config.json").read_text())["vocab_size"]
        maker = Maker(range(FIRST_TOKEN, size), 1.0, given.seed)
        run = (str(model), "--set", "dtype=float32")
        with (
            serving(*run, *SERVERS["kept"]) as kept,
            serving(*run, *SERVERS["none"]) as none,
        ):
            servers = {"kept": kept, "none": none}
            figures = {way: compare(servers, maker, way, given.questions) for way in WAYS}
    settings = {"model": given.model, "questions": given.questions, "seed": given.seed}
    report("echo_select", figures, given.out, **settings)


if __name__ == "__main__":
    main()
