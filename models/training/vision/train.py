"""Teach the embedded model to see: `python -m forkroot.models.training.vision.train --state s.pt`.

At first the tower learns what each patch shows; then the answers to questions, which come through
the text model. Of that, thin changes to the matrices are learned, with texts beside the pictures so
that nothing is forgotten; its own weights are frozen. A run can be stopped at any time and resumed
from its state file, also with another `--steps`.

With `--from FOLDER` the eyes of a finished checkpoint learn on: the optimizer is fresh, and what
the tower needs to name patches is learned anew, by and by. `training.json` then holds the earlier
runs under `before`, oldest first.
"""

import argparse
import json
import random
import time
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor

from ..batches import Batch as TextBatch
from ..batches import packed_row, to_batch
from ..optimizer import Optimizer
from ..scenes.drawing import draw
from ..tasks.world import documents
from ..train import TINY, rate_at, runs_of
from .checkpoint import save_eyes
from .exams import SUBJECTS, Exam, exams_of
from .network import Seeing, llava_tensors, load_eyes, normalised
from .rows import SIZE, Batch, encoded, make_batch, row_of, seen

TEXT_ROWS = (3, 256)
NEW_HEADS = 200  # steps after which the loss of the patches counts in full
TINY_VISION = TINY.with_name("tiny_vision")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m forkroot.models.training.vision.train", description=__doc__
    )
    parser.add_argument("--folder", type=Path, default=TINY_VISION, help="where the eyes go")
    parser.add_argument("--state", type=Path, required=True, help="file to resume from and save to")
    parser.add_argument(
        "--from", type=Path, dest="start", metavar="FOLDER", help="eyes to learn on from"
    )
    parser.add_argument("--patches", type=int, default=600, help="steps before questions")
    parser.add_argument("--steps", type=int, default=6_000)
    parser.add_argument(
        "--decay", type=int, default=3_000, help="steps of falling rate, at the end"
    )
    parser.add_argument("--rows", type=int, default=16, help="pictures asked about in a step")
    parser.add_argument("--shown", type=int, default=16, help="pictures that are only looked at")
    parser.add_argument(
        "--text-every", type=int, default=1, help="steps from one with text rows to the next"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--save-every", type=int, default=100)
    parser.add_argument("--muon-rate", type=float, default=0.013)
    parser.add_argument("--adam-rate", type=float, default=1.5e-3)
    parser.add_argument("--minutes", type=float, default=1e9, help="stop after this processor time")
    parser.add_argument(
        "--bfloat16", action="store_true", help="compute products in it: faster where AMX is"
    )
    parser.add_argument(
        "--average", type=float, default=0.0, help="of the weights of a step, what the next keeps"
    )
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    if args.start and args.start.resolve() == args.folder.resolve():
        parser.error(f"--from {args.start} is --folder too: learn on in another folder")
    if args.start:
        args.patches = 0
    return args


def tensors_of(batch: Batch) -> dict[str, Tensor]:
    tensors = {name: torch.from_numpy(it) for name, it in batch._asdict().items()}
    return {**tensors, "pictures": normalised(batch.pictures, torch.float32)}


class Run:
    """The network, its optimizer and the files that they are kept in."""

    def __init__(self, args: argparse.Namespace) -> None:
        torch.manual_seed(args.seed)
        self.args = args
        self.tokenizer = Tokenizer.from_file(str(TINY / "tokenizer.json"))
        self.before = list[dict[str, Any]]()
        self.network = Seeing(TINY)
        if args.start:
            self.before = runs_of(args.start)
            load_eyes(self.network, args.start)
        self.first_batch = sum(run["steps"] for run in self.before)
        tower = self.network.eyes.tower
        for name, parameter in tower.named_parameters():
            parameter.requires_grad_("post_layernorm" not in name)
        self.read = torch.compile(self.network.logits, dynamic=False)
        tower_names = [f"eyes.tower.{name}" for name, _ in tower.named_parameters()]
        changes = [name for name, _ in self.network.changes.named_parameters()]
        self.optimizer = Optimizer(
            self.network,
            args.muon_rate,
            args.adam_rate,
            slower={
                **(dict.fromkeys(tower_names, 0.3) if args.start else {}),
                "eyes.linear_1.weight": 0.1,  # its inputs are large: nothing normalises them
                **{f"changes.{name}": 0.2 if name.endswith("b") else 0.25 for name in changes},
            },
            matrices=("eyes.tower.encoder.layers.", "eyes.linear_", "changes."),
        )
        self.seconds = 0.0
        if args.state.exists():
            state = torch.load(args.state)
            self.seconds = state.pop("seconds")
            averaged = state.pop("averaged")
            self.optimizer.load(state)
            self.averaged: dict[str, Tensor] = averaged
        else:
            self.averaged = {n: it.clone() for n, it in self.optimizer.master.items()}

    def step(self) -> tuple[float, float]:
        """Learn one batch; returns the losses of patches and answers."""
        with torch.autocast("cpu", torch.bfloat16, enabled=self.args.bfloat16):
            patches, answers, loss = self._losses()
        loss.backward()
        number = self.optimizer.num_steps
        self.optimizer.step(rate_at(number, self.args.steps, self.args.decay))
        kept = min(self.args.average, (number + 1) / (number + 10))  # soon forget the start
        for name, weight in self.optimizer.master.items():
            self.averaged[name].lerp_(weight, 1 - kept)
        return patches.item(), answers.item()

    def _losses(self) -> tuple[Tensor, Tensor, Tensor]:
        """Those of patches and of answers, and what is to be made less."""
        args, number = self.args, self.optimizer.num_steps
        rows = args.rows if number >= args.patches else 0
        made = make_batch(
            self.tokenizer, args.seed, self.first_batch + number, args.rows + args.shown
        )
        patches, answers = self.network.losses(tensors_of(made), self.read, rows)
        # Heads that begin anew must not teach a tower that knows more than they do.
        loss = answers + patches * (min(1.0, number / NEW_HEADS) if args.start else 1.0)
        if rows:
            if number % args.text_every == 0:
                share = 0.5 * args.text_every**0.5
                text = self.network.text_loss(self._text(self.first_batch + number))
                loss = loss + share * text
        else:  # these learn nothing yet
            parameters = [p for p in self.network.parameters() if p.requires_grad]
            loss = loss + 0.0 * sum(p.sum() for p in parameters)
        return patches, answers, loss

    def _text(self, number: int) -> TextBatch:
        """What the text model learned from, so that it does not forget it."""
        rng, (rows, row_len) = random.Random(f"text {self.args.seed}/{number}"), TEXT_ROWS
        docs = documents(rng.getrandbits(60), held_out=False)
        packed = [packed_row(rng, self.tokenizer, docs, row_len) for _ in range(rows)]
        return to_batch(rng, packed, rows * row_len * 3 // 8)

    def save(self) -> None:
        """Write the state and the checkpoint, each whole or not at all."""
        part = self.args.state.with_suffix(".part")
        own = {"seconds": self.seconds, "averaged": self.averaged}
        torch.save({**self.optimizer.state(), **own}, part)
        part.replace(self.args.state)
        told = ("patches", "rows", "shown", "text_every", "seed", "decay", "bfloat16", "average")
        facts = {name: getattr(self.args, name) for name in told}
        facts |= {"steps": self.optimizer.num_steps, "minutes": round(self.seconds / 60)}
        facts |= {name: getattr(self.args, name) for name in ("muon_rate", "adam_rate")}
        facts |= {"before": self.before} if self.before else {}
        tensors = llava_tensors(self.network, self.averaged)
        save_eyes(tensors, TINY, self.args.folder, facts)


@torch.no_grad()
def probe(run: Run, count: int = 64) -> dict[str, float]:
    """Of each subject with a bar, and of words, the share of held-out questions whose answer the
    averaged network would give, each token after the right ones before it."""
    own = dict(run.network.named_parameters())
    for name, averaged in run.averaged.items():
        own[name].copy_(averaged)
    shares = {
        subject.title: round(_share(run, exams_of(subject, count, 99)), 2)
        for subject in SUBJECTS
        if subject.bar or subject.family == "read"
    }
    for name, weight in run.optimizer.master.items():
        own[name].copy_(weight)
    return shares


def _share(run: Run, exams: list[Exam]) -> float:
    rng = random.Random(5)
    parts = [
        (
            draw(scene, SIZE),
            *encoded(run.tokenizer, row_of(rng, [asked])),
            *seen(scene),
        )
        for scene, asked in exams
    ]
    batch = Batch(*(np.stack(part) for part in zip(*parts, strict=True)))
    said = run.network.answers(tensors_of(batch)).numpy()
    return float(((said == batch.targets) | (batch.weights < 0.5)).all(1).mean())


def train(args: argparse.Namespace) -> None:
    """Run from the state file's step, or from zero, to `args.steps`; probe and save on the way."""
    run, losses = Run(args), deque[tuple[float, float]](maxlen=100)
    before = time.process_time() - run.seconds
    while run.optimizer.num_steps < args.steps:
        losses.append(run.step())
        run.seconds = time.process_time() - before
        done, stop = run.optimizer.num_steps, run.seconds > args.minutes * 60
        if done % args.save_every == 0 or done == args.steps or stop:
            run.save()
            patches, answers = np.mean(losses, axis=0).round(3).tolist()
            row = {
                "step": done,
                "seconds": round(run.seconds),
                "patches": patches,
                "answers": answers,
            }
            print(json.dumps({**row, **(probe(run) if done >= args.patches else {})}), flush=True)
        if stop:
            return


if __name__ == "__main__":
    args = arguments()
    torch.set_num_threads(args.threads)
    train(args)
