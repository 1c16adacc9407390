"""What is the name of a hub model, and what is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from forkroot.core.api.protocol import InvalidCall, InvalidModel
from forkroot.core.model.hub.files import check_files
from forkroot.core.model.hub.folders import is_hub_model, model_name, pinned
from forkroot.core.model.hub.names import HubName, hub_name

COMMIT = "5fafb564955fa68a4d0fad5030ad34191ebcf11c"


@pytest.mark.parametrize(
    ("text", "repo", "revision"),
    [
        ("Qwen/Qwen2.5-0.5B-Instruct", "Qwen/Qwen2.5-0.5B-Instruct", "main"),
        ("meta-llama/Llama-3.2-1B@v1.0", "meta-llama/Llama-3.2-1B", "v1.0"),
        ("a/b@refs/pr/7", "a/b", "refs/pr/7"),
        (f"a/b@{COMMIT}", "a/b", COMMIT),
    ],
)
def test_an_owner_and_a_name_are_a_hub_model(text: str, repo: str, revision: str) -> None:
    assert hub_name(text) == HubName(repo, revision)
    assert str(hub_name(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        *("tiny", "gpt2", "./a/b", "/a/b", "../b", "~/b", "a/b/c", "a/", "/b", "a/.b", "a/b-"),
        *(
            "a b/c",
            "http://a/b",
            "a/b@",
            "a/b@x y",
            "a/b..c",
            "a/b--c",
            "a/" + "b" * 100,
            "dummy:x",
        ),
    ],
)
def test_paths_and_single_words_never_go_to_the_hub(text: str) -> None:
    assert hub_name(text) is None


def test_a_path_object_never_goes_to_the_hub() -> None:
    assert hub_name(Path("a/b")) is None


def test_a_folder_of_the_same_name_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert is_hub_model("a/b")
    (tmp_path / "a" / "b").mkdir(parents=True)
    assert not is_hub_model("a/b")


def test_a_commit_is_pinned_and_a_branch_is_not() -> None:
    assert HubName("a/b", COMMIT).is_pinned
    assert not HubName("a/b", COMMIT[:12]).is_pinned


def test_a_revision_may_be_a_setting_of_its_own() -> None:
    assert pinned("a/b", "v1") == "a/b@v1"
    assert pinned("tiny", None) == "tiny"


@pytest.mark.parametrize(
    ("model", "revision"), [("tiny", "v1"), ("a/b@v1", "v2"), ("a/b", ""), ("a/b", "x y")]
)
def test_a_revision_of_what_has_none_is_refused(model: str, revision: str) -> None:
    with pytest.raises(InvalidCall, match="revision"):
        pinned(model, revision)


def test_a_snapshot_of_the_cache_bears_the_name_of_its_model() -> None:
    assert model_name(f"/x/models--Qwen--Qwen3-4B/snapshots/{COMMIT}") == "Qwen/Qwen3-4B"
    assert model_name("/x/checkpoints/mine") == "mine"


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["config.json", "pytorch_model.bin"], "only pickled weights, which can run code"),
        (["model-Q4_K_M.gguf", "README.md"], "only GGUF weights"),
        (["config.json", "onnx/model.onnx"], "only ONNX weights"),
        (["config.json", "flax_model.msgpack"], "only weights of other frameworks"),
        (["config.json", "consolidated.safetensors"], "its safetensors in consolidated"),
        (["README.md"], "has no weights"),
        (["adapter_config.json", "adapter_model.safetensors"], "an adapter"),
        (["model_index.json", "unet/config.json"], "a pipeline of diffusers"),
        (["model.safetensors", "tokenizer.json"], "has no config.json"),
        (["config.json", "model.safetensors", "tokenizer.model"], "has no tokenizer.json"),
    ],
)
def test_a_repository_without_a_usable_checkpoint_is_refused_with_what_it_has(
    names: list[str], message: str
) -> None:
    with pytest.raises(InvalidModel, match=message):
        check_files("a/b", names)
