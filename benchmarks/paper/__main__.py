"""The paper's evaluation, whole: rows, pictures and one report.

    python -m forkroot.benchmarks.paper [--quick | --full] [--peers vllm,…] --out DIR

A run that was killed continues where it was: rows are kept as they come in DIR/rows.jsonl.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from forkroot.benchmarks.common.report import make_row
from forkroot.core.api.errors import ForkrootError, InvalidCall

from .figure import Figure, Settings
from .figures.registry import FIGURES
from .machine import machine
from .report.content import tables
from .report.markdown import markdown
from .report.page import html
from .report.svg import draw
from .rows import RowFile
from .run import run

PEERS = ("vllm", "llama.cpp", "transformers", "sglang")


def main(argv: Sequence[str] | None = None) -> int:
    """Measure what is not yet measured, and write the report; 1 where a step failed."""
    args = _parser().parse_args(argv)
    try:
        settings, figures = _settings(args), _figures(args.only)
        kept = RowFile(args.out, _head(settings), machine())
    except ForkrootError as error:
        print(error, file=sys.stderr)
        return 2
    faults = {} if args.report else run(figures, settings, kept, Console(stderr=True))
    write(args.out, figures, kept, faults, settings)
    if args.docs:
        args.docs.write_text((args.out / "report.md").read_text("utf-8"), "utf-8")
    print(args.out / "report.html")
    return 1 if faults else 0


def write(
    folder: Path,
    figures: Sequence[Figure],
    kept: RowFile,
    faults: dict[str, str],
    settings: Settings,
) -> None:
    """The report in both forms, and each chart as a file."""
    rows = kept.rows
    about = _about(kept, settings)
    (folder / "report.html").write_text(html(figures, rows, about, faults), "utf-8")
    (folder / "report.md").write_text(markdown(figures, rows, about, faults), "utf-8")
    for figure in figures:
        for number, table in enumerate(tables(figure, rows), 1):
            picture = draw(table.chart, table.entries)
            if picture:
                name = f"{figure.name.replace(' ', '_')}_{number}.svg"
                (folder / name).write_text(picture, "utf-8")


def _about(kept: RowFile, settings: Settings) -> dict[str, str]:
    known = make_row("paper", {})
    loads = [*kept.loads.values(), 0.0]
    return {
        "machine": machine(),
        "model": settings.model,
        "size": f"--{settings.mode}; seed {settings.seed}; {settings.threads} thread(s) an engine",
        "peers": ", ".join(settings.peers) or "none in this run",
        "GPU": "measured" if settings.has_gpu else "not measured: `--gpu` on a machine with one",
        "load": f"{min(loads[:-1] or loads):g} to {max(loads):g} running processes before a step;"
        " above 1 for each core, times are too long: read ratios and processor time",
        "time": f"{sum(kept.seconds.values()):.0f} s in {len(kept.steps)} steps",
        "versions": f"commit {known['commit']}, Python {known['python']}, torch {known['torch']}",
        "date": known["date"],
    }


def _settings(args: argparse.Namespace) -> Settings:
    if args.data is not None and not args.data.is_dir():
        raise InvalidCall("data", str(args.data), "a folder")
    if args.gpu:
        import torch

        if not torch.cuda.is_available():
            raise InvalidCall("gpu", True, "a machine with a GPU that torch finds")
    mode = "full" if args.full else "smallest" if args.smallest else "quick"
    peers = {}
    for item in filter(None, args.peers.split(",")):
        name, _, url = item.partition("=")
        if name not in PEERS:
            raise InvalidCall("peers", name, f"names of {', '.join(PEERS)}, or NAME=URL")
        peers[name] = url
    return Settings(
        mode, args.model, peers, args.peers_folder, args.data, args.seed, args.threads,
        "cuda" if args.gpu else "cpu", args.gpu,
    )  # fmt: skip


def _head(settings: Settings) -> dict[str, object]:
    """What the rows of one file have in common; peers may be added by a later run."""
    names = "mode", "model", "seed", "threads", "device"
    data = str(settings.data) if settings.data else None
    return {**{name: getattr(settings, name) for name in names}, "data": data}


def _figures(only: str) -> tuple[Figure, ...]:
    names = [it.name for it in FIGURES]
    wanted = [it.strip() for it in only.split(",") if it.strip()] or names
    unknown = [it for it in wanted if it not in names]
    if unknown:
        raise InvalidCall("only", unknown[0], f"of {', '.join(names)}")
    return tuple(it for it in FIGURES if it.name in wanted)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m forkroot.benchmarks.paper", description=__doc__
    )
    sizes = parser.add_mutually_exclusive_group()
    sizes.add_argument("--quick", action="store_true", help="minutes on two cores (the default)")
    sizes.add_argument("--full", action="store_true", help="most of an hour on two cores")
    sizes.add_argument("--smallest", action="store_true", help="seconds: to try it out")
    parser.add_argument(
        "--gpu", action="store_true", help="on a GPU, with the figures that need one"
    )
    parser.add_argument("--model", default="tiny", help="a name or the folder of a checkpoint")
    parser.add_argument("--peers", default="", help=f"of {', '.join(PEERS)}; NAME=URL if it runs")
    folder = Path(tempfile.gettempdir()) / "peers"
    parser.add_argument(
        "--peers-folder", type=Path, default=folder, help="where `peers.peers --setup` put them"
    )
    parser.add_argument("--data", type=Path, help="a folder of real data sets")
    parser.add_argument("--only", default="", help="figures by name, with commas between")
    parser.add_argument("--threads", type=int, default=1, help="of each engine")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--report", action="store_true", help="measure nothing, write the report")
    parser.add_argument("--docs", type=Path, help="also write the Markdown to this file")
    parser.add_argument("--out", type=Path, required=True, help="the folder of rows and report")
    return parser


if __name__ == "__main__":
    sys.exit(main())
