"""Build the tokenizer of the embedded model: byte-level BPE over the world's text, single digits,
ChatML turns.

Policy for BOS: plain encoding adds it (the post-processor does); the chat template writes it into
its text, so encode a rendered template with `add_special_tokens=False`.
"""

import itertools
import json
import random
from pathlib import Path

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    pre_tokenizers,
    processors,
    trainers,
)

from .tasks.world import documents
from .world.document import BOS, END_TURN, EOS, TURN
from .world.facts import SCRIPTS

PAD, IMAGE = "<|pad|>", "<|image|>"
SPECIAL = (PAD, BOS, EOS, TURN, END_TURN, IMAGE, *(f"<|reserved_{i}|>" for i in range(10)))
VOCABULARY_SIZE, CONTEXT_LEN = 4096, 2048
WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CHAT_TEMPLATE = Path(__file__).with_name("chat_template.jinja").read_text(encoding="utf-8").strip()
LANGUAGES = "\n" + Path(__file__).with_name("languages.txt").read_text(encoding="utf-8")


def corpus(num_documents: int = 30_000) -> list[str]:
    """Text to learn merges from: the world's documents, and a spread of other scripts in real and
    made-up words.
    """
    rng = random.Random(0)
    world = [doc.text for doc in itertools.islice(documents(0, held_out=False), num_documents)]
    made_up = [
        "".join(map(rng.choice, rng.choice(tuple(SCRIPTS.values())))) for _ in range(num_documents)
    ]
    return world + made_up + [f" {word}" for word in made_up] + [LANGUAGES] * 12


def build_tokenizer(texts: list[str]) -> Tokenizer:
    """Train the merges on `texts`; special tokens take the first ids, in the order of `SPECIAL`."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(WORDS), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])  # fmt: skip
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY_SIZE,
        special_tokens=[AddedToken(token, special=True, normalized=False) for token in SPECIAL],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(texts, trainer)
    bpe.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", pair=f"{BOS} $A {BOS} $B", special_tokens=[(BOS, SPECIAL.index(BOS))]
    )
    return bpe


def tokenizer_config() -> dict[str, object]:
    """The settings that transformers reads, in the words of its versions 4 and 5."""
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": BOS,
        "eos_token": EOS,
        "pad_token": PAD,
        "additional_special_tokens": [TURN, END_TURN, IMAGE],
        "add_bos_token": True,
        "model_max_length": CONTEXT_LEN,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }


def save_tokenizer(folder: Path) -> None:
    """Build the tokenizer and write tokenizer.json and tokenizer_config.json to `folder`."""
    build_tokenizer(corpus()).save(str(folder / "tokenizer.json"))
    config = json.dumps(tokenizer_config(), indent=2)
    (folder / "tokenizer_config.json").write_text(config + "\n", encoding="utf-8")
