"""Tokenizers for the benchmarks of constraints: the embedded one, tekken, and one made here.

tekken is a file of the package mistral-common: 131,072 tokens, the first 1,000 of them special
there, the last 1,000 here. The one made here has 32,768, trained on the small world's texts and on
the sources of Python's standard library, so that runs of one Python make the same.
"""

from __future__ import annotations

import base64
import json
import sysconfig
from collections.abc import Sequence
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, pre_tokenizers, trainers

from forkroot.core.model.config import ModelConfig
from forkroot.core.model.hub.folders import model_folder
from forkroot.core.text.tokenizer import Tokenizer, byte_alphabet
from forkroot.models.training.tasks.world import documents

TEKKEN = "tekken_240911.json"
MADE_SIZE, MADE_DOCUMENTS, MADE_BYTES = 32_768, 2_000, 8_000_000


class Words(NamedTuple):
    """A tokenizer and the tokens that end an answer."""

    tokenizer: Tokenizer
    end_ids: frozenset[int]

    @property
    def size(self) -> int:
        return len(self.tokenizer.token_bytes)


def embedded() -> Words:
    """The tokenizer of the model in the box."""
    folder = model_folder("tiny")
    return Words(Tokenizer.from_folder(folder), frozenset(ModelConfig.from_folder(folder).eos_ids))


def read(path: Path) -> Words:
    """A tekken file, or a Hugging Face `tokenizer.json`; a special token ends answers."""
    data = json.loads(path.read_text())
    if "config" not in data:
        known = Tokenizer.from_folder(path.parent)
        return Words(known, frozenset([known.token_bytes.index(b"")]))
    num_special = data["config"]["default_num_special_tokens"]
    num_plain = data["config"]["default_vocab_size"] - num_special
    plain = [base64.b64decode(token["token_bytes"]) for token in data["vocab"][:num_plain]]
    core = _byte_pairs(plain, data["config"]["pattern"])
    core.add_special_tokens([f"<special {index}>" for index in range(num_special)])
    return Words(Tokenizer(core, None), frozenset([num_plain]))


def tekken() -> Words:
    """The tekken file of the package mistral-common, which must be installed."""
    spec = find_spec("mistral_common")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("the package mistral-common is missing; pip install mistral-common")
    return read(Path(spec.submodule_search_locations[0]) / "data" / TEKKEN)


def made() -> Words:
    """A byte-level BPE of 32,768 tokens, trained now."""
    core = tokenizers.Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=MADE_SIZE,
        special_tokens=[AddedToken("<end>", special=True, normalized=False)],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    core.train_from_iterator(_sources(), trainer)
    return Words(Tokenizer(core, None), frozenset([0]))


def _sources() -> list[str]:
    """Texts to train on, the same for the same Python."""
    world = [doc.text for doc in islice(documents(0, held_out=False), MADE_DOCUMENTS)]
    size, sources = 0, []
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py")):
        text = path.read_text("utf-8", "replace")
        sources.append(text)
        size += len(text)
        if size > MADE_BYTES:
            break
    return world + sources


def _byte_pairs(pieces: Sequence[bytes], pattern: str) -> tokenizers.Tokenizer:
    """The encoder of tokens that come in the order in which they are merged."""
    rank = {piece: index for index, piece in enumerate(pieces)}
    letter = {byte: char for char, byte in byte_alphabet().items()}
    names = ["".join(letter[byte] for byte in piece) for piece in pieces]
    merges = []
    for piece, name in zip(pieces, names, strict=True):
        cuts = [n for n in range(1, len(piece)) if piece[:n] in rank and piece[n:] in rank]
        cuts.sort(key=lambda n: (rank[piece[:n]], rank[piece[n:]]))
        merges += [(name[:n], name[n:]) for n in cuts]
    model = models.BPE({name: i for i, name in enumerate(names)}, merges, ignore_merges=True)
    core = tokenizers.Tokenizer(model)
    split = pre_tokenizers.Split(Regex(pattern), "isolated")
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.pre_tokenizer = pre_tokenizers.Sequence([split, level])
    core.decoder = decoders.ByteLevel()
    return core
