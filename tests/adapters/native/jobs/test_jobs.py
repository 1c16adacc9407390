"""`forkroot run`: items are checked first, results are the job's memory, a kill loses none."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from forkroot.adapters.native import CompiledProgram, assistant, function, gen, user
from forkroot.adapters.native.jobs.arguments import checker
from forkroot.adapters.native.jobs.items import Items
from forkroot.adapters.native.jobs.job import Job, JobOptions
from forkroot.adapters.native.jobs.results import Results
from forkroot.adapters.native.language.settings import Settings
from forkroot.adapters.testing import ScriptedBackend, prompt_text
from forkroot.core.api.protocol import (
    BackendClosed,
    CallTooLarge,
    InvalidCall,
    Overloaded,
)

pytestmark = pytest.mark.timeout(120)


@function
def ask(s: Any, question: str, tone: str = "kind") -> str:
    s += f"{question} ({tone}): " + gen("answer", max_tokens=8)
    return s["answer"]


@function
def talk(s: Any, question: str) -> None:
    s += user(f"{question}") + assistant(gen("answer", max_tokens=8))


@pytest.fixture(scope="module")
def program() -> CompiledProgram:
    return ask.compile(unknown=("tone",))


def echo(call: Any) -> str:
    return prompt_text(call.prompt).upper()


class Place:
    """The files of a job."""

    def __init__(self, folder: Path, program: CompiledProgram) -> None:
        self.args, self.out = folder / "items.jsonl", folder / "results.jsonl"
        self.program = program

    def write(self, *lines: Any) -> None:
        shown = [line if isinstance(line, str) else json.dumps(line) for line in lines]
        self.args.write_text("".join(f"{line}\n" for line in shown))

    def items(self) -> Items:
        return Items(self.args, checker(self.program.graph.parameters))

    def run(self, backend: Any, **options: Any) -> Any:
        settings = Settings(backend=backend)
        with closing(self.items()) as items:
            header = {"num_items": len(items), "arguments": items.digest}
            with closing(Results(self.out, header)) as results:
                begin = lambda arguments: self.program.new_run(settings, arguments)  # noqa: E731
                return Job(begin, items, results, JobOptions(**options)).execute()

    def records(self) -> list[dict[str, Any]]:
        _, *lines = self.out.read_text().splitlines()
        return sorted(map(json.loads, lines), key=lambda it: it["item"])


@pytest.fixture
def place(tmp_path: Path, program: CompiledProgram) -> Place:
    return Place(tmp_path, program)


def test_each_item_gets_a_line_with_variables_text_and_usage(place: Place) -> None:
    place.write({"question": "a"}, "", {"question": "b", "tone": "dry"})
    summary = place.run(ScriptedBackend(echo), with_meta=True)
    assert (summary.num_items, summary.num_done, summary.totals["calls"]) == (2, 2, 2)
    first, second = place.records()
    assert first["item"] == 0
    assert first["variables"] == {"answer": "A (KIND): "}
    assert first["value"] == "A (KIND): "
    assert first["text"] == "a (kind): A (KIND): "
    assert first["usage"]["calls"] == 1
    assert first["meta"]["answer"]["finish_reason"] == "stop"
    assert second["variables"] == {"answer": "B (DRY): "}


def test_a_chat_has_its_messages(tmp_path: Path) -> None:
    place = Place(tmp_path, talk.compile())
    place.write({"question": "a"})
    place.run(ScriptedBackend("b"))
    (record,) = place.records()
    assert record["messages"] == [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"},
    ]
    assert "text" not in record


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("{", "expected a JSON object of arguments"),
        ("[1]", "expected a JSON object of arguments, by name"),
        ('{"question": NaN}', "NaN is no number of JSON"),
        ('{"qestion": "a"}', r"line 2: qestion='a': expected .*did you mean question"),
        ('{"tone": "a"}', "line 2: question=None: expected a value: the program takes"),
        ('{"question": "\\ud800"}', "without lone surrogates"),
    ],
)
def test_a_wrong_item_is_named_by_its_line_before_anything_runs(
    place: Place, line: str, text: str
) -> None:
    place.write({"question": "a"}, line)
    with pytest.raises(InvalidCall, match=r"items\.jsonl, line 2.*" * bool(text) + "") as caught:
        place.items()
    with pytest.raises(InvalidCall, match=text):
        raise caught.value
    assert not place.out.exists()


def test_results_of_other_items_or_of_nothing_are_refused(place: Place) -> None:
    place.write({"question": "a"})
    place.run(ScriptedBackend(echo))
    place.write({"question": "b"})
    with pytest.raises(InvalidCall, match=r"the one of this job \(arguments is "):
        place.run(ScriptedBackend(echo))
    place.out.write_text("my own notes\n")
    with pytest.raises(InvalidCall, match="a new file, or one that forkroot run wrote"):
        place.run(ScriptedBackend(echo))
    assert place.out.read_text() == "my own notes\n"


def test_items_that_fail_are_written_counted_and_run_again_only_if_asked_for(
    place: Place,
) -> None:
    place.write(*({"question": name} for name in "abc"))

    def failing(call: Any) -> str:
        if prompt_text(call.prompt).startswith("b"):
            raise CallTooLarge("prompt", "b", "less")
        return echo(call)

    summary = place.run(ScriptedBackend(failing))
    assert (summary.num_done, dict(summary.errors)) == (2, {"CallTooLarge": 1})
    error = place.records()[1]["error"]
    assert error == {
        "type": "CallTooLarge",
        "message": "invalid prompt='b': expected less",
        "field": "prompt",
    }
    backend = ScriptedBackend(echo)
    summary = place.run(backend)
    assert (backend.calls, summary.num_before, dict(summary.errors)) == ([], 2, {"CallTooLarge": 1})
    summary = place.run(backend, retries_failed=True)
    assert (len(backend.calls), summary.num_done, dict(summary.errors)) == (1, 1, {})
    again = place.run(backend)
    assert (len(backend.calls), again.num_before, dict(again.errors)) == (1, 3, {})


def test_errors_that_pass_are_tried_again(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    from forkroot.adapters.native.jobs import job

    monkeypatch.setattr(job, "pause_before", lambda num, error: 0.0)
    place.write({"question": "a"})
    answers = [Overloaded("full"), Overloaded("full"), "well"]
    summary = place.run(ScriptedBackend(answers))
    assert (summary.num_done, place.records()[0]["retries"]) == (1, 2)
    place.out.unlink()
    summary = place.run(ScriptedBackend([Overloaded("full")] * 9), max_retries=2)
    assert dict(summary.errors) == {"Overloaded": 1}
    assert place.records()[0]["retries"] == 2


def test_a_backend_that_ends_stops_the_job_and_its_items_are_run_the_next_time(
    place: Place,
) -> None:
    place.write(*({"question": str(num)} for num in range(6)))
    answers = ["one", "two", BackendClosed("gone")]
    with pytest.raises(BackendClosed, match="gone"):
        place.run(ScriptedBackend(answers), concurrency=1)
    assert [record["item"] for record in place.records()] == [0, 1]
    backend = ScriptedBackend(echo)
    summary = place.run(backend)
    assert (len(backend.calls), summary.num_before, summary.num_done) == (4, 2, 4)


def test_a_torn_last_line_is_removed_and_its_item_run_again(place: Place) -> None:
    place.write({"question": "a"}, {"question": "b"})
    place.run(ScriptedBackend(echo), concurrency=1)
    content = place.out.read_bytes()
    for cut in (1, 20, len(content.splitlines()[-1])):
        place.out.write_bytes(content[:-cut])
        backend = ScriptedBackend(echo)
        place.run(backend)
        assert len(backend.calls) == 1
        assert [record["item"] for record in place.records()] == [0, 1]


def test_as_many_items_as_allowed_are_at_work(place: Place) -> None:
    place.write(*({"question": str(num)} for num in range(12)))
    seen: list[int] = []
    backend = ScriptedBackend(echo, delay=0.01)

    def counting(call: Any) -> str:
        seen.append(sum(not reply.done() for reply in backend.replies))
        return echo(call)

    backend._script = counting
    place.run(backend, concurrency=3)
    assert 1 < max(seen) <= 3


CHILDREN = """
import os, sys
from pathlib import Path
import forkroot.__main__ as command
from forkroot.adapters.native.jobs import command as jobs
from forkroot.adapters.testing import ScriptedBackend, prompt_text

folder = Path(sys.argv[1])
log = os.open(folder / "calls", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

def answer(call):
    os.write(log, prompt_text(call.prompt).split(" ")[0].encode() + b"\\n")
    return "well"

command.load = lambda options: ScriptedBackend(answer, delay=0.002)
line = ["run", str(folder / "program.json"), "--args", str(folder / "items.jsonl")]
line += ["--out", str(folder / "results.jsonl"), "--concurrency", "4"]
for _ in sys.stdin:
    pid = os.fork()
    if pid == 0:
        code = command.main(line)
        sys.stdout.flush()
        os._exit(code)
    print("pid", pid, flush=True)
    print("end", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


class Children:
    """Processes of the command, each forked off one that has all modules loaded."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def start(self) -> int:
        """Start one; its process id."""
        self._write("go\n")
        return int(self._line("pid")[-1])

    def wait(self) -> tuple[int, str]:
        """Its exit code, and what it has printed."""
        lines = [self._line(None)]
        while lines[-1][0] != "end":
            lines.append(self._line(None))
        return int(lines[-1][-1]), "\n".join(" ".join(line) for line in lines[:-1])

    def _write(self, text: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(text)
        self._process.stdin.flush()

    def _line(self, first: str | None) -> list[str]:
        assert self._process.stdout is not None
        found = self._process.stdout.readline().split()
        assert found and first in (None, found[0])
        return found


@contextmanager
def children(folder: Path) -> Iterator[Children]:
    command = [sys.executable, "-c", CHILDREN, str(folder)]
    pipe = subprocess.PIPE
    with (
        (folder / "errors").open("w") as errors,
        subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=errors, text=True) as found,
    ):
        try:
            yield Children(found)
        finally:
            found.kill()


def test_a_job_that_is_killed_at_random_moments_loses_no_item_and_asks_none_twice(
    place: Place, tmp_path: Path
) -> None:
    num_items, num_kills = 600, 20
    place.program.save(tmp_path / "program.json")
    place.write(*({"question": f"q{num}"} for num in range(num_items)))
    calls, chance = tmp_path / "calls", random.Random(5)
    kept: set[str] = set()  # questions whose answers were there when a process was killed
    asked_again = Counter[str]()
    with children(tmp_path) as found:
        for _ in range(num_kills):
            before = calls.stat().st_size if calls.exists() else 0
            pid, wanted = found.start(), chance.randint(1, 15)
            while not calls.exists() or calls.read_bytes()[before:].count(b"\n") < wanted:
                time.sleep(0.0005)
            time.sleep(chance.random() * 0.01)
            os.kill(pid, signal.SIGKILL)
            assert found.wait()[0] == -signal.SIGKILL
            asked = calls.read_bytes()[before:].decode().split()
            asked_again.update(name for name in asked if name in kept)
            kept |= {f"q{it['item']}" for it in whole(place.out)}
        assert 0 < len(kept) < num_items
        before = calls.stat().st_size
        found.start()
        code, printed = found.wait()
    assert (code, (tmp_path / "errors").read_text()) == (0, "")  # no progress: nobody watches
    assert printed.startswith(f"{num_items} of {num_items} items have ended well ({len(kept)} of")
    asked = calls.read_bytes()[before:].decode().split()
    assert sorted(asked) == sorted({f"q{num}" for num in range(num_items)} - kept)
    assert asked_again == Counter()
    assert [record["item"] for record in place.records()] == list(range(num_items))


def whole(path: Path) -> list[dict[str, Any]]:
    """The records of a file that somebody may have been writing."""
    if not path.exists():
        return []
    lines = path.read_bytes().split(b"\n")
    return [json.loads(line) for line in lines[1:-1]]
