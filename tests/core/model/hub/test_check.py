"""`forkroot check` of hub models before a download, and the first commands of a new user."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from forkroot.__main__ import main

from .qwen import CONFIG, write_qwen
from .server import Hub, Repository

NAME = "Qwen/Qwen2.5-0.5B-Instruct"


@pytest.fixture
def qwen(hub: Hub, tmp_path: Path) -> Path:
    """The files of a small model that the hub has under Qwen's name."""
    folder = write_qwen(tmp_path / "qwen")
    hub.repositories[NAME] = Repository({"main": folder})
    return folder


def checked(name: str, capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    """What `check --json` says; its exit code agrees."""
    code = main(["check", name, "--json", *options])
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert code == (0 if report["runs"] else 1)
    return report


def weights_here(tmp_path: Path) -> list[Path]:
    return list((tmp_path / "cache").rglob("*.safetensors"))


def test_a_model_is_checked_before_its_weights_are_downloaded(
    hub: Hub, qwen: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = checked(NAME, capsys)
    assert report["runs"] and report["reason"] is None
    assert report["architecture"] == "Qwen2ForCausalLM"
    weights = qwen / "model.safetensors"
    assert report["parameters"] == sum(tensor.numel() for tensor in load_file(weights).values())
    assert report["kv_bytes_per_1000"] == 1000 * report["kv_bytes_per_token"]["float32"] == 512_000
    assert report["download_bytes"] == sum(
        (qwen / name).stat().st_size for name in ("model.safetensors", "tokenizer.json")
    )
    assert (report["dtype"], report["stored_dtype"], report["context_len"]) == (
        *("float32", "bfloat16"),
        1024,
    )
    assert report["num_slots"] > 0 and report["loaded_weight_bytes"] > 0
    assert report["decode_tokens_per_s"] > 0 and report["prefill_tokens_per_s"] > 0
    assert report["has_chat_template"] and not report["gated"]
    assert weights_here(tmp_path) == []
    ranges = {part for _, path, part in hub.requests if path.endswith("model.safetensors")}
    assert ranges == {"bytes=0-100000"}


def test_what_check_says_can_be_read_as_a_table(
    hub: Hub, qwen: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", NAME]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert f"hub model {NAME}, main is " in printed
    assert "190.4 KiB in 2 files" in printed
    assert "tokens/s decode" in printed
    assert printed.endswith(
        f"It can be run. To get it and ask it: forkroot chat {NAME} 'Who are you?'"
    )


def test_a_model_in_the_cache_is_tried_too(
    hub: Hub, qwen: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["chat", NAME, "Hello", "--max-tokens", "2"]) == 0
    assert capsys.readouterr().out.endswith("\n")
    report = checked(NAME, capsys)
    assert report["trial_tokens"] == 8
    assert report["download_bytes"] == 0


def test_a_revision_is_a_setting_on_the_command_line_too(
    hub: Hub, qwen: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = write_qwen(tmp_path / "other")
    (other / "config.json").write_text(
        (other / "config.json").read_text().replace("1024", "512"), "utf-8"
    )
    hub.repositories[NAME].branches["v1"] = other
    assert checked(NAME, capsys, "--set", "revision=v1")["context_len"] == 512
    assert checked(f"{NAME}@v1", capsys)["context_len"] == 512
    assert checked(NAME, capsys)["context_len"] == 1024
    assert main(["chat", NAME, "Hello", "--max-tokens", "1", "--set", "revision=v1"]) == 0


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"auto_map": {"AutoModel": "own.Own"}, "architectures": ["Own"]}, "which is never run"),
        ({"architectures": ["MambaForCausalLM"], "model_type": "mamba"}, "Mamba"),
        ({"quantization_config": {"quant_method": "awq"}}, "quantization_config"),
    ],
)
def test_what_cannot_be_run_is_reported_with_the_reason_and_without_a_download(
    keys: dict[str, Any],
    reason: str,
    hub: Hub,
    qwen: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (qwen / "config.json").write_text(json.dumps({**CONFIG, "vocab_size": 300, **keys}))
    report = checked(NAME, capsys)
    assert not report["runs"]
    assert reason in report["reason"]
    assert report["commit"]
    assert weights_here(tmp_path) == []


def test_quantized_weights_are_seen_in_their_headers(
    hub: Hub, qwen: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tensors = load_file(qwen / "model.safetensors")
    tensors["model.layers.0.mlp.up_proj.weight"] = torch.ones(128, 64, dtype=torch.int8)
    save_file(tensors, qwen / "model.safetensors", {"format": "pt"})
    report = checked(NAME, capsys)
    assert f"{NAME} stores weights as I8; expected F32" in report["reason"]


def test_a_disk_that_is_too_small_is_reported_with_all_that_is_known(
    hub: Hub, qwen: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=1000))
    report = checked(NAME, capsys)
    assert report["reason"].startswith("the download takes 190.4 KiB; free in ")
    assert report["num_slots"] > 0 and report["free_disk_bytes"] == 1000


def test_a_gated_model_and_a_wrong_name_are_reported_as_when_they_are_loaded(
    hub: Hub, qwen: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hub.repositories[NAME].is_gated = True
    assert "accept its licence at" in checked(NAME, capsys)["reason"]
    assert f"did you mean {NAME}?" in checked("Qwen/Qwen2.5-0.5B-instuct", capsys)["reason"]


def test_the_port_is_not_reported_where_the_model_has_no_possible_name(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["serve", "no-such-model", "--port", "1"]) == 2
    assert "model='no-such-model' is not a folder here" in capsys.readouterr().err


def test_a_new_user_gets_an_answer_of_a_real_model_by_three_commands(
    hub: Hub, qwen: Path, tmp_path: Path
) -> None:
    """The first is the installation, which tests of the package see to."""
    gone = ("HF_HUB_CACHE", "HF_HUB_OFFLINE", "HF_TOKEN", "TRANSFORMERS_OFFLINE")
    fresh = {name: value for name, value in os.environ.items() if name not in gone}
    fresh |= {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "home"), "NO_COLOR": "1"}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "forkroot", *words]
        return subprocess.run(
            command, cwd=tmp_path, env=fresh, capture_output=True, text=True, timeout=100
        )

    checking = run("check", NAME)
    assert (checking.returncode, checking.stderr) == (0, "")
    assert "It can be run." in checking.stdout
    chatting = run("chat", NAME, "What is the capital of France?", "--max-tokens", "4")
    assert chatting.returncode == 0, chatting.stderr
    assert chatting.stdout.strip()
    assert "downloading" not in chatting.stderr
    assert len(list((tmp_path / "home").rglob("snapshots/*/model.safetensors"))) == 1
