"""Checkpoint folders that a stranger wrote: every file of them ends in InvalidModel, soon."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import forkroot
from forkroot.core.api.protocol import Chat, InvalidCall, InvalidModel, Message, Text
from forkroot.core.model.checkpoint.load import describe
from forkroot.core.model.hub.files import INDEX, weight_names
from forkroot.core.model.hub.headers import read_header
from forkroot.core.model.weights import Checkpoint
from forkroot.core.text import sandbox
from forkroot.core.text.chat_template import ChatTemplate
from forkroot.core.text.tokenizer import Tokenizer

TINY = Path(forkroot.__file__).parent / "models" / "tiny"
SMALL = "config.json", "generation_config.json", "tokenizer_config.json", "tokenizer.json"
CHAT = Chat((Message("user", (Text("Hello"),)),))
DEEP = "[" * 100_000
ODD: list[Any] = [
    *(None, True, -1, 0, 1, 0.5, "", "\ud800", "x" * 1000, [], {}, [[]], [None], [{}], {"a": {}}),
    *([-1], ["a", 1], {"type": 3}, 2**40, 2**80, 10**4000, 1e308, float("nan"), float("inf")),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the embedded model, whose weights are a link."""
    for name in SMALL:
        shutil.copy(TINY / name, tmp_path / name)
    (tmp_path / "model.safetensors").symlink_to(TINY / "model.safetensors")
    return tmp_path


def read_sizes(folder: Path) -> None:
    described = describe(folder)
    described.num_parameters()


def read_weights(folder: Path) -> None:
    for name in weight_names(folder):
        read_header(folder / name)
    shapes = describe(TINY).weight_shapes()
    with Checkpoint(folder, shapes, torch.float32, torch.device("cpu")):
        pass


def read_text(folder: Path) -> None:
    tokenizer = Tokenizer.from_folder(folder)
    with contextlib.suppress(InvalidCall):
        tokenizer.encode_prompt(CHAT)


READERS: dict[str, Callable[[Path], object]] = {
    "config.json": read_sizes,
    "generation_config.json": read_sizes,
    "tokenizer.json": read_text,
    "tokenizer_config.json": ChatTemplate.from_folder,
    "chat_template.jinja": ChatTemplate.from_folder,
    INDEX: read_weights,
    "model.safetensors": read_weights,
}


def mutated(rng: random.Random, value: Any, depth: int = 0) -> Any:
    """The value with something odd in one place of it."""
    if isinstance(value, dict) and value and (depth == 0 or rng.random() < 0.9):
        key = rng.choice(list(value))
        if rng.random() < 0.1:
            return {name: it for name, it in value.items() if name != key}
        return {**value, key: mutated(rng, value[key], depth + 1)}
    if isinstance(value, list) and value and rng.random() < 0.8:
        index = rng.randrange(len(value))
        return [*value[:index], mutated(rng, value[index], depth + 1), *value[index + 1 :]]
    return rng.choice(ODD)


def ends_well(read: Callable[[Path], object], folder: Path) -> None:
    """It is read, or refused by the one error that says so."""
    try:
        read(folder)
    except InvalidModel as error:
        assert len(str(error)) < 5000


@pytest.mark.parametrize(
    ("name", "count"),
    [
        *(("config.json", 250), ("generation_config.json", 40)),
        *(("tokenizer_config.json", 60), ("tokenizer.json", 30)),
    ],
)
def test_a_file_with_anything_in_a_place_of_it_is_read_or_refused(
    folder: Path, name: str, count: int
) -> None:
    rng, given = random.Random(21), json.loads((TINY / name).read_text())
    for _ in range(count):
        (folder / name).write_text(json.dumps(mutated(rng, given)))
        ends_well(READERS[name], folder)


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json", "tokenizer.json"])
def test_a_file_with_bytes_changed_is_read_or_refused(folder: Path, name: str) -> None:
    rng, given = random.Random(7), (TINY / name).read_bytes()
    for _ in range(25):
        data = bytearray(given)
        for _ in range(rng.choice((1, 20))):
            data[rng.randrange(min(len(data), 20_000))] = rng.randrange(256)
        (folder / name).write_bytes(data[: rng.choice((len(data), rng.randrange(len(data))))])
        ends_well(READERS[name], folder)


def header_of(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        found: dict[str, Any] = json.loads(file.read(size))
    return found


def test_a_header_of_weights_with_anything_in_it_is_refused(folder: Path) -> None:
    rng, given = random.Random(3), header_of(TINY / "model.safetensors")
    path = folder / "model.safetensors"
    path.unlink()
    for _ in range(80):
        header = json.dumps(mutated(rng, given)).encode()
        path.write_bytes(struct.pack("<Q", len(header)) + header)
        with pytest.raises(InvalidModel):
            read_weights(folder)


@pytest.mark.parametrize(
    "header", [DEEP, '{"a": {"dtype": "F32", "shape": [' + f"{2**49}," * 10_000 + "2]}}"]
)
def test_a_header_that_explodes_is_refused(folder: Path, header: str) -> None:
    path = folder / "model.safetensors"
    path.unlink()
    path.write_bytes(struct.pack("<Q", len(header)) + header.encode())
    with pytest.raises(InvalidModel):
        read_header(path)


@pytest.mark.parametrize(
    "index",
    [
        *({}, {"weight_map": []}, {"weight_map": {"a": []}}, {"weight_map": {"a": ".."}}),
        *({"weight_map": {"a": "/etc/passwd"}}, {"weight_map": {"a": "b\0c"}}),
        *({"weight_map": {"a": 3, "b": "c"}}, []),
    ],
)
def test_an_index_that_names_no_files_of_its_folder_is_refused(folder: Path, index: Any) -> None:
    (folder / INDEX).write_text(json.dumps(index))
    with pytest.raises(InvalidModel):
        read_weights(folder)


def fifo(path: Path) -> None:
    os.mkfifo(path)


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


def deep(path: Path) -> None:
    path.write_text(DEEP)


def a_folder(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize("name", sorted(READERS))
@pytest.mark.parametrize("make", [fifo, endless, sparse, a_folder, deep])
def test_what_is_no_small_regular_file_is_refused_unread(
    folder: Path, name: str, make: Callable[[Path], None]
) -> None:
    (folder / name).unlink(missing_ok=True)
    make(folder / name)
    if name == "chat_template.jinja" and make is deep:
        return  # a text like any other
    with pytest.raises(InvalidModel):
        READERS[name](folder)


def test_a_token_with_a_huge_id_takes_no_memory(folder: Path) -> None:
    given = json.loads((TINY / "tokenizer.json").read_text())
    given["model"]["vocab"]["zzz"] = 2**32 - 1
    (folder / "tokenizer.json").write_text(json.dumps(given))
    with pytest.raises(InvalidModel, match="id 4294967295"):
        Tokenizer.from_folder(folder)


TOO_MUCH = {
    "loops": "{% for a in range(9999) %}{% for b in range(9999) %}{% for c in range(9999) %}"
    "{% endfor %}{% endfor %}{% endfor %}",
    "calls": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}"
    "{{ f(90) }}",
    "repeats": "{{ 'a' * 9999999999 }}",
    "lists": "{{ ([0] * 9999999999) | length }}",
    "powers": "{{ (9 ** 99999999) is odd }}",
    "widths": "{{ '%9999999999d' % 1 }}",
    "methods": "{{ 'a'.ljust(9999999999) }}",
    "filters": "{{ 'a' | center(9999999999) }}",
    "formats": "{{ '{:9999999999}'.format(1) }}",
    "formats of mappings": "{{ '{a:9999999999}'.format_map({'a': 1}) }}",
    "given formats": "{{ '{:{}}'.format(1, 99999) }}",
    "sums": "{% set x = 'a' * 99999 %}" + "{% set x = x + x %}" * 40 + "{{ x }}",
    "joins": "{% set x = 'a' * 99999 %}" + "{% set x = x ~ x %}" * 40 + "{{ x }}",
    "blocks": "{% set x = 'a' * 99999 %}"
    + "{% set x %}{{ x }}{{ x }}{% endset %}" * 40
    + "{{ x }}",
    "replaces": "{% set x = 'a' * 99999 %}{{ x | replace('a', x) }}",
    "methods that replace": "{% set x = 'a' * 99999 %}{{ x.replace('a', x) }}",
    "separators": "{% set x = 'a' * 99999 %}{{ range(99999) | join(x) }}",
    "indents": "{{ ('\\n' * 99999) | indent(99999) }}",
    "texts": "{% for a in range(99999) %}" + "x" * 99_999 + "{% endfor %}",
}


@pytest.mark.parametrize("source", TOO_MUCH.values(), ids=list(TOO_MUCH))
def test_a_template_that_takes_too_much_is_refused(
    source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox, "MOST_SECONDS", 0.2)
    with pytest.raises(InvalidCall, match="what its template takes: a template "):
        ChatTemplate(source, {}).render(CHAT)


def test_a_template_that_works_hard_on_a_long_chat_is_not_refused() -> None:
    source = (
        "{% for m in messages %}{{ loop.index ~ m.role ~ (m.content | trim) + '\\n' }}"
        "{{ m.content.replace('o', '0') }}{% if loop.last %}end{% endif %}{% endfor %}"
    )
    chat = Chat(tuple(Message("user", (Text("Hello" * 100),)) for _ in range(500)))
    (text,) = ChatTemplate(source, {}).render(chat)
    assert isinstance(text, Text)
    assert text.text.startswith("1userHello") and text.text.endswith("Hell0end")
