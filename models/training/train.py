"""Train the embedded model: `python -m forkroot.models.training.train --state state.pt`.

A run can be stopped at any time and resumed from its state file, also with another `--steps`: the
learning rate stays level and then falls to zero over the last `--decay` steps. Text is written and
tokenized in a second process.

A finished checkpoint learns on with `--from FOLDER`: its weights, in the precision that they were
saved in, are the start, the optimizer is fresh, and `--steps`, `--decay` and the rates are those of
the new run alone. Its batches are numbered on from the steps that made the checkpoint, so they are
the long ones and, with the same `--seed`, none of those that it saw. A fifth of the first run's
rates keeps what is known: `--muon-rate 0.004 --adam-rate 0.0006`. `training.json` then holds the
earlier runs under `before`, oldest first. `--folder` is another one, into which the tokenizer is
copied.
"""

import argparse
import json
import multiprocessing
import os
import shutil
import time
from collections import deque
from multiprocessing.queues import Queue
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import Tensor
from tqdm import tqdm

from .batches import Batch, make_batch, plan
from .network import Network, Shape, load_weights, save_checkpoint
from .optimizer import Optimizer
from .planting import plant_induction, plant_spelling
from .probe import probe
from .tokenizer import save_tokenizer

TINY = Path(__file__).parent.parent / "tiny"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m forkroot.models.training.train", description=__doc__
    )
    parser.add_argument("--folder", type=Path, default=TINY, help="where the checkpoint goes")
    parser.add_argument("--state", type=Path, required=True, help="file to resume from and save to")
    parser.add_argument(
        "--from", type=Path, dest="start", metavar="FOLDER", help="a checkpoint to learn on from"
    )
    parser.add_argument("--steps", type=int, default=8_900)
    parser.add_argument(
        "--decay", type=int, default=6_300, help="steps of falling rate, at the end"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--save-every", type=int, default=500)
    parser.add_argument("--muon-rate", type=float, default=0.02)
    parser.add_argument("--adam-rate", type=float, default=3e-3)
    parser.add_argument("--minutes", type=float, default=1e9, help="stop after this time")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    if args.start and args.start.resolve() == args.folder.resolve():
        parser.error(f"--from {args.start} is --folder too: learn on in a copy of it")
    return args


def feed(queue: "Queue[Batch]", tokenizer_file: str, seed: int, first_step: int) -> None:
    """Put the batches of `first_step` and on into the queue, for ever."""
    os.sched_setaffinity(0, range(os.cpu_count() or 1))  # the trainer may be pinned to one core
    tokenizer, step = Tokenizer.from_file(tokenizer_file), first_step
    while True:
        queue.put(make_batch(tokenizer, seed, step))
        step += 1


def start_feeder(folder: Path, seed: int, first_step: int) -> "Queue[Batch]":
    """A queue that a second process keeps filled."""
    context = multiprocessing.get_context("spawn")
    queue: Queue[Batch] = context.Queue(maxsize=64)
    work = (queue, str(folder / "tokenizer.json"), seed, first_step)
    context.Process(target=feed, args=work, daemon=True).start()
    return queue


def rate_at(step: int, steps: int, decay: int, warmup: int = 100) -> float:
    """The share of the full learning rate at a step: warm up, stay, fall to zero."""
    return min(1.0, (step + 1) / warmup, max(0.0, (steps - step) / decay))


def batch_loss(
    network: Network, tokens: Tensor, positions: Tensor, picked: Tensor, targets: Tensor
) -> Tensor:
    """The loss of each picked target."""
    hidden = network(tokens, positions).flatten(0, 1)[picked]
    return F.cross_entropy(network.logits(hidden).float(), targets, reduction="none")


def start_network(args: argparse.Namespace) -> Network:
    """Where training starts: a checkpoint's weights, or new ones with their rough circuits."""
    network = Network(Shape())
    if args.start:
        load_weights(network, args.start)
    else:
        plant_spelling(network, Tokenizer.from_file(str(args.folder / "tokenizer.json")))
        plant_induction(network)
    return network


def runs_of(folder: Path) -> list[dict[str, Any]]:
    """The runs that made a checkpoint, oldest first, as its training.json tells."""
    made: dict[str, Any] = json.loads((folder / "training.json").read_text())
    return [*made.pop("before", []), made]


class Run:
    """A network, its optimizer and the files that they are kept in."""

    def __init__(self, args: argparse.Namespace) -> None:
        torch.manual_seed(args.seed)
        self.args = args
        self.before = runs_of(args.start) if args.start else []
        self.first_batch = sum(run["steps"] for run in self.before)
        self.network = start_network(args).to(args.device, torch.bfloat16)
        self.optimizer = Optimizer(self.network, args.muon_rate, args.adam_rate)
        self.seconds = 0.0
        if args.state.exists():
            state = torch.load(args.state, map_location=args.device)
            self.seconds = state.pop("seconds")
            self.optimizer.load(state)
        self.loss = torch.compile(batch_loss, dynamic=False)

    def step(self, batch: Batch, scale: float) -> float:
        """Learn one batch; returns its mean loss."""
        tensors = [torch.from_numpy(array).to(self.args.device) for array in batch]
        *inputs, weights = tensors
        loss = (self.loss(self.network, *inputs) * weights).sum() / weights.sum()
        loss.backward()
        self.optimizer.step(scale)
        return loss.item()

    def save(self) -> None:
        """Write the state and the checkpoint, each whole or not at all."""
        part = self.args.state.with_suffix(".part")
        torch.save({**self.optimizer.state(), "seconds": self.seconds}, part)
        part.replace(self.args.state)
        save_checkpoint(self.network, self.optimizer.master, self.args.folder)
        (self.args.folder / "training.json").write_text(json.dumps(self.facts(), indent=2) + "\n")

    def facts(self) -> dict[str, Any]:
        """What the report tells about the run, and about those before it."""
        args, steps = self.args, self.optimizer.num_steps
        batches = range(self.first_batch, self.first_batch + steps)
        tokens = sum(plan(step).num_tokens for step in batches)
        facts = {
            "steps": steps,
            "decay_steps": args.decay,
            "tokens": tokens,
            "minutes": round(self.seconds / 60),
            "seed": args.seed,
            "muon_rate": args.muon_rate,
            "adam_rate": args.adam_rate,
        }
        return {**facts, "before": self.before} if self.before else facts


def train(args: argparse.Namespace) -> None:
    """Run from the state file's step, or from zero, to `args.steps`; probe and save on the way."""
    if not (args.folder / "tokenizer.json").exists():
        if args.start:  # its numbers are those of its tokens
            for name in ("tokenizer.json", "tokenizer_config.json"):
                shutil.copy(args.start / name, args.folder)
        else:
            save_tokenizer(args.folder)
    run, losses = Run(args), deque[float](maxlen=100)
    first, began = run.optimizer.num_steps, time.monotonic() - run.seconds
    queue = start_feeder(args.folder, args.seed, run.first_batch + first)
    for step in tqdm(range(first, args.steps), initial=first, total=args.steps, mininterval=30):
        losses.append(run.step(queue.get(), rate_at(step, args.steps, args.decay)))
        run.seconds = time.monotonic() - began
        stop = run.seconds > args.minutes * 60
        if (step + 1) % args.save_every == 0 or step + 1 == args.steps or stop:
            run.save()
            row = {"step": step + 1, "loss": round(sum(losses) / len(losses), 4)}
            tqdm.write(json.dumps({**row, **probe(run.network, args.folder)}))
        if stop:
            return


if __name__ == "__main__":
    train(arguments())
