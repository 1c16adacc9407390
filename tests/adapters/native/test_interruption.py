"""Ctrl-C in a batch or a job: one line says what was finished, and how to go on."""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from forkroot.__main__ import main
from forkroot.adapters.native import function, gen
from forkroot.adapters.native.interruption import interrupted, print_without_traceback
from forkroot.adapters.testing import ScriptedBackend, prompt_text

pytestmark = pytest.mark.timeout(60)


@function
def ask(s: Any, question: str) -> None:
    s += f"{question}" + gen("answer", max_tokens=8)


class Stopped(ScriptedBackend):
    """It answers two calls, and presses Ctrl-C at the third, which it never answers."""

    def submit(self, call: Any) -> Any:
        reply = super().submit(call)
        number = len(self.calls)
        if number <= 2:
            self.release(number - 1)
        elif number == 3:
            threading.Timer(0.05, press_ctrl_c).start()
        return reply


def press_ctrl_c() -> None:
    main_thread = threading.main_thread().ident
    assert main_thread is not None
    signal.pthread_kill(main_thread, signal.SIGINT)


@pytest.fixture(autouse=True)
def _as_in_a_terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "excepthook", sys.__excepthook__)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def stopped() -> Stopped:
    return Stopped(lambda call: prompt_text(call.prompt).upper(), is_held=True)


@pytest.mark.parametrize("is_kept", [False, True])
def test_ctrl_c_in_a_batch_says_how_many_items_ended_and_how_to_go_on(
    is_kept: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    items = [{"question": question} for question in "abcde"]
    file = tmp_path / "batch.jsonl"
    settings: dict[str, Any] = {"checkpoint": file} if is_kept else {}
    with pytest.raises(KeyboardInterrupt) as caught:
        ask.run_batch(items, backend=stopped(), num_threads=1, **settings)
    assert type(caught.value) is KeyboardInterrupt  # Python then ends as after any Ctrl-C
    assert caught.value.__suppress_context__
    text = "2 of 5 items had ended well"
    if is_kept:
        text += f" and are in {file}; run it again to ask only for the others"
    else:
        how = 'with run_batch(..., checkpoint="FILE") run it again'
        text += f"; {how} to ask only for the others"
    assert str(caught.value) == text
    sys.excepthook(KeyboardInterrupt, caught.value, caught.value.__traceback__)
    assert capsys.readouterr().err == f"\nKeyboardInterrupt: {text}\n"
    if is_kept:
        again = ScriptedBackend("x")
        ask.run_batch(items, backend=again, **settings)
        assert len(again.calls) == 3


def test_other_errors_keep_their_traceback_and_a_hook_of_somebody_else_stays(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    print_without_traceback(interrupted(1, 2, None))
    sys.excepthook(ValueError, ValueError("other"), None)
    assert capsys.readouterr().err.endswith("ValueError: other\n")
    hook = lambda *details: None  # noqa: E731
    monkeypatch.setattr(sys, "excepthook", hook)
    print_without_traceback(interrupted(1, 2, None))
    assert sys.excepthook is hook


def test_ctrl_c_in_a_job_says_how_many_items_have_a_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program, args, out = (tmp_path / name for name in ("ask.json", "items.jsonl", "out.jsonl"))
    ask.compile().save(program)
    args.write_text("".join(json.dumps({"question": it}) + "\n" for it in "abcde"))
    monkeypatch.setattr("forkroot.__main__.connect", lambda *given, **settings: stopped())
    command = ["run", str(program), "--args", str(args), "--out", str(out), "--concurrency", "1"]
    assert main(command) == 130
    line = "interrupted: 2 of 5 items have a result; the same command runs only the others"
    assert capsys.readouterr().err == f"\nforkroot: {line}\n"
