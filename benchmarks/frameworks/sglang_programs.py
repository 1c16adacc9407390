"""SGLang's published programs, unchanged but for their import, on the native language.

    python benchmarks/frameworks/sglang_programs.py FOLDER

FOLDER: a checkout of SGLang, or any part of one (`benchmark/`, `examples/frontend_language/`). Each
program that uses the frontend runs in a process of its own with a few lines of synthetic input;
`import sglang` finds `forkroot.sglang` there, the helpers that the programs import beside the
frontend are stand-ins (`sglang_stand_ins.py`), and every server, runtime and API model is the one
backend of the run. A program has run if it ended well. Prints a line for each and one JSON row.
`--model scripted`: without a model, for programs that show images to one.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from forkroot.benchmarks.common.pictures import clip
from forkroot.benchmarks.common.report import parser, report
from forkroot.core.media.encode import png

CHILD = Path(__file__).with_name("sglang_stand_ins.py")
USES_IT = re.compile(r"^\s*(import sglang\b|from sglang(\.lang\.api)? import)", re.MULTILINE)
IS_PROGRAM = re.compile(r"^\s*@(sgl\.)?function\b", re.MULTILINE)
MATHS = [
    {"question": "Ann has 3 apples and buys 4. How many are there?", "answer": "3 + 4 = 7 #### 7"},
    {"question": "A box holds 6 pens. How many do 2 boxes hold?", "answer": "6 * 2 = 12 #### 12"},
    {"question": "Tom had 9 coins and lost 4. How many are left?", "answer": "9 - 4 = 5 #### 5"},
]
CITIES = [
    {"document": "Lisbon is the capital of Portugal. Its population is 545,923."},
    {"document": "Oslo is the capital of Norway. Its population is 709,037."},
]
PASSAGES = [
    {"question": "is water wet", "passage": " Water is wet.", "answer": True},
    {"question": "is fire cold", "passage": " Fire is hot.", "answer": False},
]
ENDINGS = [
    {"activity_label": "Cooking", "ctx": "A man cuts bread. He", "label": 0}
    | {"endings": ["eats it.", "flies away.", "is a stone.", "sings to the moon."]},
    {"activity_label": "Running", "ctx": "A woman runs. She", "label": 1}
    | {"endings": ["is a tree.", "gets tired.", "turns blue.", "eats a chair."]},
]
QUIZ = 'What is 1 + 1?,1,2,3,4,B\n"What is the capital of France?",Rome,Oslo,Paris,Bern,C\n'
TURNS = [{"question_id": 1, "turns": ["What is the capital of France?", "And of Japan?"]}]
AGENTS = [
    {"poignancy_event": {"persona_name": "Ann", "persona_iss": "Ann paints.", "event": "a walk"}},
    {"generate_event_triple": {"persona_name": "Ann", "action": "sleeping"}},
    {"generate_pronunciatio": {"action": "reading a book"}},
]
STEPS = [
    {
        "What is the capital of France?": [
            {"thought": "I look it up.", "action": "Search[France]", "observation": "Paris is."},
        ]
    },
]
DOCUMENTS = {
    "documents": ["Paris is in France.", "Oslo is in Norway."],
    "questions": ["Where is Paris?", "Where is Oslo?"],
    "answers": ["France", "Norway"],
}
LINES = {
    "prefix": "Remember these lines.", "suffix": "What is in line ???? It is",
    "lines": [f"line {i}: value {i * 7}" for i in range(12)],
    "indices": [str(i) for i in range(12)], "values": [str(i * 7) for i in range(12)],
    "links": [[] for _ in range(12)], "group_by_num_hoops": {"1": list(range(10))},
}  # fmt: skip
ANIMALS = {
    f"images/{name}.jpeg": png(clip(number, 1)) for number, name in enumerate(("cat", "dog"))
}


class Case(NamedTuple):
    """What a program is started with. files: by their paths; lists are written line by line."""

    options: str = ""
    files: dict[str, Any] = {}  # noqa: RUF012 - never changed


CASES = {  # by the folder of the program in SGLang's benchmark/, or by the name of its file
    "gsm8k": Case("--num-shots 1 --num-questions 2", {"test.jsonl": MATHS}),
    "hellaswag": Case("--num-shots 1 --num-questions 2", {"hellaswag_val.jsonl": ENDINGS}),
    "boolq": Case(
        "--num-shots 1 --num-questions 2 --train-data-path a.jsonl --test-data-path a.jsonl",
        {"a.jsonl": PASSAGES},
    ),
    "mmlu": Case("--ntrain 1", {"data/dev/m_dev.csv": QUIZ, "data/test/m_test.csv": QUIZ}),
    "ceval": Case("--data-path ceval --num-questions 2", {"ceval/law/a": ""}),
    "mtbench": Case("", {"question.jsonl": TURNS}),
    "llm_judge": Case("", {"articles.jsonl": ["Small markets save money.", "Rain is wet."]}),
    "multi_chain_reasoning": Case("--num-questions 2 --num-chains 2", {"test.jsonl": MATHS}),
    "multi_document_qa": Case("", {"questions.jsonl": [DOCUMENTS]}),
    "multi_turn_chat": Case("--tokenizer tiny --num-qa 2 --min-len-q 8 --max-len-q 16"),
    "line_retrieval": Case(
        "--data-path lines.json --src-index 9 --num-queries-per-src 2",
        {"lines.json": json.dumps(LINES)},
    ),
    "tip_suggestion": Case("", {"topic.jsonl": [{"topic": "tea"}, {"topic": "running"}]}),
    "tree_of_thought_deep": Case("--num-questions 1", {"test.jsonl": MATHS}),
    "tree_of_thought_v0": Case("--num-questions 1", {"test.jsonl": MATHS}),
    "json_decode_regex": Case("", {"questions.jsonl": CITIES}),
    "json_jump_forward": Case("--mode city", {"questions.jsonl": CITIES}),
    "long_json_decode": Case("", {"questions.jsonl": CITIES}),
    "generative_agents": Case("", {"agent_calls.jsonl": AGENTS}),
    "react": Case("", {"hotpotqa_100.jsonl": STEPS}),
    "llava_bench": Case(
        "--parallel 1",
        {"questions.jsonl": [{"question_id": 1, "image": "a.png", "text": "What is it?"}]}
        | {"images/a.png": png(clip(2, 1))},
    ),
    **dict.fromkeys(
        ("local_example_llava", "local_example_llava_next", "local_example_yi_vl"),
        Case("", ANIMALS),
    ),
    "gemini_example_multimodal_chat": Case("", ANIMALS),
    "llava_video": Case("", {"jobs.mp4": png(clip(3, 16))}),
}


def main() -> None:
    options = parser(__doc__)
    options.add_argument("folder", type=Path)
    options.add_argument("--model", default="tiny")
    options.add_argument("--only", default="", help="programs whose path has this in it")
    options.add_argument("--seconds", type=float, default=300.0, help="for each program")
    given = options.parse_args()
    found = [path for path in programs(given.folder) if given.only in str(path)]
    if not found:
        sys.exit(f"no program with @sgl.function in {given.folder}")
    outcomes = {}
    for path in found:
        name = str(path.relative_to(given.folder))
        fault = run(path.resolve(), given.model, given.seconds)
        outcomes[name] = fault or "ran"
        print(f"{name:60} {outcomes[name]}", flush=True)
    num_ran = sum(one == "ran" for one in outcomes.values())
    figures = {"programs": len(outcomes), "ran": num_ran, "not": _others(outcomes)}
    report("sglang_programs", figures, given.out, model=given.model)


def programs(folder: Path) -> list[Path]:
    """The files of a folder that define programs with SGLang's frontend, and those that run such
    of their neighbours."""
    sources = {path: path.read_text("utf-8", "replace") for path in sorted(folder.rglob("*.py"))}
    found = {path for path, text in sources.items() if USES_IT.search(text)}
    return [
        path
        for path in sorted(found)
        if (
            "__main__" in sources[path]
            and (IS_PROGRAM.search(sources[path]) or path.name == "bench_sglang.py")
        )
        or (IS_PROGRAM.search(sources[path]) and "set_default_backend" in sources[path])
    ]


def run(path: Path, model: str, seconds: float) -> str:
    """What kept a program from ending well; "" if nothing did."""
    case = CASES.get(path.parent.name, CASES.get(path.stem, Case()))
    with tempfile.TemporaryDirectory() as folder:
        for name, content in case.files.items():
            write(Path(folder) / name, content)
        command = [sys.executable, str(CHILD), model, str(path), *case.options.split()]
        try:
            done = subprocess.run(
                command,
                cwd=folder,
                env=os.environ | {"HOME": folder},
                capture_output=True,
                text=True,
                timeout=seconds,
            )
        except subprocess.TimeoutExpired:
            return f"did not end within {seconds:.0f} s"
    if done.returncode == 0:
        return ""
    lines = [line for line in done.stderr.splitlines() if line.strip() and line[0] != " "]
    return lines[-1][:300] if lines else f"exit status {done.returncode}"


def write(path: Path, content: Any) -> None:
    """A file of a program's input; a list as one JSON value a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif isinstance(content, list):
        path.write_text("".join(json.dumps(line) + "\n" for line in content))
    else:
        path.write_text(content)


def _others(outcomes: dict[str, str]) -> dict[str, str]:
    return {name: fault for name, fault in outcomes.items() if fault != "ran"}


if __name__ == "__main__":
    main()
