"""A checkpoint's tokenizer as Guidance wants it: read from `tokenizer.json`, without transformers.

It knows files and no runtime.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import llguidance
from guidance.chat import CHAT_TEMPLATE_CACHE, ChatTemplate
from guidance.models._engine import Tokenizer

from ...core.api.protocol import InvalidModel
from ..connection import hub_folder

EMBEDDED = "tiny"


class FolderTokenizer(Tokenizer):
    """The tokenizer of a checkpoint folder.

    chat_template: a class of Guidance's, or a template that it knows; None: the folder's own, if
      Guidance knows it, else ChatML. Raises InvalidModel.
    """

    def __init__(self, folder: Path, chat_template: str | type[ChatTemplate] | None = None) -> None:
        path = folder / "tokenizer.json"
        config = _read(folder / "tokenizer_config.json")
        source = _read(path)
        ids = {token["content"]: token["id"] for token in source.get("added_tokens", ())}
        added = sorted(filter(None, ids), key=len, reverse=True)
        self._longest_added = max(map(len, added), default=0)
        self._added = re.compile("|".join(map(re.escape, added)) or "(?!)")
        self.spell, self.is_spelled = cache(self._spell), cache(self._is_spelled)
        ids |= _vocabulary(source)
        eos = ids.get(_content(config.get("eos_token")) or "")
        if eos is None:
            raise InvalidModel(f"{path} has no end token that tokenizer_config.json names")
        template = chat_template or _known_template(config.get("chat_template"))
        inner = llguidance.LLTokenizer(json.dumps(source), eos_token=eos)
        super().__init__(
            ll_tokenizer=inner,
            chat_template=template,  # type: ignore[arg-type]  # it takes classes
            bos_token_id=ids.get(_content(config.get("bos_token")) or ""),
        )

    def _spell(self, token: int) -> bytes:
        """The bytes of a token."""
        return bytes(self.decode([token]))

    def _is_spelled(self, text: str) -> bool:
        """Whether these characters follow one another in a token."""
        data = text.encode()
        return any(data in self.spell(token) for token in range(self.vocabulary_size))

    def is_plain(self, before: str, text: str) -> bool:
        """Whether a text spells no special token, not even with the text before it."""
        tail = before[-self._longest_added :]
        found = self._added.finditer(tail + text)
        return all(special.end() <= len(tail) for special in found)

    @property
    def vocabulary_size(self) -> int:
        """How many token ids there are."""
        return int(self._ll_tokenizer.vocab_size)


def tokenizer_folder(where: object, model: str, revision: str | None = None) -> Path:
    """The folder with the tokenizer of a runtime.

    where: the argument by which the runtime was made, and the revision of a hub model; model: its
    own name. Raises InvalidModel where that is not a folder, hub model in the cache, or embedded
    model.
    """
    if isinstance(where, str | Path) and Path(where).is_dir():
        return Path(where)
    if EMBEDDED in (where, model):
        return Path(__file__).resolve().parents[2] / "models" / EMBEDDED
    if (found := hub_folder(where, revision)) is not None:
        return found
    raise InvalidModel(
        f"the tokenizer of {model!r} is not here; give the folder that holds its tokenizer.json:"
        " Forkroot(..., tokenizer=folder)"
    )


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text())
    except FileNotFoundError:
        raise InvalidModel(
            f"{path} is missing; Guidance needs the checkpoint's tokenizer"
        ) from None
    except ValueError as error:
        raise InvalidModel(f"{path} is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise InvalidModel(f"{path} is not a JSON object")
    return found


def _vocabulary(source: dict[str, Any]) -> dict[str, int]:
    found = source.get("model", {}).get("vocab", {})
    return found if isinstance(found, dict) else {text: i for i, (text, _) in enumerate(found)}


def _content(token: Any) -> str | None:
    """The text of a special token, which is written in one of two ways."""
    return token.get("content") if isinstance(token, dict) else token


def _known_template(template: object) -> str | None:
    """The template, unless Guidance would warn that it does not know it and take ChatML where that
    is what the template writes."""
    if not isinstance(template, str):
        return None
    is_chatml = template not in CHAT_TEMPLATE_CACHE and "<|im_start|>" in template
    return None if is_chatml else template
