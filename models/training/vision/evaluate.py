"""How well the embedded model sees: `python -m forkroot.models.training.vision.evaluate`.

Answers are decoded greedily by transformers in fp32, and are right where they and their end are
exactly the expected ones. The result is EVAL.md beside the weights.
"""

import argparse
import itertools
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors.torch import load
from tokenizers import Tokenizer
from tqdm import tqdm
from transformers import AutoModelForImageTextToText, AutoTokenizer

from ....core.model.hub.folders import model_folder
from ..batches import encode
from ..network import Network, Shape, llama_name
from ..probe import right_tokens
from ..report import Row
from ..scenes.drawing import draw
from ..scenes.scene import WORDS
from ..tasks.world import documents
from ..tokenizer import IMAGE
from ..train import runs_of
from ..world.data import table_of
from .exams import SUBJECTS, Exam, Subject, exams_of
from .network import normalised
from .rows import NUM_PATCHES, SIZE, row_of
from .train import TINY_VISION

BATCH_SIZE, NUM_TEXTS = 25, 400


class Prompt(NamedTuple):
    """A prompt, with its beginning-of-text token and one image token, and what should follow."""

    prompt: str
    answer: str


def prompt_of(rng: random.Random, exam: Exam) -> Prompt:
    """The question in one of the formats of training."""
    row = row_of(rng, [exam.asked])
    texts = [text for text, _ in row.blocks[0]]
    before = texts[:-2]
    return Prompt(row.prompt + "".join(before), "".join(texts[-2:]))


class Student:
    """The checkpoint, answering greedily. missing: names of weights that its files or its
    architecture lack."""

    def __init__(self, folder: Path) -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
        model, found = AutoModelForImageTextToText.from_pretrained(
            folder, dtype=torch.float32, output_loading_info=True
        )
        self.model: Any = model
        self.missing = [*found["missing_keys"], *found["unexpected_keys"]]

    @torch.no_grad()
    def answers(self, pictures: Sequence[Any], prompts: Sequence[str], most: int) -> list[str]:
        """What the model says to each prompt about its picture, special tokens included, padding
        not; `most` tokens at most."""
        texts = [prompt.replace(IMAGE, IMAGE * NUM_PATCHES) for prompt in prompts]
        encoded = self.tokenizer(texts, return_tensors="pt", padding=True, add_special_tokens=False)
        encoded.pop("token_type_ids", None)
        pixels = normalised(np.stack(pictures), torch.float32)
        out: torch.Tensor = self.model.generate(
            **encoded, pixel_values=pixels, max_new_tokens=most, do_sample=False
        )
        said = self.tokenizer.batch_decode(out[:, encoded["input_ids"].shape[1] :])
        return [text.replace(self.tokenizer.pad_token, "") for text in said]


def ask(student: Student, subject: Subject, count: int, seed: int, show: int) -> Row:
    """Score one subject on `count` held-out scenes; print the first `show` wrong answers."""
    rng, right, said = random.Random(seed), list[bool](), list[str]()
    exams = exams_of(subject, count, seed)
    prompts = [prompt_of(rng, exam) for exam in exams]
    for start in range(0, count, BATCH_SIZE):
        some = slice(start, start + BATCH_SIZE)
        pictures = [draw(exam.scene, SIZE) for exam in exams[some]]
        longest = max(len(student.tokenizer.encode(it.answer)) for it in prompts[some])
        said += student.answers(pictures, [it.prompt for it in prompts[some]], longest + 2)
    for exam, prompt, text in zip(exams, prompts, said, strict=True):
        right.append(text.startswith(prompt.answer))
        if not right[-1] and show > 0:
            show -= 1
            tqdm.write(
                f"--- {exam.scene}\n{prompt.prompt[-80:]!r}\n>>> {text!r}\n!!! {prompt.answer!r}"
            )
    share = sum(right) / count
    return Row(subject.title, count, share, subject.bar, prompts[0], said[0])  # type: ignore[arg-type]


def text_share(folder: Path, prefix: str, count: int) -> float:
    """Of `count` held-out texts, the mean share of answer tokens that a checkpoint's text model
    would give, each after the right ones before it. prefix: of its tensors' names."""
    tensors = load((folder / "model.safetensors").read_bytes())
    network = Network(Shape())
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            parameter.copy_(tensors[prefix + llama_name(name)])
    tokenizer, shares = Tokenizer.from_file(str(folder / "tokenizer.json")), list[float]()
    for doc in itertools.islice(documents(99, held_out=True), count):
        tokens, weights = encode(tokenizer, doc, by_part=False)
        right = right_tokens(network, tokens)
        answers = [ok for ok, weight in zip(right, weights[1:], strict=True) if weight >= 1]
        shares.append(sum(answers) / len(answers))
    return sum(shares) / count


def report(
    rows: list[Row], seed: int, folder: Path, num_parameters: int, texts: tuple[float, float]
) -> str:
    """The whole of EVAL.md."""
    runs = runs_of(folder)
    data = table_of(__file__)
    text: str = data["template"]
    return text.format(
        news=data["news"].strip().format(run=runs[-1]),
        table="\n".join(row.line for row in rows),
        examples="\n".join(row.example for row in rows),
        seed=seed,
        first=runs[0],
        run=runs[-1],
        size=SIZE,
        num_words=len(WORDS),
        num_texts=NUM_TEXTS,
        text=texts,
        num_parameters=num_parameters,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m forkroot.models.training.vision.evaluate", description=__doc__
    )
    parser.add_argument("--count", type=int, default=250, help="pictures per subject")
    parser.add_argument("--seed", type=int, default=13)
    parser.add_argument("--only", default="", help="part of the titles to ask")
    parser.add_argument("--show", type=int, default=0, help="wrong answers to print per subject")
    parser.add_argument(
        "--folder", default=None, help='a whole checkpoint instead of "tiny-vision"'
    )
    args = parser.parse_args()
    student, rows = Student(Path(args.folder or model_folder("tiny-vision"))), list[Row]()
    for subject in tqdm([it for it in SUBJECTS if args.only in it.title]):
        rows.append(ask(student, subject, args.count, args.seed, args.show))
        row = rows[-1]
        tqdm.write(f"{row.title:40} {row.asked:4} {row.share:.3f} {row.verdict}")
    if not args.only and args.folder is None:
        parts = (student.model.model.vision_tower, student.model.model.multi_modal_projector)
        count = sum(it.numel() for part in parts for it in part.parameters())
        texts = (
            text_share(model_folder("tiny"), "", NUM_TEXTS),
            text_share(model_folder("tiny-vision"), "language_model.", NUM_TEXTS),
        )
        text = report(rows, args.seed, TINY_VISION, count, texts)
        (TINY_VISION / "EVAL.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
