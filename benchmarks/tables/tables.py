"""The tables about constraints: rows of figures as lines of cells. `table.py` writes them."""

from __future__ import annotations

from typing import Any

Row = dict[str, Any]
Lines = list[list[str]]
MODELS = {
    "embedded": "any allowed token, embedded tokenizer",
    "tekken": "any allowed token, tekken",
    "made": "any allowed token, a tokenizer made here",
    "llama": "a Llama of random weights, sampled",
}
TOKENIZERS = {"random": "random", "embedded": "embedded", "made": "made here", "tekken": "tekken"}
MODES = ("no jumps", "jumps, a guide for every call", "jumps, nothing shared")


def generations(row: Row) -> Lines:
    """Constrained answers of models that know nothing."""
    num_refused = len(row["figures"]["skipped"])
    columns = {
        "answers": "generations",
        "constraints": "constraints",
        "at the least budget": "tightest_budget",
        "invalid": "invalid",
        "over max_tokens": "over_max_tokens",
        "unfinished": "unfinished",
        "failed": "failed",
    }
    lines = []
    for name, title in MODELS.items():
        of = row["figures"].get(name)
        if of is not None:
            counts = [of[key] for key in ("vocabulary", *columns.values())]
            lines.append([title, *(f"{count:,}" for count in counts), str(num_refused)])
    return [["tokens sampled from", "vocabulary", *columns, "constraints refused"], *lines]


def costs(row: Row) -> Lines:
    """What libraries take for a pattern."""
    head = ["pattern", "library", "compile", "warm mask, median", "p99", "cold mask, median", "max"]
    lines = []
    for name in ("record", "object", "choices"):
        for library, of in row["figures"][name].items():
            warm, cold = of["warm_us"], of["cold_us"]
            times = (warm["median"], warm["p99"], cold["median"], cold["max"])
            size = f"{of['megabytes']} MB" if "megabytes" in of else ""
            cells = [f"{of['compile_ms']:,.1f} ms", *(f"{time:,.1f} µs" for time in times)]
            lines.append([name, library, *cells, size])
    return [[*head, "kept"], *lines]


def passes(row: Row) -> Lines:
    """Forward passes with and without jumps."""
    found = row["figures"]["passes"]
    lines = [
        [name, f"{of['plain']:.1f}", f"{of['jumping']:.1f}", f"{of['ratio']:.2f}×"]
        for name, of in found.items()
    ]
    return [["answer", "one token at a time", "with jumps", "ratio"], *lines]


def same_answers(row: Row) -> Lines:
    """Greedy answers with jumps beside those without."""
    of = row["figures"]["same"]
    count, lines = of["prompts"], []
    for name, variant in of["variants"].items():
        gap = variant["widest_gap_where_parted"]
        shares = [f"{variant[key]} of {count}" for key in ("same_text", "same_tokens")]
        parted = "" if gap is None else f"{gap:.0e}"
        lines.append([name, *shares, parted, str(variant["steps"]), str(variant["retracted"])])
    head = ["setting", "same text", "same tokens", "gap where they part", "steps", "retractions"]
    plain = ["no jumps", "", "", "", str(of["steps_without_jumps"]), "0"]
    return [head, plain, *lines]


def canonical(row: Row) -> Lines:
    """Tokens of jumps beside those of the tokenizer."""
    of = row["figures"]["canonical"]
    head = ["answers", "jumps", "tokens jumped", "jumps not canonical", "answers wholly canonical"]
    keys = ("answers", "jumps", "tokens", "jumps_not_canonical", "answers_canonical")
    return [head, [str(of[key]) for key in keys]]


def jump_throughput(row: Row) -> Lines:
    """The character record with jumps, and how many times faster than without."""
    lines = []
    for name, of in row["figures"]["throughput"].items():
        if name.startswith("batch"):
            ratios = [f"{of['ratio'][mode]:.2f}×" for mode in MODES]
            lines.append([name, f"{of['calls_per_second']['jumps']:.2f}", *ratios])
    head = ["at a time", "calls per second", "faster than without jumps"]
    return [[*head, "than a guide for every call", "than nothing shared"], *lines]


def forced_text(row: Row) -> Lines:
    """Jumps under all continuations."""
    lines = []
    for name, title in TOKENIZERS.items():
        of = row["figures"][name]
        plainer = of["violations_of_plainer_rules"]
        counts = (of["tokenizers"], of["jumps"], of["continuations"], of["violations"])
        others = (plainer["drop the last"], plainer["keep all"])
        share = f"{of['share_of_forced_tokens']:.3f}"
        lines.append([title, *(f"{n:,}" for n in (*counts, *others)), share])
    head = [
        "tokenizers",
        "number",
        "jumps",
        "continuations",
        "wrong",
        "wrong without the last token",
    ]
    return [[*head, "wrong if all are kept", "share of forced tokens jumped"], *lines]


def hostile(row: Row) -> Lines:
    """Hostile constraints, and the time between two chunks of other calls."""
    lines, windows = [], dict[str, None]()
    for name, of in row["figures"]["attacks"].items():
        gaps = of["gap_ms"]
        windows |= dict.fromkeys(gaps)
        times = [f"{gaps[when][key]:.1f} ms" for key in ("median", "p99") for when in gaps]
        ending = of["ending"].partition(":")[0]
        shown = name.replace("|", "\\|")
        lines.append([f"`{shown}`", ending, f"{of['slowest_seconds']:.3f} s", *times])
    rest = ["before", "during", "any thread"][1 : len(windows)]
    head = ["constraint", "ends in", "slowest", "others' median, before", *rest]
    return [[*head, "p99, before", *rest], *lines]


def decode(row: Row) -> Lines:
    """A decode step over the bare products of its weights."""
    head = ["model", "batch", "context", "bare products", "step", "one root", "step / bare"]
    lines = []
    for model, figures in row["figures"].items():
        for of in figures["steps"]:
            times = [f"{of[key]:,} µs" for key in ("bare", "alone", "root")]
            ratios = [f"{of[key]:.2f}×" for key in ("alone/bare", "root/bare")]
            lines.append([model, str(of["batch"]), str(of["context"]), *times, *ratios])
    return [[*head, "one root / bare"], *lines]


def sampling(row: Row) -> Lines:
    """What a nucleus costs."""
    lines = [
        [model, *(f"{of['sampling'][key]:,} µs" for key in ("greedy", "top_p", "added"))]
        for model, of in row["figures"].items()
    ]
    return [["model", "greedy", "top_p 0.9", "added"], *lines]


def host_time(row: Row) -> Lines:
    """What the host's thread does for a step, on a device that takes no time."""
    found = row["figures"]["microseconds"]
    lines = [[name, f"{microseconds / 1000:.2f} ms"] for name, microseconds in found.items()]
    return [["calls", f"a step of {row['figures']['batch']}"], *lines]


def busy(row: Row) -> Lines:
    """What busy threads of the caller cost."""
    head = [
        "streams",
        "",
        "alone",
        "beside another process's threads",
        "beside the caller's threads",
    ]
    titles = {
        "step": "a step of the engine",
        "wall": "from the caller's first call to the last end",
    }
    lines = []
    for shape, of in row["figures"]["in a child process"].items():
        for key, title in titles.items():
            names = ("alone", "stranger", "busy")
            times = [f"{of[key][name] * 1e3:,.3g} ms" for name in names]
            ratios = [f"{of[key][name]:.2f}×" for name in ("busy/alone", "busy/stranger")]
            lines.append([shape, title, *times, *ratios])
        counts = [f"{of['steps'][name]:.0f}" for name in ("alone", "stranger", "busy")]
        lines.append([shape, "steps", *counts, "", ""])
    return [[*head, "caller's / alone", "caller's / other process's"], *lines]


def deterministic(row: Row) -> Lines:
    """What `deterministic=True` costs."""
    lines, load = [], f"{row['load_average']:g}"
    for name, of in row["figures"].items():
        times = [f"{of[key]:.3g} ms" for key in ("plain", "deterministic")]
        lines.append([name, *times, f"{of['ratio']:.2f}×", load])
    return [["work", "without", "deterministic", "ratio", "load average"], *lines]


def echo_select(row: Row) -> Lines:
    """Multiple choice by echo, with log-probabilities kept and not."""
    head = ["four prompts", "nothing kept", "kept, first question", "kept, later ones"]
    lines = []
    for way, of in row["figures"].items():
        times = of["none"]["cpu"], of["kept"]["first_cpu"], of["kept"]["cpu"]
        tokens = [f"{of[name]['computed']:,.0f}" for name in ("none", "kept")]
        ratios = [f"{of['times'][clock]:.1f}×" for clock in ("cpu", "wall")]
        lines.append([way, *(f"{time:.2f} s" for time in times), *tokens, *ratios])
    columns = ["tokens computed, nothing kept", "kept", "less processor time", "less wall clock"]
    return [[*head, *columns], *lines]
