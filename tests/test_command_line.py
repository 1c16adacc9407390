"""The command line, run in this process on the embedded model."""

from __future__ import annotations

import io
import json
import logging
import shutil
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.table import Table
from safetensors.torch import load_file, save_file

import forkroot
from forkroot.__main__ import main
from forkroot.adapters.common.console import console
from forkroot.adapters.connection import introduce
from forkroot.adapters.testing import ScriptedBackend
from forkroot.examples.chat import Conversation, talk

SMALL = ["--set", "num_slots=8192", "--set", "context_len=1024"]


def type_lines(monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in lines)))


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out == "forkroot 0.1.0\n"


def test_no_command_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main([])
    assert stop.value.code == 2
    out, err = capsys.readouterr()
    assert "COMMAND" in err
    assert "serve a model over HTTP" in err and "--version" in err
    assert out == ""


@pytest.mark.parametrize(
    ("typed", "command", "expected"),
    [
        ("srve", "forkroot", "invalid choice: 'srve'"),
        ("srve", "forkroot", "; did you mean serve?"),
        ("serve --prot 80", "forkroot serve", "arguments: --prot; did you mean --port?"),
        ("chat --temprature=1", "forkroot chat", "--temprature=1; did you mean --temperature?"),
        ("serve --model tiny", "forkroot serve", "; model is given without a name before it"),
        ("serve --on-engine-death restrt", "forkroot serve", "; did you mean restart?"),
        ("bench http://a --colour 1", "forkroot bench", "unrecognized arguments: --colour 1\n"),
        ("plugins all", "forkroot plugins", "unrecognized arguments: all\n"),
        ("serve tiny --tp 2", "forkroot serve", "; ranks is a setting: --set ranks=VALUE"),
        ("serve tiny --max-model-len 9", "forkroot serve", "; context_len is a setting: --set "),
        ("serve tiny --dtype float8", "forkroot serve", "; dtype is a setting: --set dtype=VALUE"),
        ("chat --chunk-token=8", "forkroot chat", "; chunk_tokens is a setting: --set chunk_tok"),
        ("bench http://a --dtype x", "forkroot bench", "unrecognized arguments: --dtype x\n"),
    ],
)
def test_an_unknown_name_on_the_command_line_gets_a_suggestion(
    typed: str, command: str, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(typed.split())
    printed = capsys.readouterr().err
    assert stop.value.code == 2
    assert printed.startswith(f"usage: {command} [-h]")
    assert printed.splitlines()[-1].startswith(f"{command}: error: ")
    assert expected in printed


@pytest.mark.parametrize("command", ["demo", "chat", "check"])
def test_a_misspelled_model_gets_a_suggestion(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, "tinny"]) in (1, 2)
    printed = " ".join("".join(capsys.readouterr()).split())
    assert "model='tinny' is not a folder here" in printed
    assert printed.endswith("did you mean 'tiny'?")


@pytest.mark.parametrize(
    ("message", "command"),
    [("Hello", 'chat tiny "Hello"'), ("Who are you?", 'chat tiny "Who are you?"'),
     ('Say "a"', "chat tiny 'Say \"a\"'")],
)  # fmt: skip
def test_a_message_in_the_place_of_the_model_gets_the_command_to_use(
    message: str, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["chat", message]) == 2
    err = capsys.readouterr().err
    assert f"model={message!r} is not a folder here; expected one of: a checkpoint folder" in err
    assert err.endswith(f"; did you mean forkroot {command}?\n")


def test_check_describes_the_embedded_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "tiny", *SMALL]) == 0
    out = capsys.readouterr().out
    assert "LlamaForCausalLM" in out
    assert "2,048 tokens" in out
    assert "8,192, for running and cached sequences" in out
    assert out.endswith("It can be run.\n")


@pytest.mark.parametrize("fields", [{"max_position_embeddings": 4096}, {}])
def test_check_reports_an_assumed_context_length(
    fields: dict[str, int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for file in (Path(forkroot.__file__).parent / "models" / "tiny").glob("*.json"):
        shutil.copy(file, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    del config["max_position_embeddings"]
    (tmp_path / "config.json").write_text(json.dumps({**config, **fields}))
    assert main(["check", str(tmp_path), *SMALL]) == 1  # without weights
    out = " ".join(capsys.readouterr().out.split())
    assumed = "2,048 tokens (assumed: config.json does not say max_position_embeddings)"
    assert f"context length {'4,096 tokens' if fields else assumed} chat template" in out


def test_check_describes_a_dummy_without_making_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forkroot.core.rank.load_model", None)
    main(["check", "--dummy", "llama-2-7b", "--set", "num_slots=2000"])
    out = capsys.readouterr().out
    assert "6,738,415,616" in out
    assert "25.1 GiB (float32), 12.6 GiB (bfloat16, float16)" in out
    assert "2,000, for running and cached sequences: " in out
    assert "trial run" not in out


def test_check_says_in_which_dtypes_loaded_weights_are_held(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def printed(*given: str) -> str:
        main(["check", *given, "--set", "num_slots=2000"])
        return " ".join(capsys.readouterr().out.split())

    sizes = "weights by dtype 14.3 MiB (float32), 7.2 MiB (bfloat16, float16)"
    out = printed()
    assert sizes in out
    held = "11.2 MiB of weights (matrices in bfloat16 as stored, embeddings in float32) and "
    assert f"takes here {held}" in out
    out = printed("--set", "dtype=bfloat16")
    assert sizes in out
    held = "9.2 MiB of weights (embeddings twice: as a table and as the output matrix) and "
    assert f"takes here {held}" in out
    assert "takes here 12.6 GiB of weights and " in printed(
        "--dummy", "llama-2-7b", "--set", "dtype=bfloat16"
    )


def test_check_reports_over_how_many_ranks_a_model_can_be_split(
    capsys: pytest.CaptureFixture[str],
) -> None:
    dummy = ["check", "--dummy", "llama-2-7b", "--set", "num_slots=2000", "--set"]
    assert main([*dummy, "ranks=3"]) == 1
    out = capsys.readouterr().out
    assert "ranks=3 does not divide num_attention_heads=32; expected 1, 2, 4, 8, 16, 32" in out
    main([*dummy, "ranks=2"])
    assert "weights of 2 ranks" in capsys.readouterr().out


def test_check_says_that_the_logits_of_a_checkpoint_are_not_finite(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = shutil.copytree(Path(forkroot.__file__).parent / "models" / "tiny", tmp_path / "bad")
    tensors = load_file(folder / "model.safetensors")
    tensors["model.norm.weight"].fill_(torch.nan)
    save_file(tensors, folder / "model.safetensors")
    assert main(["check", str(folder), *SMALL]) == 1
    printed = capsys.readouterr().out
    assert "It cannot be run. A call failed: " in printed
    assert "logits are not finite" in printed


def test_check_says_why_a_checkpoint_cannot_be_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = {"architectures": ["NoSuchForCausalLM"], "model_type": "none"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert main(["check", str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert "It cannot be run." in out
    assert "NoSuchForCausalLM" in out


def test_check_does_not_judge_a_model_that_was_not_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    assert main(["check", "owner/name"]) == 1
    printed = capsys.readouterr().out
    assert (
        "It was not found. model='owner/name' is not a folder here, and HF_HUB_OFFLINE" in printed
    )
    assert main(["check", "owner/name", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["runs"] is None


def test_a_model_that_is_not_there_is_one_line_on_stderr(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["chat", "no/such/folder"]) == 2
    printed = capsys.readouterr().err
    assert printed.splitlines()[-1].startswith("forkroot: model='no/such/folder'")
    assert "Traceback" not in printed


def test_an_unknown_setting_is_named_with_what_is_allowed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["chat", "--set", "colour=11"]) == 2
    printed = capsys.readouterr().err
    assert "invalid colour=11" in printed
    assert "chunk_tokens" in printed
    assert "connect: process, restart, revision, replicas, policy (see" in printed


@pytest.mark.parametrize(
    ("setting", "suggested"),
    [
        ("slots=4", "num_slots or host_slots or feature_slots"),
        ("chunk=4", "chunk_tokens"),
        ("gpu_device=cpu", "device"),
        ("num_slot=4", "num_slots"),
    ],
)
def test_an_unknown_setting_gets_similar_names_and_those_that_share_a_part_with_it(
    setting: str, suggested: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["chat", "--set", setting]) == 2
    err = capsys.readouterr().err
    assert err.endswith(f"(see docs/settings.md); did you mean {suggested}?\n")


@pytest.mark.parametrize("command", ["chat", "demo", "check", "serve"])
def test_settings_are_checked_before_a_hub_model_is_asked_for(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("forkroot.__main__.located", None)
    monkeypatch.setattr("forkroot.core.requirements.find", None)
    port = ["--port", "0"] if command == "serve" else []
    assert main([command, "org/name", *port, "--set", "max_runing=4"]) == 2
    expected = "invalid max_runing=4: expected a setting of the engine (see docs/settings.md)"
    assert capsys.readouterr().err == f"forkroot: {expected}; did you mean max_running?\n"


def test_a_system_text_that_is_invalid_is_refused_before_a_model_is_loaded(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("forkroot.__main__.connect", None)
    assert main(["chat", "--system", "\udcff"]) == 2
    assert capsys.readouterr().err.startswith("forkroot: invalid system=")


def test_a_setting_without_a_value_is_refused_with_its_syntax(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["chat", "--set", "num_slots"]) == 2
    expected = "invalid set='num_slots': expected NAME=VALUE, such as chunk_tokens=256"
    assert expected in capsys.readouterr().err


def test_too_many_essays_are_refused_with_the_number_in_the_box(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["demo", "--essays", "1000"]) == 2
    assert "invalid essays=1000: expected 1 to " in capsys.readouterr().err


def test_a_piped_chat_answers_each_line_and_can_forget(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    question = "What is the capital of France?"
    type_lines(monkeypatch, question, "", "/clear", question, "/quit", "not said")
    assert main(["chat", "--max-tokens", "12", *SMALL]) == 0
    answers = capsys.readouterr().out.splitlines()
    assert len(answers) == 2
    assert answers[0] == answers[1] != ""


def test_a_line_of_a_pipe_that_cannot_be_answered_is_reported_and_the_others_are_answered(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    typed = b"What is the capital of France?\n\xff\xfe?\n/nonsense\n" + b"a b " * 900 + b"\n"
    typed += b"/clear\nWhat is the capital of France?\n"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(typed), "utf-8"))
    assert main(["chat", "--max-tokens", "12", *SMALL]) == 2
    out, err = capsys.readouterr()
    answers = out.splitlines()
    assert len(answers) == 2
    assert answers[0] == answers[1] != ""
    reported = [line for line in err.splitlines() if line.startswith("forkroot: ")]
    allowed = [line.partition(": expected ") for line in reported]
    assert allowed[0][0] == r"forkroot: line 2: invalid input=b'\xff\xfe?'"
    assert allowed[0][2] == "text in UTF-8"
    assert allowed[1][0] == "forkroot: line 3: invalid command='/nonsense'"
    assert allowed[1][2] == "/help, /clear, /quit"
    assert allowed[2][0].startswith("forkroot: line 4: invalid prompt=")
    assert len(reported) == 3


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("chat --max-tokens 0", "--max-tokens: invalid value '0': expected an integer, 1 or more"),
        ("chat --temperature hot", "invalid value 'hot': expected a number, 0 or more"),
        ("demo --essays many", "invalid value 'many': expected an integer"),
        ("bench http://a --rate much", "invalid value 'much': expected a number"),
        ("demo http://a", "argument model: http://a is a server, and the demo looks into engines"),
    ],
)
def test_invalid_values_of_options_are_refused_with_the_allowed_range(
    options: str, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(options.split())
    assert expected in capsys.readouterr().err


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("num_slots=+0", "invalid num_slots=0"),
        ("cache=1", "invalid cache=1"),
        ("overlap=None", "invalid overlap=None"),
        ("order=['a']", "invalid order=['a']"),
        ("order=int", "invalid order='int'"),
        ("host_file=7", "dtype='no'"),  # a text, and so allowed: the last one is reported
        ("cache=True", "dtype='no'"),
        ("jumps=false", "dtype='no'"),
    ],
)
def test_settings_are_read_as_json_or_python_writes_them(
    setting: str, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["chat", "--set", setting, "--set", "dtype=no"]) == 2
    assert expected in capsys.readouterr().err


def test_the_demo_gives_the_same_answers_four_ways_and_draws_the_tree(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "tree.svg"
    assert main(["demo", "--essays", "2", "--svg", str(picture), *SMALL]) == 0
    out = capsys.readouterr().out
    cached, forced = out.partition("What jumps over forced text save")[::2]
    rows = {line.split("  ")[0]: line for line in cached.splitlines() if "×" in line}
    assert set(rows) == {"cache and hints", "cache only", "neither"}
    assert "0.0%" in rows["neither"]
    rows = {line.split("  ")[0]: line for line in forced.splitlines() if "×" in line}
    assert set(rows) == {"one essay", "its JSON only", "2 essays at once", ""}
    assert rows["its JSON only"].split()[3:7] == ["4", "4.8×", "15", "4"]
    assert "All answers are the same." in out
    start = out.index("(hints change little here")
    note = out[start : out.index(")", start) + 1].splitlines()
    assert all(60 < len(line.rstrip()) <= 96 for line in note[:-1])  # prose is wrapped in a pipe
    printed = " ".join(out.split())
    assert "what the program wrote, «what the model wrote» and ‹what a schema forced›" in printed
    assert 'Grade: «D» Verdict as JSON:‹{"grade": "›«D»‹", "summary": "The essay is ›' in printed
    assert "You judge short essays" in out
    assert ElementTree.parse(picture).getroot().tag.endswith("svg")


def test_help_lists_the_commands_of_a_chat(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"/help\n/quit\n"), "utf-8"))
    assert main(["chat", *SMALL]) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert all(command in err for command in ("/clear", "/help", "/quit"))


@pytest.mark.parametrize("shell", ["bash", "zsh", "tcsh"])
def test_completion_prints_a_script_that_knows_every_command(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    commands = "demo", "chat", "serve", "drain", "bench", "check", "plugins", "completion"
    assert all(command in script for command in commands)
    assert "served-name" in script


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("message", [["hi"], ["tiny", "hi"]])
def test_a_chat_with_a_dummy_takes_its_only_text_as_the_message(
    message: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    backend = ScriptedBackend("hello")
    requested: list[str] = []

    def connected(model: str, **_: Any) -> ScriptedBackend:
        requested.append(model)
        return backend

    monkeypatch.setattr("forkroot.__main__.connect", connected)
    status = main(["chat", "--dummy", "56m", *message])
    out, err = capsys.readouterr()
    if message == ["hi"]:
        assert (status, requested, out) == (0, ["dummy:56m"], "hello\n")
    else:
        assert (status, requested, out) == (2, [], "")
        assert "invalid model='tiny': expected no model beside --dummy 56m" in err


@pytest.mark.parametrize("command", ["demo", "serve", "check"])
def test_a_model_beside_a_dummy_is_refused(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, "tiny", "--dummy", "56m"]) == 2
    assert "invalid model='tiny': expected no model beside --dummy" in capsys.readouterr().err


def test_the_introduction_of_the_embedded_model_is_a_line_of_its_own_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown = Terminal()
    handler = logging.StreamHandler(shown)
    monkeypatch.setattr("sys.stderr", shown)
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    introduce.cache_clear()
    logger = logging.getLogger("forkroot")
    logger.addHandler(handler)
    try:
        assert main(["chat", *SMALL]) == 0
    finally:
        logger.removeHandler(handler)
        introduce.cache_clear()
    lines = [line.rpartition("\x1b[K")[2] for line in shown.getvalue().split("\n")]
    assert any(line.startswith("forkroot: 'tiny', the embedded model") for line in lines)


def test_ctrl_c_at_the_prompt_of_a_chat_says_how_to_leave(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    typed = iter([KeyboardInterrupt(), KeyboardInterrupt(), EOFError()])

    def interrupted(prompt: str) -> str:
        raise next(typed)

    shown, keyboard = Terminal(), Terminal()
    monkeypatch.setattr("builtins.input", interrupted)
    monkeypatch.setattr("sys.stderr", shown)
    monkeypatch.setattr("sys.stdin", keyboard)
    assert talk(Conversation(ScriptedBackend("hello"), forkroot.Sampling()))
    assert shown.getvalue().count("\n(Ctrl-D or /quit leaves)\n") == 2


def test_one_thing_at_a_time_is_shown_on_a_terminal_while_a_model_is_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown = Terminal()
    monkeypatch.setattr("sys.stderr", shown)
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    assert main(["chat", *SMALL]) == 0
    written = shown.getvalue()
    assert "\n" not in written.partition("starting")[2].partition("\x1b[K")[0]
    assert "loading" in written
    assert written.endswith("\r          \r\x1b[K")  # blanks, for a terminal without sequences
    assert "\x1b[?25l" not in written  # a spinner, which draws by itself, hides the cursor


@pytest.mark.parametrize("message", ["", " \n"])
def test_an_empty_message_is_refused_before_a_model_is_loaded(
    message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("forkroot.__main__.connect", None)
    assert main(["chat", "tiny", message]) == 2
    assert capsys.readouterr().err.startswith(
        f"forkroot: invalid message={message!r}: expected a text that is not empty, or no message"
    )


def test_piped_tables_are_as_wide_as_their_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for columns, num_lines in ((None, 1), ("50", 2)):
        monkeypatch.delenv("COLUMNS", raising=False)
        if columns is not None:
            monkeypatch.setenv("COLUMNS", columns)
        table = Table.grid()
        table.add_row("word " * 15, "end")
        console().print(table)
        assert len(capsys.readouterr().out.splitlines()) == num_lines


def test_a_misspelled_sampling_field_of_a_job_gets_a_suggestion(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    @forkroot.function
    def tell(s: Any) -> None:
        s += forkroot.gen("story")

    tell.compile().save(tmp_path / "program.json")
    command = ["run", str(tmp_path / "program.json"), "--args", "-", "--out", "o.jsonl"]
    assert main([*command, "--sampling", "temprature=0"]) == 2
    assert capsys.readouterr().err.endswith("; did you mean temperature?\n")
