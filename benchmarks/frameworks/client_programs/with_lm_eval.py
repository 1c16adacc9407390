"""lm-evaluation-harness: choices by log-probability, perplexity and generation on completions, and
chats; with tokens or texts on the wire, one at a time and in batches."""

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import lm_eval
from lm_eval.tasks import TaskManager

URL = os.environ["FORKROOT_URL"] + "/v1"
ROWS = [
    {"q": "The capital of France is", "choices": [" Paris", " Rome"], "gold": 0},
    {"q": "The capital of Italy is", "choices": [" Oslo", " Rome"], "gold": 1},
]
CHOICES = {
    "doc_to_choice": "{{choices}}",
    "doc_to_target": "{{gold}}",
    "target_delimiter": "",
}
GENERATED = {
    "doc_to_target": "{{choices[gold]}}",
    "generation_kwargs": {"until": ["."], "max_gen_toks": 8, "do_sample": False},
    "metric_list": [{"metric": "exact_match"}],
}
ROLLING = {
    "doc_to_text": "",
    "doc_to_target": "{{q}}",
    "metric_list": [{"metric": "word_perplexity"}],
}
TASKS = {"multiple_choice": CHOICES, "generate_until": GENERATED, "loglikelihood_rolling": ROLLING}
TOKENIZED = {"tokenizer_backend": "remote"}
PLAIN = {"tokenized_requests": False, "tokenizer_backend": "none"}
RUNS: list[tuple[str, str, dict[str, Any], list[str]]] = [
    ("local-completions", "completions", TOKENIZED, list(TASKS)),
    ("local-completions", "completions", {**TOKENIZED, "batch_size": 4}, list(TASKS)),
    ("local-completions", "completions", PLAIN, ["generate_until"]),
    ("local-chat-completions", "chat/completions", {}, ["generate_until"]),
]


def write_tasks(folder: Path) -> TaskManager:
    """The tasks above on the rows above."""
    data = folder / "rows.json"
    data.write_text("\n".join(map(json.dumps, ROWS)))
    for kind, fields in TASKS.items():
        task = {
            "task": f"capitals_{kind}",
            "dataset_path": "json",
            "dataset_kwargs": {"data_files": {"test": str(data)}},
            "test_split": "test",
            "output_type": kind,
            "doc_to_text": "{{q}}",
            **fields,
        }
        (folder / f"{kind}.yaml").write_text(json.dumps(task))  # JSON is YAML
    return TaskManager(include_path=str(folder), include_defaults=False)


with tempfile.TemporaryDirectory() as folder:
    manager = write_tasks(Path(folder))
    for model, route, settings, kinds in RUNS:
        options = {k: v for k, v in settings.items() if k == "batch_size"}
        found = lm_eval.simple_evaluate(
            model=model,
            model_args={
                "model": "tiny",
                "base_url": f"{URL}/{route}",
                "num_concurrent": 2,
                "max_retries": 1,
                **{k: v for k, v in settings.items() if k not in options},
            },
            tasks=[f"capitals_{kind}" for kind in kinds],
            task_manager=manager,
            bootstrap_iters=0,
            apply_chat_template=model == "local-chat-completions",
            **options,
        )
        results = found["results"]
        if "multiple_choice" in kinds:
            assert results["capitals_multiple_choice"]["acc,none"] == 1.0, results
            assert results["capitals_loglikelihood_rolling"]["word_perplexity,none"] > 1
        output = [it["resps"][0][0] for it in found["samples"]["capitals_generate_until"]]
        assert len(output) == len(ROWS) and all(output), output
        print(model, settings, output)
