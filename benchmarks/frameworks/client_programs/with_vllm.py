"""vLLM's load generator (`vllm bench serve`): its backends that generate text, with random prompts,
repeated prefixes and log-probabilities, at a rate and as fast as possible."""

import json
import os
import tempfile
from pathlib import Path

from vllm.benchmarks import serve
from vllm.utils.argparse_utils import FlexibleArgumentParser

URL, MODEL = os.environ["FORKROOT_URL"], os.environ["FORKROOT_MODEL"]
REQUESTS, LENGTH = 8, 8
RANDOM = ["--dataset-name=random", "--random-input-len=48", f"--random-output-len={LENGTH}"]
SHARED = [
    "--dataset-name=prefix_repetition",
    "--prefix-repetition-prefix-len=64",
    "--prefix-repetition-suffix-len=16",
    "--prefix-repetition-num-prefixes=2",
    f"--prefix-repetition-output-len={LENGTH}",
]
ROUTES = {
    "vllm": "/v1/completions",
    "openai": "/v1/completions",
    "openai-chat": "/v1/chat/completions",
    "openai-responses": "/v1/responses",
}
RUNS = [
    *((backend, RANDOM) for backend in ROUTES),
    ("openai", [*RANDOM, "--logprobs=2", "--request-rate=50", "--temperature=0"]),
    ("openai", SHARED),
    ("openai-chat", [*SHARED, "--top-k=5", "--min-p=0.05", "--repetition-penalty=1.1"]),
]


def run(backend: str, more: list[str], folder: str) -> None:
    """One run; every request has to succeed, with as many tokens as requested."""
    parser = FlexibleArgumentParser()
    serve.add_cli_args(parser)
    options = [
        f"--backend={backend}",
        f"--base-url={URL}",
        f"--endpoint={ROUTES[backend]}",
        f"--model={MODEL}",
        "--served-model-name=tiny",
        f"--num-prompts={REQUESTS}",
        "--num-warmups=1",
        "--max-concurrency=4",
        "--ignore-eos",
        "--save-result",
        "--save-detailed",
        f"--result-dir={folder}",
        "--result-filename=out.json",
        "--disable-tqdm",
        *more,
    ]
    serve.main(parser.parse_args(options))
    row = json.loads((Path(folder) / "out.json").read_text())
    failed = [error for error in row["errors"] if error]
    assert row["completed"] == REQUESTS and not failed, (backend, more, failed)
    assert row["output_lens"] == [LENGTH] * REQUESTS, (backend, more, row["output_lens"])
    print("done:", backend, *more)


with tempfile.TemporaryDirectory() as folder:
    for backend, more in RUNS:
        run(backend, more, folder)
