"""guidellm: load on completions, chats and responses, streamed and whole, in several profiles."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

URL, MODEL = os.environ["FORKROOT_URL"], os.environ["FORKROOT_MODEL"]
RUNS = [
    ("/v1/completions", True, {"kind": "concurrent", "streams": [4]}),
    ("/v1/completions", False, {"kind": "synchronous"}),
    ("/v1/chat/completions", True, {"kind": "poisson", "rate": [20]}),
    ("/v1/chat/completions", False, {"kind": "throughput", "max_concurrency": 8}),
    ("/v1/responses", True, {"kind": "concurrent", "streams": [4]}),
    ("/v1/responses", False, {"kind": "constant", "rate": [20]}),
]
DATA = {"kind": "synthetic_text", "prompt_tokens": 64, "output_tokens": 8}
REQUESTS = 12


def run(folder: Path, route: str, is_streamed: bool, profile: dict[str, object]) -> None:
    """One benchmark; every request has to succeed, with as many tokens as requested."""
    path = folder / "report.json"
    backend = {
        "kind": "openai_http",
        "target": URL,
        "model": "tiny",
        "api_key": "any",
        "request_format": route,
        "stream": is_streamed,
    }
    settings = {
        "backend": backend,
        "profile": profile,
        "tokenizer": {"kind": "hf_auto", "model": MODEL},
        "data": DATA,
        "constraint": {"kind": "max_requests", "count": REQUESTS},
        "output": {"kind": "json", "path": str(path)},
    }
    options = [f"--{name}={json.dumps(value)}" for name, value in settings.items()]
    command = [str(Path(sys.executable).with_name("guidellm")), "run", *options]
    subprocess.run([*command, "--disable-console"], check=True)
    (benchmark,) = json.loads(path.read_text())["benchmarks"]
    requests = benchmark["requests"]
    done, failed = requests["successful"], requests["errored"] + requests["incomplete"]
    assert len(done) == REQUESTS and not failed, (route, len(done), failed[:1])
    assert all(it["output_metrics"]["text_tokens"] == 8 for it in done), done[0]
    print(route, "streamed" if is_streamed else "whole", profile["kind"], len(done), "requests")


with tempfile.TemporaryDirectory() as folder:
    for route, is_streamed, profile in RUNS:
        run(Path(folder), route, is_streamed, profile)
