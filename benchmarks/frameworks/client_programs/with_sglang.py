"""SGLang's load generator: its backends that generate text, for each kind of request: streams,
whole answers, log-probabilities, token ids, chats, several turns, and with a flushed cache."""

import json
import os
import sys
import tempfile
from pathlib import Path

from sglang.benchmark import serving

URL, MODEL = os.environ["FORKROOT_URL"], os.environ["FORKROOT_MODEL"]
REQUESTS, LENGTH = 8, 8
RANDOM = ["--dataset-name=random-ids", "--random-input-len=48", "--random-range-ratio=1.0"]
RANDOM += [f"--random-output-len={LENGTH}"]
SHARED = ["--dataset-name=generated-shared-prefix", "--gsp-num-groups=2"]
SHARED += ["--gsp-prompts-per-group=4", "--gsp-system-prompt-len=64", "--gsp-question-len=16"]
SHARED += [f"--gsp-output-len={LENGTH}", "--gsp-fast-prepare", "--gsp-range-ratio=1.0"]
LOGPROBS = ["--return-logprob", "--top-logprobs-num=2"]
RUNS = [
    ("sglang", RANDOM),
    ("sglang", [*RANDOM, *LOGPROBS, "--logprob-start-len=0"]),
    ("sglang", [*RANDOM, *LOGPROBS, "--disable-stream"]),
    ("sglang", [*SHARED, "--flush-cache", "--cache-report"]),
    ("sglang", [*RANDOM, "--tokenize-prompt"]),
    ("sglang-native", RANDOM),
    ("sglang-oai", [*RANDOM, *LOGPROBS]),
    ("sglang-oai", [*SHARED, "--flush-cache"]),
    ("sglang-oai-chat", [*RANDOM, "--apply-chat-template"]),
    ("sglang-oai-chat", [*RANDOM, "--disable-stream"]),
    ("sglang-oai-chat", [*SHARED, "--gsp-num-turns=2"]),
    ("vllm", [*RANDOM, "--flush-cache"]),
    ("vllm-chat", RANDOM),
    ("lmdeploy", RANDOM),
    ("lmdeploy-chat", RANDOM),
]


def options_of(backend: str, more: list[str], out: Path) -> list[str]:
    """The options of one run."""
    return [
        f"--backend={backend}",
        f"--base-url={URL}",
        f"--model={MODEL}",
        "--served-model-name=tiny",
        f"--tokenizer={MODEL}",
        f"--num-prompts={REQUESTS}",
        "--warmup-requests=1",
        "--max-concurrency=4",
        f"--output-file={out}",
        "--output-details",
        "--disable-tqdm",
        *more,
    ]


def run(backend: str, more: list[str], out: Path) -> None:
    """One run; every request has to succeed, with as many tokens as requested."""
    sys.argv = ["serving", *options_of(backend, more, out)]
    serving.cli_main()
    row = json.loads(out.read_text().splitlines()[-1])
    failed = [error for error in row["errors"] if error]
    wanted = REQUESTS * (2 if "--gsp-num-turns=2" in more else 1)
    assert row["completed"] == wanted and not failed, (backend, more, row["completed"], failed)
    assert row["output_lens"] == [LENGTH] * wanted, (backend, more, row["output_lens"])
    print("done:", backend, *more)


with tempfile.TemporaryDirectory() as folder:
    for backend, more in RUNS:
        run(backend, more, Path(folder) / "out.jsonl")
