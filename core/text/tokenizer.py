"""Text to tokens and back: one model's vocabulary, byte for byte.

Reads a Hugging Face `tokenizer.json` with the `tokenizers` library. It knows nothing of sampling,
stops or caches. Prompts become token ids here, messages through `core.text.chat_template`.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import tokenizers

from ..api.files import TOKENIZER_BYTES, read_bytes
from ..api.media import Media, MediaProcessor
from ..api.protocol import (
    Chat,
    InvalidCall,
    InvalidModel,
    Segment,
    Shown,
    Text,
    Tokens,
    UnsupportedCall,
)
from .chat_template import ChatTemplate
from .encoding import TextEncoder
from .outline import OutlineEncoder
from .pictures import Picture, Placeholder, Placeholders, PromptIds

_MOST_TOKENS = 1 << 24


class Tokenizer:
    """One model's tokenizer.

    token_bytes: [vocabulary] the bytes that each token adds to the text; empty for special tokens.
    start_ids: what the model expects in front of a prompt of plain text (a BOS, or nothing).
    plain_content: names of special tokens in the messages of a chat stay text.
    """

    def __init__(
        self,
        core: tokenizers.Tokenizer,
        template: ChatTemplate | None,
        plain_content: bool = False,
    ) -> None:
        self._core = core
        self._plain = self._plain_texts = PlainNames(core) if plain_content else None
        self._placeholders = Placeholders()
        self._template = template
        spec: dict[str, Any] = json.loads(core.to_str())
        self.token_bytes = _token_bytes(core, spec)
        self._encoder = TextEncoder(core, spec, self.token_bytes)
        self._start = ""
        self.start_ids = tuple(core.encode("", add_special_tokens=True).ids)
        self._start = "" if self.decode(self.encode("a")) == "a" else "\n"
        self._prefix = self.encode(self._start)

    @classmethod
    def from_folder(cls, folder: Path, plain_content: bool = False) -> Tokenizer:
        """Load `tokenizer.json` and the chat template beside it. Raises InvalidModel."""
        path = folder / "tokenizer.json"
        if not path.exists():
            raise InvalidModel(
                f"{path} is missing; a checkpoint needs a tokenizer.json"
                " (AutoTokenizer.from_pretrained(...).save_pretrained(folder) writes one)"
            )
        try:
            core = tokenizers.Tokenizer.from_buffer(read_bytes(path, TOKENIZER_BYTES))
            core.no_truncation()
            core.no_padding()
            return cls(core, ChatTemplate.from_folder(folder), plain_content)
        except (InvalidModel, KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # plain Exception, and panics, which are not even that
            raise InvalidModel(f"{path} is not a readable tokenizer: {error}") from error

    def widen(self, vocabulary_size: int) -> None:
        """Extend to the vocabulary size of a model, where that is larger than the tokenizer's: the
        new ids add no text."""
        self.token_bytes += [b""] * (vocabulary_size - len(self.token_bytes))

    @property
    def chars_per_token(self) -> int | None:
        """Characters that one token stands for at most; None: not known."""
        return self._encoder.chars_per_token

    def encode(self, text: str, most: int | None = None, namespace: str = "") -> list[int]:
        """Token ids of a text, with nothing added; names of special tokens become these tokens.
        most: how many are allowed; None: any number. namespace: the text is encoded faster where it
        begins as an earlier one of the same. Raises CallTooLarge for a long text of more, without
        encoding it all."""
        return self._encoder.encode(text, most, self._start, namespace)

    def encode_after(self, text: str, most: int | None = None, namespace: str = "") -> list[int]:
        """Token ids of a text that goes on after other tokens. Some vocabularies put a blank before
        every text: not here."""
        prefix, start = self._prefix, self._start
        allowed = None if most is None else most + len(prefix)
        ids = self.encode(start + text, allowed, namespace)
        is_whole = ids[: len(prefix)] == prefix
        return ids[len(prefix) :] if is_whole else self.encode(text, most, namespace)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of these tokens without special tokens; broken UTF-8 becomes U+FFFD."""
        return self.join_bytes(ids).decode("utf-8", "replace")

    def join_bytes(self, ids: Sequence[int]) -> bytes:
        """The bytes of these tokens. Raises InvalidCall for an id that is not in the vocabulary."""
        table = self.token_bytes
        for token in ids:
            if not 0 <= token < len(table):
                raise InvalidCall("prompt", token, f"token ids 0 to {len(table) - 1}")
        return b"".join([table[token] for token in ids])

    def take_pictures(
        self, processor: MediaProcessor, load: Callable[[Picture], Media] | None = None
    ) -> None:
        """Let prompts hold pictures and clips, as this processor of the model says. Names of their
        placeholders in texts stay plain text from now on. load: see `Placeholders`."""
        self._placeholders = Placeholders(processor, load)
        names = [self._core.id_to_token(token) or "" for token in self._placeholders.tokens]
        self._plain_texts = PlainNames(self._core, names, is_special_too=False)
        if self._plain is not None:
            self._plain = PlainNames(self._core, names)

    def encode_prompt(
        self, prompt: tuple[Segment, ...] | Chat, most: int | None = None, namespace: str = ""
    ) -> list[int]:
        """Token ids of a whole prompt, with a placeholder for each feature of a picture.

        Neighbouring texts are encoded as one. A text that carries ids keeps them where they spell
        it. A prompt that begins with text gets `start_ids`; a chat has what its template writes.
        most, namespace: as in `encode`.
        """
        encoded = self.encode_pictures(prompt, most, namespace)
        return encoded.filled(
            [self._placeholders.repeated(it.segment) for it in encoded.placeholders]
        )

    def key_encoder(self) -> OutlineEncoder:
        """An encoder for prompts that are only compared with each other."""
        plain = self._plain or self._plain_texts
        return OutlineEncoder(self) if plain is None else OutlineEncoder(self, plain.is_plain)

    def render(self, chat: Chat, shown: list[Picture] | None = None) -> list[Segment]:
        """The prompt of a chat as its template writes it. shown: gets the pictures whose
        placeholders are in the texts already; None: there are none. Raises InvalidCall for a chat
        that the template refuses, UnsupportedCall where there is none."""
        if self._template is None:
            allowed = "text, or a model that has a chat template: this one has none"
            raise UnsupportedCall("prompt", Shown("a chat"), allowed)
        plain = self._plain or self._plain_texts
        return self._template.render(chat if plain is None else plain.with_plain_names(chat), shown)

    def encode_pictures(
        self, prompt: tuple[Segment, ...] | Chat, most: int | None = None, namespace: str = ""
    ) -> PromptIds:
        """As `encode_prompt`, with one placeholder for each picture, and where it stands. Raises
        UnsupportedCall for one that the model does not take, InvalidCall for placeholders that are
        of no picture."""
        if isinstance(prompt, Chat):
            return self._encode_chat(prompt, most, namespace)
        plain = None if self._placeholders.is_empty else self._plain_texts
        segments = plain.split(prompt) if plain else prompt
        encoded = self._encode_segments(segments, most, namespace)
        starts_with_text = bool(prompt) and isinstance(prompt[0], Text)
        start = list(self.start_ids)
        is_started = not starts_with_text or encoded.ids[: len(start)] == start
        return encoded if is_started else encoded.behind(start)

    def _encode_chat(self, chat: Chat, most: int | None, namespace: str) -> PromptIds:
        shown: list[Picture] = []
        segments = self.render(chat, None if self._placeholders.is_empty else shown)
        return self._encode_segments(segments, most, namespace, shown)

    def _encode_segments(
        self,
        segments: Iterable[Segment],
        most: int | None,
        namespace: str,
        shown: Sequence[Picture] = (),
    ) -> PromptIds:
        """shown: pictures whose placeholders are in the texts already."""
        ids: list[int] = []
        placeholders: list[Placeholder] = []
        found: list[tuple[int, int]] = []
        pending = ""
        for segment in (*segments, Tokens(())):
            if isinstance(segment, Text) and not self._has_own_ids(segment):
                pending += segment.text
                continue
            if pending:
                left = None if most is None else max(0, most - len(ids))
                encode = self.encode_after if ids else self.encode
                run = encode(pending, left, namespace)
                found += self._placeholders.find(run, len(ids))
                ids += run
                pending = ""
            if isinstance(segment, Text | Tokens):
                if isinstance(segment, Tokens):
                    self._placeholders.check_ids(segment.ids)
                ids += segment.ids or ()
            else:
                wrapped, index = self._placeholders.wrapped(segment)
                placeholders.append(Placeholder(len(ids) + index, segment))
                ids += wrapped
        placeholders += self._placeholders.match(found, shown)
        return PromptIds(ids, tuple(sorted(placeholders, key=lambda it: it.index)))

    def _has_own_ids(self, segment: Text) -> bool:
        """Whether the segment carries ids of this vocabulary that spell its text."""
        if not segment.ids or max(segment.ids) >= len(self.token_bytes):
            return False
        return self.decode(segment.ids) == segment.text


class PlainNames:
    """Keeps names of special tokens in texts as plain text, encoded with ordinary tokens.

    names: of others, too. is_special_too: False: of these alone.
    """

    def __init__(
        self, core: tokenizers.Tokenizer, names: Iterable[str] = (), is_special_too: bool = True
    ) -> None:
        added = core.get_added_tokens_decoder().values()
        special = (it.content for it in added if it.special and is_special_too)
        known = sorted({*names, *special} - {""}, key=lambda it: (-len(it), it))
        self._name = re.compile("|".join(map(re.escape, known)) or r"(?!)")
        self._names = frozenset(map(core.token_to_id, known))
        self._core = tokenizers.Tokenizer.from_str(core.to_str())
        self._core.encode_special_tokens = True
        self._ids: dict[str, tuple[int, ...]] = {}  # of the names in texts so far

    def is_plain(self, text: str) -> bool:
        """Whether none of these names is in a text."""
        return self._name.search(text) is None

    def with_plain_names(self, chat: Chat) -> Chat:
        """The chat with these names as segments of their own, with the ids that spell them."""
        messages = (replace(it, content=self.split(it.content)) for it in chat.messages)
        return replace(chat, messages=tuple(messages))

    def split(self, segments: Iterable[Segment]) -> tuple[Segment, ...]:
        """Segments with these names as segments of their own, likewise."""
        return tuple(chain.from_iterable(map(self._split, segments)))

    def _split(self, segment: Segment) -> Iterator[Segment]:
        if not isinstance(segment, Text) or segment.ids is not None:
            yield segment
            return
        end = 0
        for found in self._name.finditer(segment.text):
            yield Text(segment.text[end : found.start()])
            yield Text(found[0], self._ids_of_name(found[0]))
            end = found.end()
        yield Text(segment.text[end:])

    def _ids_of_name(self, name: str) -> tuple[int, ...]:
        """Ids of the name after other text, so that no vocabulary puts a blank before it."""
        if name not in self._ids:
            found = self._ids_after_text(name)
            if self._names.intersection(found):  # it is no special token, but an added one
                found = self._ids_after_text(name[:1]) + self._ids_after_text(name[1:])
            self._ids[name] = found
        return self._ids[name]

    def _ids_after_text(self, text: str) -> tuple[int, ...]:
        prefix, whole = self._encode("\n"), self._encode("\n" + text)
        is_after = whole[: len(prefix)] == prefix
        return whole[len(prefix) :] if is_after else self._encode(text)

    def _encode(self, text: str) -> tuple[int, ...]:
        return tuple(self._core.encode(text, add_special_tokens=False).ids)


class StreamDecoder:
    """Bytes to text as they come, whole characters only."""

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest = b""

    def push(self, data: bytes, is_last: bool = False) -> str:
        """The characters that are whole now; at the last push a broken rest becomes U+FFFD."""
        data = self._rest + data if self._rest else data
        text, length = codecs.utf_8_decode(data, "replace", is_last)
        self._rest = data[length:]
        return text


def _token_bytes(core: tokenizers.Tokenizer, spec: Mapping[str, Any]) -> list[bytes]:
    """What each token adds to the text, by the scheme that the tokenizer's decoder names."""
    kinds = _decoder_kinds(spec.get("decoder") or {})
    to_bytes = _byte_level if "ByteLevel" in kinds else _metaspace
    table = [b""] * core.get_vocab_size(with_added_tokens=True)
    for token, index in core.get_vocab(with_added_tokens=True).items():
        if index >= _MOST_TOKENS:
            raise InvalidModel(f"a token has the id {index}; expected less than {_MOST_TOKENS}")
        if index >= len(table):
            table += [b""] * (index + 1 - len(table))
        table[index] = to_bytes(token)
    for index, added in core.get_added_tokens_decoder().items():
        table[index] = b"" if added.special else added.content.encode()
    return table


def _decoder_kinds(decoder: dict[str, Any]) -> set[str]:
    return {decoder.get("type", "")} | {
        kind for part in decoder.get("decoders", ()) for kind in _decoder_kinds(part)
    }


def _byte_level(token: str) -> bytes:
    table = _BYTE_OF
    if all(char in table for char in token):
        return bytes([table[char] for char in token])
    return token.encode()


def _metaspace(token: str) -> bytes:
    if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
        return bytes([int(token[3:5], 16)])
    return token.replace("▁", " ").encode()


def byte_alphabet() -> dict[str, int]:
    """The printable stand-in of each byte in byte-level vocabularies (the GPT-2 convention)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in printable]
    alphabet = {chr(byte): byte for byte in printable}
    return alphabet | {chr(256 + index): byte for index, byte in enumerate(hidden)}


_BYTE_OF = byte_alphabet()
