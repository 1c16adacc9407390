"""All measurements that need a GPU, in stages: one command, one row for each stage.

    python benchmarks/gpu/gpu.py

The stages: correctness (a small model on the GPU and on the CPU, kernels beside their oracles,
`pytest -m gpu`), ceilings (copies, matrix products, launches), kernels, steps (decode, prefill and
short extends of whole models beside their floors, with the largest kernels of each), models (a
mixture and a 70B, by some of their layers where memory is short), workloads (the paper's, with
cache, hints, order and jumps on and off), throughput (1k in, 1k out), host (the second tier of the
cache), peers (vLLM and transformers on the same prompts) and tests (all others that use a GPU).

It runs from a copy of this tree under any name, with forkroot not installed. What the machine lacks
comes from a folder of wheels, which `--prepare` fills where there is a network; nothing that is
installed there is replaced.

Each stage runs in a process of its own. Its row is written to `gpu.json` in the folder `--out`
(else the one that the environment's OUT names, else build/gpu-rows) after each of its cases, so a
run that is killed keeps all that it measured. A case that fails is reported with its error, and the
next goes on. Time that a stage leaves over is the next ones'. Without a GPU nothing is run, except
with --tiny: it tries all on small shapes, on a CPU with Triton's kernels interpreted. Such rows are
marked, and in no table.
"""

from __future__ import annotations

import signal
import sys
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[2]


def _end(*_: object) -> None:
    """End as SIGTERM asks: the stage's processes are ended, and temporary folders removed."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(128 + signal.SIGTERM)


def main() -> None:
    """Make this tree importable as `forkroot`, whatever its folder is named, and run the stages."""
    signal.signal(signal.SIGTERM, _end)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # shells ignore it in the background
    try:
        status = _run()
    except KeyboardInterrupt:
        print("interrupted; the rows of cases that ended are kept", file=sys.stderr)
        status = 128 + signal.SIGINT
    sys.exit(status)


def _run() -> int:
    with TemporaryDirectory(prefix="forkroot-gpu-") as folder:
        site = Path(folder)
        (site / "forkroot").symlink_to(ROOT)
        sys.path.insert(0, folder)
        return int(import_module("forkroot.benchmarks.gpu.gpu_run").main(site, __doc__))


if __name__ == "__main__":
    main()
