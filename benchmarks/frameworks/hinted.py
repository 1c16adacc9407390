"""What hints are worth to unchanged programs of several frameworks, in a crowded pool.

One process, the embedded model or another (`--model`), several programs at a time: an agent of DSPy
and one of LangGraph whose tools take a moment, the best of several drafts, votes, chains over a
document, and chains beside a second tenant that floods the pool. The pool holds a quarter of what a
program's runs span (`--part`), or all of it. Documents and complaints are of 120 to 160 words,
about as long as what is written about them, or longer (`--length`). Each round runs the same
programs without hints and with them, in turn, from an empty cache, and without hints in a pool that
holds all ("all"): there each token is computed once and nothing waits for memory, which no order,
eviction or hint can better. off/all is what hints could be worth at most. The first round teaches
the adapters, as the first minute of a service does, and is not counted.

Prints one JSON row: of each program the medians of seconds and of processor seconds, the tokens
that were computed on average and those of prompts that were cached, their ratios off/on and off/all
("at most"), how many guesses of hints were made and how many were wrong, and whether all rounds
gave the same answers. Seconds of a machine with other work say little. The flood beside the second
tenant goes on as long as its programs do: what it computes is counted as well.
"""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import Annotated, Any, TypedDict

import forkroot
from forkroot import Backend, connect, function, gen, select
from forkroot.benchmarks.common.packages import needs
from forkroot.benchmarks.common.report import parser, report
from forkroot.core.api.protocol import Call, Sampling, Text

with needs("dspy-ai"):
    import dspy

    from forkroot.adapters.dspy import LM
with needs("langgraph"):
    from langchain_core.messages import AnyMessage, HumanMessage
    from langgraph.graph import END, START, StateGraph
    from langgraph.graph.message import add_messages

    from forkroot.adapters.langchain import ChatForkroot

Answers = list[Any]
TEXT = "the room was clean and staff were kind but breakfast came late while music played"
LARGEST = 60_000
COUNTED = ("computed_tokens", "prompt_tokens", "cached_tokens", "retracted", "steps")


@dataclass(frozen=True, slots=True)
class Shape:
    """Programs of one kind. run: all of them, over a backend, with hints or without; what they
    answered. It is made once for both, so that adapters know what they saw in earlier rounds."""

    name: str
    run: Callable[[Backend, bool], Answers]


def words(seed: str, count: int) -> str:
    """So many words that depend on the seed."""
    return " ".join(random.Random(seed).choices(TEXT.split(), k=count))


def in_threads(num: int, width: int, run: Callable[[int], Any]) -> Answers:
    """Run so many programs, so many at a time."""
    with ThreadPoolExecutor(width) as threads:
        return list(threads.map(run, range(num)))


def dspy_agent(num: int, width: int, pause: float, length: float) -> Shape:
    """`dspy.ReAct` with a tool that takes a moment."""
    num_words = round(120 * length)

    def look_up(name: str) -> str:
        """Look up the notes about a guest of the hotel by name."""
        time.sleep(pause)
        return words(name, 60)

    agent = dspy.ReAct("complaint: str -> remedy: str", [look_up], max_iters=4)

    def run(backend: Backend, hints: bool) -> Answers:
        lm = LM(backend, temperature=0, cache=False, max_tokens=40, hints=hints)

        def one(index: int) -> str:
            with dspy.context(lm=lm):
                return str(agent(complaint=words(f"guest {index}", num_words)).remedy)

        return in_threads(num, width, one)

    return Shape("dspy react", run)


class _State(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


def langgraph_agent(num: int, width: int, pause: float, length: float) -> Shape:
    """A graph of a model and a tool, four times around."""
    num_words = round(120 * length)

    def run(backend: Backend, hints: bool) -> Answers:
        model = ChatForkroot(backend=backend, temperature=0, max_tokens=40)

        def think(state: _State) -> dict[str, Any]:
            return {"messages": [model.invoke(state["messages"])]}

        def look_up(state: _State) -> dict[str, Any]:
            time.sleep(pause)
            found = words(str(state["messages"][-1].content), 80)
            return {"messages": [HumanMessage(f"Found: {found}")]}

        graph = StateGraph(_State)
        graph.add_node("think", think)
        graph.add_node("look_up", look_up)
        graph.add_edge(START, "think")
        graph.add_edge("look_up", "think")
        graph.add_conditional_edges(
            "think", lambda state: END if len(state["messages"]) >= 9 else "look_up"
        )
        program = graph.compile(name="agent")

        def one(index: int) -> str:
            complaint = words(f"guest {index}", num_words)
            asked = HumanMessage(f"{words('rules', 80)}\n{complaint}")
            return str(program.invoke({"messages": [asked]})["messages"][-1].content)

        return in_threads(num, width, one)

    return Shape("langgraph agent", run)


def native(name: str, program: Any, num: int, width: int, length: float) -> Shape:
    """A program of the native language over a document of its own."""
    num_words = round(160 * length)

    def run(backend: Backend, hints: bool) -> Answers:
        items = [{"text": words(f"{name} {index}", num_words)} for index in range(num)]
        states = program.run_batch(
            items, backend=backend, hints=hints, temperature=0, num_threads=width, raise_errors=True
        )
        return [state.text() for state in states]

    return Shape(name, run)


@function
def best_of_n(s: Any, text: str) -> None:
    """Five drafts, a grade of each, and the end of the best."""
    s += f"{text}\nWrite to the guest."
    drafts = s.fork(5)
    for number, draft in enumerate(drafts):
        draft += f"\nDraft {number}:" + gen("draft", max_tokens=32, ignore_eos=True)
        draft += "\nIs it kind?" + select("grade", [" yes", " no"])
    drafts.join()
    best = next((i for i, it in enumerate(s["grade"]) if it == " yes"), 0)
    s += f"\nDraft {best}:{s['draft'][best]}\nSent:" + gen("sent", max_tokens=16, ignore_eos=True)


@function
def votes(s: Any, text: str) -> None:
    """Six answers to one question, and what most of them say."""
    s += f"{text}\nIs the guest right?"
    voters = s.fork(6)
    for number, voter in enumerate(voters):
        voter += f"\nVoter {number} thinks" + gen("why", max_tokens=24, ignore_eos=True)
        voter += "\nSo:" + select("vote", [" yes", " no"])
    voters.join()
    s += f"\nThe vote: {max(set(s['vote']), key=s['vote'].count)}"


@function
def chain(s: Any, text: str) -> None:
    """Four steps over one document, each read before the next is written."""
    s += f"{text}\n"
    for number in range(4):
        s += f"Step {number}:" + gen("step", max_tokens=24, ignore_eos=True)
        s += f" ({len(s['step'])} characters)\n"


def crowded_by(shape: Shape, name: str) -> Shape:
    """The same while another tenant floods the pool with calls that share nothing."""

    def run(backend: Backend, hints: bool) -> Answers:
        is_over = threading.Event()

        def flood() -> None:
            number = 0
            while not is_over.is_set():
                sampling = Sampling(max_tokens=4, temperature=0, ignore_eos=True)
                prompt = (Text(f"{number} {words(f'{number}', 200)}"),)
                backend.submit(Call(prompt, sampling, namespace="flood")).result()
                number += 1

        thread = threading.Thread(target=flood)
        thread.start()
        try:
            return shape.run(backend, hints)
        finally:
            is_over.set()
            thread.join()

    return Shape(name, run)


def shapes(num: int, width: int, pause: float, length: float) -> list[Shape]:
    """All of them."""
    chains = native("chains", chain, num, width, length)
    return [
        dspy_agent(num, width, pause, length),
        langgraph_agent(num, width, pause, length),
        native("best of n", best_of_n, num, width, length),
        native("votes", votes, num, width, length),
        chains,
        crowded_by(chains, "two tenants"),
    ]


def span(shape: Shape, model: str) -> int:
    """Tokens that the programs leave in a pool that holds all, without a flood."""
    backend = connect(model, num_slots=LARGEST, hints=False)
    shape.run(backend, False)
    found = int(backend.info().load["cached_slots"])
    backend.close()
    return found


def measure(shape: Shape, model: str, num_slots: int, repeats: int) -> dict[str, Any]:
    """All modes in turn."""
    backends = {
        "off": connect(model, num_slots=num_slots, hints=False),
        "on": connect(model, num_slots=num_slots),
        "all": connect(model, num_slots=LARGEST, hints=False),
    }
    seconds: dict[str, list[float]] = {mode: [] for mode in backends}
    busy: dict[str, list[float]] = {mode: [] for mode in backends}
    counts: dict[str, list[dict[str, int]]] = {mode: [] for mode in backends}
    answers = set[str]()
    modes = list(backends)
    for number in range(1 + repeats):  # the first round teaches the adapters, and warms all
        start = number % len(modes)
        for mode in (*modes[start:], *modes[:start]):
            backend = backends[mode]
            backend.clear_cache()
            backend.reset_counters()
            started, used = time.perf_counter(), time.process_time()
            answers.add(repr(shape.run(backend, mode == "on")))
            seconds[mode].append(time.perf_counter() - started)
            busy[mode].append(time.process_time() - used)
            counters = backend.info().counters
            counts[mode].append({name: int(counters[name]) for name in COUNTED})
    total = backends["on"].program_report().total
    fields = {"next use": total.next_use, "calls left": total.calls_left}
    fields["tokens left"] = total.tokens_left
    for backend in backends.values():
        backend.close()
    means = {
        mode: {name: round(mean(it[name] for it in found[1:])) for name in COUNTED}
        for mode, found in counts.items()
    }
    tokens = {mode: float(it["computed_tokens"]) for mode, it in means.items()}
    return {
        "slots": num_slots,
        **_compared("seconds", "times faster", _taught(seconds)),
        **_compared("processor", "times less processor", _taught(busy)),
        **_compared("tokens", "times fewer tokens", tokens),
        "counts": means,
        "guesses": {name: {"made": it.made, "wrong": it.wrong} for name, it in fields.items()},
        "same answers": len(answers) == 1,
    }


def _taught(rounds: dict[str, list[float]]) -> dict[str, float]:
    return {mode: round(median(it[1:]), 3) for mode, it in rounds.items()}


def _compared(name: str, ratio: str, found: dict[str, float]) -> dict[str, Any]:
    """A figure of each mode, what hints are worth by it, and what they could be at most."""
    off = found["off"]
    ratios = {ratio: off / found["on"], f"{ratio}, at most": off / found["all"]}
    return {name: found, **{key: round(it, 3) for key, it in ratios.items()}}


def main() -> None:
    """Measure and print the row."""
    options = parser(__doc__)
    options.add_argument("--num", type=int, default=16, help="programs of each kind")
    options.add_argument("--width", type=int, default=8, help="programs at a time")
    options.add_argument("--pause", type=float, default=0.03, help="seconds that a tool takes")
    options.add_argument("--part", type=float, default=0.25, help="of the span; 0: all of it")
    options.add_argument("--length", type=float, default=1, help="of documents, of 160 words each")
    options.add_argument("--repeats", type=int, default=3)
    options.add_argument("--only", nargs="*", help="names of programs")
    options.add_argument("--model", default="tiny")
    args = options.parse_args()
    dspy.disable_logging()
    figures, loads = {}, [os.getloadavg()[0]]
    for shape in shapes(args.num, args.width, args.pause, args.length):
        if args.only and shape.name not in args.only:
            continue
        with redirect_stdout(sys.stderr):
            size = span(shape, args.model) if args.part else LARGEST
            num_slots = max(round(size * args.part), 1400) if args.part else LARGEST
            found = figures[shape.name] = measure(shape, args.model, num_slots, args.repeats)
        loads.append(os.getloadavg()[0])
        print(shape.name, found, file=sys.stderr)
    names = "seed", "num", "width", "pause", "part", "length", "repeats"
    fields = {name: getattr(args, name) for name in names}
    fields["model"] = Path(args.model).name
    fields["loads"] = [round(load, 1) for load in loads]
    report("hinted", figures, args.out, version=forkroot.__version__, **fields)


if __name__ == "__main__":
    main()
