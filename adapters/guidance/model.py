"""The model object that Guidance programs hold: `Forkroot("tiny")`.

It joins connection, tokenizer, engine and interpreter; what they do is in their own modules.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from guidance._schema import SamplingParams
from guidance.chat import ChatTemplate
from guidance.models import Model

from ...core.api.keywords import ENGINE_SETTINGS, KeywordOwner
from ...core.api.protocol import Backend, InvalidCall, UnsupportedCall, Usage
from ..connection import REMOTE_SETTINGS, is_known, is_url, shared, suggestion, unnamed
from .engine import ForkrootEngine, ForkrootState
from .interpreter import ForkrootInterpreter
from .tokens import FolderTokenizer, tokenizer_folder

_OF_GEN = ("temperature", "max_tokens", "stop", "regex")
_OTHER_OWNERS = (
    KeywordOwner(_OF_GEN, "{name} is given in a program: gen(..., {name}=...)"),
    KeywordOwner(
        tuple(SamplingParams.__annotations__),
        "{name} is given beside them: sampling_params={{'{name}': ...}}",
    ),
)
_OWN = ("tokenizer", "echo", "chat_template", "sampling_params", "namespace", "model", "settings")
_KNOWN = frozenset((*_OWN, *ENGINE_SETTINGS, *REMOTE_SETTINGS))
_WITH_TOKENS = (
    "a model whose tokens can be read, as a folder, 'tiny' or a server's URL: Guidance chooses each"
    " token, and an API model takes none. Guidance's own models.OpenAI is for these"
)
_ALLOWED = f"{', '.join(_OWN)}, and settings of the runtime as `forkroot.connect` takes them"


class Forkroot(Model):
    """A Guidance model on our runtime. Copies of it, in any threads, share that runtime.

    where: a folder, "tiny", the URL of a forkroot server, or a backend. Everything that runs by one
      name in a process shares one runtime. `model` is taken for it where it is not given.
    tokenizer: the folder of the checkpoint's tokenizer, if `where` is not a folder.
    echo: show what is generated, with probabilities, as Guidance's other models do in notebooks.
    chat_template, sampling_params: as for `guidance.models.Transformers`.
    namespace: programs of different namespaces never share a cached token.
    settings: for the runtime, as for `forkroot.connect`; others: the same, by keyword.
    Raises InvalidModel and InvalidCall.
    """

    def __init__(
        self,
        where: Backend | str | Path | None = None,
        *,
        model: Backend | str | Path | None = None,
        tokenizer: str | Path | None = None,
        echo: bool = False,
        chat_template: str | type[ChatTemplate] | None = None,
        sampling_params: SamplingParams | None = None,
        namespace: str = "",
        settings: Mapping[str, Any] | None = None,
        **others: Any,
    ) -> None:
        settings = _with_settings(settings, others)
        where = where if where is not None else unnamed() if model is None else model
        _check(where, settings)
        if not isinstance(tokenizer, str | Path | None):
            allowed = "the folder of a checkpoint's tokenizer, or None"
            raise InvalidCall("tokenizer", tokenizer, allowed)
        if not isinstance(sampling_params, Mapping | None):
            raise InvalidCall("sampling_params", sampling_params, "a mapping, or None")
        connection = shared(where, **settings)
        info = connection.backend.info()
        if "tokens" not in info.features:
            raise UnsupportedCall("model", where, _WITH_TOKENS)
        name = info.model
        revision = settings.get("revision")
        folder = Path(tokenizer) if tokenizer else tokenizer_folder(where, name, revision)
        engine = ForkrootEngine(
            connection,
            FolderTokenizer(folder, chat_template),
            namespace=namespace,
            has_probabilities=echo,
        )
        super().__init__(
            interpreter=ForkrootInterpreter(engine),
            sampling_params=sampling_params or {},  # type: ignore[arg-type]
            echo=echo,
        )

    @property
    def used(self) -> Usage:
        """Prompt tokens of all grammars that led here, how many of them were cached, and the tokens
        that were sampled."""
        state = self._interpreter.state
        return state.used if isinstance(state, ForkrootState) else Usage()


def _with_settings(settings: Any, others: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of the runtime, however they are given. Raises InvalidCall."""
    if not isinstance(settings, Mapping | None):
        raise InvalidCall("settings", settings, "a mapping of the runtime's settings, or None")
    for name, value in (settings or {}).items():
        if name in others:
            raise InvalidCall(name, value, "one value: in settings, or as a keyword")
    return {**(settings or {}), **others}


def _check(where: Any, settings: Mapping[str, Any]) -> None:
    """Raise InvalidCall for what is not a setting of a runtime of ours, but has its place elsewhere
    or is nearly one; what is like nothing is for the runtime to refuse, or for a plugin to know."""
    if not (is_known(where) or is_url(where)):
        return
    for name, value in settings.items():
        near = "" if name in _KNOWN else suggestion(name, _KNOWN, *_OTHER_OWNERS)
        if near:
            raise InvalidCall(name, value, f"{_ALLOWED}{near}")
