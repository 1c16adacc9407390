"""Models of the hub, fetched from a local one that speaks its routes."""

from __future__ import annotations

import io
import json
import logging
import shutil
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path

import huggingface_hub.constants
import pytest
from safetensors.torch import load_file, save_file

from forkroot import Call, InvalidModel, Sampling, Text, connect
from forkroot.adapters.connection import hub_folder, shared, trained_len
from forkroot.adapters.guidance.tokens import tokenizer_folder
from forkroot.core.model.hub.client import Hub as Client
from forkroot.core.model.hub.folders import model_folder, texts_folder
from forkroot.core.model.hub.names import HubName

from .server import TOKEN, Hub, Repository, commit_of

NAME = "someone/tiny-model"
NEEDED = ["config.json", "generation_config.json", "model.safetensors", "tokenizer.json"]
SMALL = {"num_slots": 512, "context_len": 128}
Usage = namedtuple("Usage", ("total", "used", "free"))


def refusal(model: str) -> str:
    """The error that a model ends in."""
    with pytest.raises(InvalidModel) as caught:
        model_folder(model)
    return str(caught.value)


def go_offline(monkeypatch: pytest.MonkeyPatch, variable: str = "HF_HUB_OFFLINE") -> None:
    monkeypatch.setenv(variable, "1")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)


def changed(tiny: Path, folder: Path, **keys: object) -> Path:
    """The embedded model with other keys in its config.json."""
    shutil.copytree(tiny, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **keys}))
    return folder


def test_a_hub_name_is_fetched_and_answers(hub: Hub) -> None:
    with connect(NAME, **SMALL) as backend:  # type: ignore[attr-defined]
        assert backend.info().model == NAME
        call = Call((Text("The capital of France is"),), Sampling(max_tokens=2, temperature=0))
        assert backend.submit(call).result().text.startswith(" Paris")


def test_only_what_is_needed_is_downloaded(hub: Hub) -> None:
    folder = model_folder(NAME)
    assert hub.downloads() == [*NEEDED, "tokenizer_config.json"]
    assert {path.name for path in folder.iterdir()} == {*NEEDED, "tokenizer_config.json"}


def test_what_is_in_the_cache_is_not_downloaded_again(hub: Hub) -> None:
    first = model_folder(NAME)
    hub.requests.clear()
    assert model_folder(NAME) == first
    assert hub.downloads() == []


def test_the_texts_of_a_model_are_fetched_without_its_weights(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [name for name in [*NEEDED, "tokenizer_config.json"] if name != "model.safetensors"]
    folder = texts_folder(NAME)
    assert hub.downloads() == texts
    hub.requests.clear()
    assert texts_folder(NAME) == folder and hub.downloads() == []
    go_offline(monkeypatch)
    assert texts_folder(NAME) == folder
    assert "lacks model.safetensors" in refusal(NAME)


def test_texts_in_the_cache_serve_where_the_hub_is_not_reached(hub: Hub) -> None:
    with pytest.raises(InvalidModel, match="'nobody/nothing' is not a folder here"):
        texts_folder("nobody/nothing")
    folder = texts_folder(NAME)
    hub.status = 503
    assert texts_folder(NAME) == folder


def test_a_child_process_runs_the_same_snapshot_under_its_name(hub: Hub) -> None:
    model_folder(NAME)
    with connect(NAME, process=True, **SMALL) as backend:  # type: ignore[attr-defined]
        assert backend.info().model == NAME


def test_shards_are_those_that_the_index_names(hub: Hub, tiny: Path, tmp_path: Path) -> None:
    sharded = tmp_path / "sharded"
    shutil.copytree(tiny, sharded)
    tensors = load_file(sharded / "model.safetensors")
    (sharded / "model.safetensors").unlink()
    names = sorted(tensors)
    parts = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for file, own in parts.items():
        save_file({name: tensors[name] for name in own}, sharded / file, {"format": "pt"})
    places = {name: file for file, own in parts.items() for name in own}
    index = {"metadata": {}, "weight_map": places}
    (sharded / "model.safetensors.index.json").write_text(json.dumps(index))
    hub.repositories["someone/sharded"] = Repository({"main": sharded})
    with connect("someone/sharded", **SMALL) as backend:  # type: ignore[attr-defined]
        assert backend.info().model == "someone/sharded"
    assert [name for name in hub.downloads() if name.endswith(".safetensors")] == list(parts)


def test_a_connection_that_is_cut_is_taken_up_where_it_ended(
    hub: Hub, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "DOWNLOAD_CHUNK_SIZE", 1_000_000)
    hub.repositories[NAME].num_cuts, hub.repositories[NAME].cut_after = 1, 5_000_000
    folder = model_folder(NAME)
    assert (folder / "model.safetensors").read_bytes() == (tiny / "model.safetensors").read_bytes()
    assert "bytes=5000000-" in {part for _, _, part in hub.requests}


def test_a_download_that_failed_goes_on_with_the_files_that_lack(
    hub: Hub, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: Usage(10**9, 10**9, 1000))
    assert "of disk, and" in refusal(NAME)
    assert "set HF_HUB_CACHE to a folder on a larger disk" in refusal(NAME)
    assert hub.downloads() == ["config.json", "generation_config.json"]
    monkeypatch.undo()
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    hub.requests.clear()
    model_folder(NAME)
    assert hub.downloads() == [*NEEDED[2:], "tokenizer_config.json"]


def test_a_revision_pins_the_files(hub: Hub, tiny: Path, tmp_path: Path) -> None:
    old = changed(tiny, tmp_path / "old", max_position_embeddings=512)
    hub.repositories[NAME].branches["v1.0"] = old
    assert model_folder(f"{NAME}@v1.0").name == commit_of("v1.0", old)
    assert model_folder(NAME).name == commit_of("main", tiny)
    assert trained_len(f"{NAME}@v1.0") == 512
    with connect(NAME, revision="v1.0", num_slots=512) as backend:  # type: ignore[attr-defined]
        assert backend.info().context_len == 512


def test_a_cached_commit_is_used_without_asking(hub: Hub, tiny: Path) -> None:
    pinned = f"{NAME}@{commit_of('main', tiny)}"
    first = model_folder(pinned)
    hub.requests.clear()
    assert model_folder(pinned) == first
    assert hub.requests == []


@pytest.mark.parametrize("variable", ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"])
def test_offline_the_cache_is_used_without_a_request(
    variable: str, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = model_folder(NAME)
    hub.requests.clear()
    go_offline(monkeypatch, variable)
    assert model_folder(NAME) == first
    message = refusal("someone/other@v2")
    assert f"{variable} is set" in message
    assert "has nothing of someone/other@v2" in message
    assert "run `hf download someone/other --revision v2` where there is a network" in message
    assert hub.requests == []


def test_offline_the_missing_files_are_named(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    (model_folder(NAME) / "model.safetensors").unlink()
    go_offline(monkeypatch)
    assert f"lacks model.safetensors of {NAME}: run `hf download {NAME}`" in refusal(NAME)


@pytest.mark.parametrize("fault", ["status", "address", "slow"])
def test_a_hub_that_does_not_answer_leaves_the_cache(
    fault: str, hub: Hub, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    first = model_folder(NAME)
    if fault == "status":
        hub.status = 503
    elif fault == "slow":
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_ETAG_TIMEOUT", 0.05)
        hub.delay = 0.3
    else:
        monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with caplog.at_level(logging.WARNING, "forkroot"):
        assert model_folder(NAME) == first
    assert f"using the cached {first.name[:12]} of {NAME}" in caplog.text
    message = refusal("someone/other")
    assert ("status 503" if fault == "status" else "cannot be reached") in message
    assert "run `hf download someone/other`" in message


def test_a_misspelled_name_is_reported_with_a_suggestion(hub: Hub) -> None:
    message = refusal("someone/tiny-modl")
    assert message.startswith("model='someone/tiny-modl' is not a folder here, and the hub has no")
    assert message.endswith(f"did you mean {NAME}?")


def test_a_folder_here_may_be_suggested(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "checkpoints" / "llama").mkdir(parents=True)
    (tmp_path / "checkpoints" / "llama" / "config.json").touch()
    monkeypatch.chdir(tmp_path)
    assert refusal("checkpoints/lama").endswith("did you mean 'checkpoints/llama'?")


def test_a_missing_revision_is_reported_with_the_existing_ones(hub: Hub, tiny: Path) -> None:
    hub.repositories[NAME].branches["v1.0"] = tiny
    message = refusal(f"{NAME}@v1.1")
    assert "has no revision 'v1.1'; expected a commit, or one of main, v1.0" in message
    assert message.endswith("did you mean v1.0?")


def test_a_gated_model_is_reported_with_its_page_and_how_to_pass_a_token(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.repositories[NAME].is_gated = True
    message = refusal(NAME)
    assert f"accept its licence at {hub.url}/{NAME}, then set HF_TOKEN" in message
    monkeypatch.setenv("HF_TOKEN", "hf_of_another")
    assert "the account of your token has no access yet" in refusal(NAME)
    monkeypatch.setenv("HF_TOKEN", "hf_expired")
    assert "does not accept your token" in refusal(NAME)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert model_folder(NAME).is_dir()


def test_a_private_model_needs_a_token(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.repositories[NAME].is_private = True
    assert "for a private one set HF_TOKEN" in refusal(NAME)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert model_folder(NAME).is_dir()


def test_code_of_a_repository_is_never_run_and_refused_before_the_weights(
    hub: Hub, tiny: Path, tmp_path: Path
) -> None:
    own = changed(
        *(tiny, tmp_path / "own"),
        architectures=["OwnForCausalLM"],
        auto_map={"AutoModelForCausalLM": "modeling_own.OwnForCausalLM"},
    )
    (own / "modeling_own.py").write_text("raise SystemExit('run')")
    hub.repositories["someone/own-code"] = Repository({"main": own})
    message = refusal("someone/own-code")
    assert "needs code of its own repository (`auto_map` in config.json), which is never" in message
    assert hub.downloads() == ["config.json", "generation_config.json"]


def test_pickled_weights_are_refused_before_anything_is_downloaded(
    hub: Hub, tiny: Path, tmp_path: Path
) -> None:
    pickled = changed(tiny, tmp_path / "pickled")
    (pickled / "model.safetensors").unlink()
    hub.repositories["someone/pickled"] = Repository({"main": pickled})
    assert "only pickled weights" in refusal("someone/pickled")
    assert hub.downloads() == []


def test_an_architecture_that_cannot_be_run_is_refused_before_the_weights(
    hub: Hub, tiny: Path, tmp_path: Path
) -> None:
    other = changed(tiny, tmp_path / "other", architectures=["BertModel"], model_type="bert")
    hub.repositories["someone/other"] = Repository({"main": other})
    assert "BertModel" in refusal("someone/other")
    assert "model.safetensors" not in hub.downloads()


def test_nothing_is_shown_where_there_is_no_terminal(
    hub: Hub, capfd: pytest.CaptureFixture[str]
) -> None:
    model_folder(NAME)
    assert capfd.readouterr() == ("", "")


class Terminal(io.StringIO):
    """Stands in for a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_one_bar_of_all_files(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = Terminal()
    monkeypatch.setattr("sys.stderr", shown)
    model_folder(NAME)
    last = shown.getvalue().split("\r")[-1]
    assert last.startswith(f"downloading {NAME}: 100%")
    assert "7.43M/7.43M" in last


def test_a_file_that_fails_stops_the_others_and_no_half_file_is_left(
    hub: Hub, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forkroot.core.model.hub.client.Hub.download", fails_at("tokenizer.json"))
    with pytest.raises(OSError, match="json failed"):
        model_folder(NAME)
    monkeypatch.undo()
    assert [*(tmp_path / "cache").rglob("*.incomplete")] == []


def test_adapters_and_runtimes_of_a_process_take_hub_names(hub: Hub) -> None:
    connection = shared(NAME, **SMALL)
    assert shared(NAME, **SMALL) is connection
    assert hub_folder(NAME) == model_folder(NAME)
    assert hub_folder(NAME, "v9") is None
    assert tokenizer_folder(NAME, "x") == model_folder(NAME)
    with pytest.raises(InvalidModel, match="is not here"):  # what a server calls so may be another
        tokenizer_folder("http://host", NAME)
    connection.backend.close()


def fails_at(name: str) -> Callable[..., Path]:
    """A download that fails at a file of this name."""
    download = Client.download

    def failing(self: Client, model: HubName, file: str, bar: type | None = None) -> Path:
        if file == name:
            raise OSError(f"{file} failed")
        return download(self, model, file, bar)

    return failing


def test_the_page_of_a_model_is_not_a_server(hub: Hub) -> None:
    with pytest.raises(InvalidModel, match=f"not a server; did you mean '{NAME}'"):
        connect(f"{hub.url}/{NAME}")
    with pytest.raises(InvalidModel, match="did you mean 'Qwen/Qwen3-4B'"):
        connect("https://huggingface.co/Qwen/Qwen3-4B/tree/main")
