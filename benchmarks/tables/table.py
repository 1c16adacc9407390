"""Makes the tables of docs/performance.md from the newest kept rows of the benchmarks.

A table is written between `<!-- table: name -->` and `<!-- end -->`; what was there is replaced.
With --check nothing is written: exit status 1 means that a table differs from the rows.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from forkroot.benchmarks.common.report import rows
from forkroot.benchmarks.tables import gpu_tables, peer_tables, tables

PAGE = Path(__file__).parents[2] / "docs" / "performance.md"
TABLE_MARKS = re.compile(r"(<!-- table: ([a-z ]+) -->\n).*?(<!-- end -->)", re.DOTALL)
MODES = ("cache + hints", "cache", "nothing")
WITHOUT_HOLD = "siblings not held"
Row = dict[str, Any]


def theorem(row: Row) -> list[list[str]]:
    """Hit rate over optimum on random trees."""
    found = row["figures"]["theorem"]
    lines = [[order, f"{of['least']:.4f}", f"{of['mean']:.4f}"] for order, of in found.items()]
    return [["order", "least", "mean"], *lines]


def hit_rates(row: Row) -> list[list[str]]:
    """Optimum, and what of it is reached in an unlimited pool."""
    settings = ("unlimited lpm", "unlimited lpm without hints", "unlimited lpm without holding")
    return _workloads(row, settings, ("with hints", "without", "siblings not held"))


def small_pools(row: Row) -> list[list[str]]:
    """What of the optimum is reached as the pool shrinks."""
    settings = ("0.5 lpm", "0.3 lpm", "0.2 lpm", "0.1 lpm")
    few, every = "0.1 lpm, 4 at a time", "0.1 lpm, 1000000 at a time"
    titles = ("half", "0.3", "0.2", "a tenth", "a tenth, four at a time", "a tenth, all at once")
    return _workloads(row, (*settings, few, every), titles)


def orders(row: Row) -> list[list[str]]:
    """The orders, in a pool of a tenth."""
    settings = ("0.1 lpm", "0.1 lpm without hints", "0.1 dfs", "0.1 fcfs", "0.1 random")
    return _workloads(row, settings, ("lpm", "lpm, no hints", "dfs", "fcfs", "random"))


def _workloads(row: Row, settings: tuple[str, ...], titles: tuple[str, ...]) -> list[list[str]]:
    head = ["workload", "programs", "at a time", "tokens", "longest", "optimum", *titles]
    lines = []
    for of in row["figures"]["workloads"]:
        sizes = [str(of[name]) for name in ("programs", "width", "span", "longest")]
        shares = [f"{of[setting]['of_optimum']:.3f}" for setting in settings]
        lines.append([of["workload"], *sizes, f"{of['optimum']:.3f}", *shares])
    return [head, *lines]


def step(row: Row) -> list[list[str]]:
    """A decode step of 32 sequences."""
    head = ["sampling", "step", "runner", "forward pass", "radix and slots", "outside forward"]
    lines = []
    for name, of in row["figures"]["decode"].items():
        times = [of["step"], of["run"], of["forward"], of["tree"] + of["slots"]]
        lines.append(
            [name, *(f"{time:,.0f} µs" for time in times), _percent(of["outside_forward"])]
        )
    return [head, *lines]


def radix_share(row: Row) -> list[list[str]]:
    """Calls that share nothing."""
    of = row["figures"]["no reuse"]
    sizes = [str(of[name]) for name in ("calls", "prompt_tokens", "completion_tokens", "steps")]
    shares = [_percent(of[f"{name}_share"]) for name in ("tree", "slots")]
    head = ["calls", "prompt tokens", "generated", "steps", "engine", "radix tree", "slots"]
    return [head, [*sizes, f"{of['step_seconds']:.2f} s", *shares]]


def forks(row: Row) -> list[list[str]]:
    """Programs that fork six ways."""
    lines = []
    for name, of in row["figures"].items():
        rates = [f"{of['programs_per_second'][mode]:.2f}" for mode in MODES]
        ratios = [f"{of['ratio'][mode]:.2f}×" for mode in MODES[:-1]]
        lines.append([name, *rates, *ratios])
    return [["programs per second", *MODES, "ratio, cache + hints", "ratio, cache"], *lines]


def throughput(row: Row) -> list[list[str]]:
    """The workloads on the embedded model."""
    lines = []
    for of in row["figures"]["workloads"]:
        rates = [f"{of[mode]['programs_per_second']:.2f}" for mode in MODES]
        ratios = [f"{of[mode]['ratio']:.2f}×" for mode in MODES[:-1]]
        lines.append([of["workload"], str(of["programs"]), *rates, *ratios])
    return [["workload", "programs", *MODES, "ratio, cache + hints", "ratio, cache"], *lines]


def dspy(row: Row) -> list[list[str]]:
    """Programs of DSPy by the hints that the runtime gets."""
    head = ["program", "cache + hints", "cache", "nothing", "faster than cache", "than nothing"]
    lines = []
    for name, of in row["figures"].items():
        seconds = [f"{of['seconds'][mode]:.2f} s" for mode in MODES]
        ratios = [f"{of['times_faster_than'][mode]:.2f}×" for mode in MODES[1:]]
        counts = of["counts"]
        computed = [
            f"{counts[mode]['computed_tokens']:,}" if mode in counts else ""
            for mode in (*MODES[:2], WITHOUT_HOLD)
        ]
        lines.append([name, *seconds, *ratios, *computed])
    columns = ["cache + hints", "cache", "cache, siblings not held"]
    return [[*head, *(f"tokens computed, {name}" for name in columns)], *lines]


def guidance(row: Row) -> list[list[str]]:
    """Programs of Guidance in threads."""
    of = row["figures"]
    rates = [f"{of[key]:.1f}" for key in ("programs_per_second", "rival_per_second")]
    shares_of = f"{of['ratio']:.2f}×", of["same_texts"], f"{of['cached_share']:.1%}"
    head = ["programs per second", "ours", "Guidance's transformers backend", "ratio"]
    return [[*head, "same texts", "cached"], [row["model"], *rates, *shares_of]]


TABLES: dict[str, tuple[str, Callable[[Row], list[list[str]]]]] = {
    "theorem": ("hit_rate", theorem),
    "hit rates": ("hit_rate", hit_rates),
    "small pools": ("hit_rate", small_pools),
    "orders": ("hit_rate", orders),
    "step": ("step", step),
    "radix share": ("step", radix_share),
    "host time": ("host_time", tables.host_time),
    "forks": ("fork", forks),
    "throughput": ("throughput", throughput),
    "peers": ("peers", peer_tables.serving),
    "peers cached": ("peers", peer_tables.cached),
    "first tokens": ("peers", peer_tables.first_tokens),
    "peers steps": ("peers", peer_tables.steps),
    "select by echo": ("echo_select", tables.echo_select),
    "dspy": ("dspy_programs", dspy),
    "guidance": ("guidance_programs", guidance),
    "decode": ("decode", tables.decode),
    "sampling": ("decode", tables.sampling),
    "busy": ("busy", tables.busy),
    "deterministic": ("deterministic", tables.deterministic),
    "generations": ("generations", tables.generations),
    "costs of constraints": ("constraints", tables.costs),
    "passes": ("jumps", tables.passes),
    "same answers": ("jumps", tables.same_answers),
    "canonical tokens": ("jumps", tables.canonical),
    "jump throughput": ("jumps", tables.jump_throughput),
    "forced text": ("retokenize", tables.forced_text),
    "hostile": ("hostile", tables.hostile),
    "gpu kernels": ("gpu kernels", gpu_tables.kernels),
    "gpu steps": ("gpu steps", gpu_tables.steps),
    "gpu engine": ("gpu steps", gpu_tables.engine),
    "gpu largest kernels": ("gpu steps", gpu_tables.largest),
    "gpu large models": ("gpu models", gpu_tables.steps),
    "gpu workloads": ("gpu workloads", gpu_tables.workloads),
    "gpu throughput": ("gpu throughput", gpu_tables.throughput),
    "gpu host tier": ("gpu host", gpu_tables.host),
    "gpu peers": ("gpu peers", gpu_tables.peers),
}


def render(page: str) -> str:
    """The page with every table made anew."""
    return TABLE_MARKS.sub(lambda found: f"{found[1]}{_table(found[2])}\n{found[3]}", page)


def _table(name: str) -> str:
    source, make = TABLES[name]
    benchmark, _, stage = source.partition(" ")
    kept = [row for row in rows(benchmark) if row.get("stage", "") == stage and not is_trial(row)]
    for row in reversed(kept):
        with suppress(KeyError):  # a row may be of a part of its benchmark
            head, *lines = make(row)
            ruled = [head, ["---", *("---:" for _ in head[1:])], *lines]
            text = "\n".join("| " + " | ".join(cells) + " |" for cells in ruled)
            return f"\n{text}\n\n{_origin(row)}\n"
    options = f"--stage {stage} --keep" if stage else "--out"
    return f"\nNot measured yet: `python {_script(benchmark)} {options}`.\n"


def is_trial(row: Row) -> bool:
    """Whether a row is of a run on small shapes, whose figures mean nothing."""
    return bool(row.get("tiny"))


def _origin(row: Row) -> str:
    """Where a table's figures come from."""
    machine = row["machine"]
    threads = machine["torch_threads"]
    with_threads = f", {threads} torch thread{'s' * (threads > 1)}" if threads else ""
    model = f", model `{row['model']}`" if "model" in row else ""
    model += f", {row['device']['name']}" if "device" in row else ""
    busy = "; processor time, on a busy machine" if "perf_counter" not in _clock(row) else ""
    return (
        f"*`python {_script(row['benchmark'])}`, {row['date']}, commit {row['commit']},"
        f" {machine['cores']} cores of {machine['cpu']}{with_threads}{model}{busy}.*"
    )


def _script(benchmark: str) -> str:
    """The path of the script that writes these rows."""
    home = Path(__file__).parents[1]
    (path,) = home.rglob(f"{benchmark}.py")
    return f"benchmarks/{path.relative_to(home).as_posix()}"


def _clock(row: Row) -> str:
    return str(row.get("clock", "perf_counter"))


def _percent(share: float) -> str:
    return f"{share:.1%}" if share >= 0.01 else f"{share:.2%}"


def main() -> None:
    """Write the page, or check it."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--check", action="store_true")
    is_check = options.parse_args().check
    page = PAGE.read_text()
    made = render(page)
    if is_check:
        raise SystemExit(made != page)
    PAGE.write_text(made)


if __name__ == "__main__":
    main()
