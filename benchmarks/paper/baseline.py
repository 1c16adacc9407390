"""The baseline: transformers' model code, greedily, one call after another, nothing kept.

It shares no code with the engine but the tokenizer: its answers are what an engine's are judged by.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from forkroot.core.api.protocol import (
    BackendInfo,
    Call,
    Completion,
    OptionScore,
    Output,
    Reply,
    Text,
    UnsupportedCall,
    Usage,
)
from forkroot.core.api.reply import Mailbox
from forkroot.core.model.hub.folders import model_folder
from forkroot.core.text.tokenizer import Tokenizer


class Baseline:
    """As `Backend`. Constraints and pictures raise UnsupportedCall; hints are ignored."""

    def __init__(self, model: str | Path, threads: int = 1) -> None:
        import torch
        from transformers import AutoModelForCausalLM

        torch.set_num_threads(threads)
        folder = model_folder(model)
        self._torch = torch
        self.tokenizer = Tokenizer.from_folder(folder)
        loaded: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        self._model = loaded.eval()
        self._end_ids = _end_ids(self._model.generation_config.eos_token_id)
        self._calls: queue.SimpleQueue[Mailbox | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="baseline", daemon=True)
        self._thread.start()

    def submit(self, call: Call) -> Mailbox:
        """Take a call; it is computed after all before it."""
        mailbox = Mailbox(call)
        self._calls.put(mailbox)
        return mailbox

    def cancel(self, reply: Reply) -> None:
        """Calls are not cancelled: they end by themselves."""

    def info(self) -> BackendInfo:
        """The context of the model."""
        config = self._model.config
        features = frozenset({"tokens", "options"})
        return BackendInfo("baseline", config.max_position_embeddings, config.vocab_size, features)

    def clear_cache(self) -> None:
        """Nothing is kept."""

    def close(self) -> None:
        """End after the calls that were taken."""
        self._calls.put(None)
        self._thread.join()

    def _serve(self) -> None:
        with self._torch.inference_mode():
            while (mailbox := self._calls.get()) is not None:
                try:
                    mailbox.finish(self._answer(mailbox.call))
                except Exception as error:
                    mailbox.fail(error)

    def _answer(self, call: Call) -> Completion:
        if call.constraint is not None:
            raise UnsupportedCall("constraint", call.constraint, "none")
        ids = self.tokenizer.encode_prompt(call.prompt)
        if call.options:
            return self._score(call, ids)
        if call.sampling.max_tokens == 0:
            return Completion(usage=Usage(len(ids)))
        return self._generate(call, ids)

    def _score(self, call: Call, ids: list[int]) -> Completion:
        """Each option after the whole prompt, computed again."""
        scores = []
        for text in call.options:
            own = self.tokenizer.encode_after(text)
            logits = self._model(self._torch.tensor([ids + own])).logits[0, len(ids) - 1 : -1]
            logprobs = logits.float().log_softmax(-1)[range(len(own)), own].tolist()
            scores.append(OptionScore(text, tuple(own), tuple(logprobs), (Text(text),)))
        num_computed = sum(len(ids) + len(score.ids) for score in scores)
        return Completion(usage=Usage(num_computed), scores=tuple(scores))

    def _generate(self, call: Call, ids: list[int]) -> Completion:
        sampling, found, text = call.sampling, list[int](), ""
        for token in self._tokens(ids, sampling.max_tokens or 0):
            if token in self._end_ids and not sampling.ignore_eos:
                return _completion(text, tuple(found), found, len(ids), "stop")
            found.append(token)
            text = self.tokenizer.decode(found)
            cuts = [text.find(stop) for stop in sampling.stop if stop in text]
            if cuts:
                return _completion(text[: min(cuts)], None, found, len(ids), "stop")
        return _completion(text, tuple(found), found, len(ids), "length")

    def _tokens(self, ids: list[int], count: int) -> Iterator[int]:
        """The likeliest tokens, one after another."""
        shown, past = self._torch.tensor([ids]), None
        room = self._model.config.max_position_embeddings - len(ids)
        for _ in range(min(count, room)):
            found = self._model(shown, past_key_values=past, use_cache=True, logits_to_keep=1)
            past, token = found.past_key_values, int(found.logits[0, -1].argmax())
            yield token
            shown = self._torch.tensor([[token]])


def _end_ids(ids: int | list[int] | None) -> frozenset[int]:
    return frozenset(ids if isinstance(ids, list) else [] if ids is None else [ids])


def _completion(
    text: str, spelled: tuple[int, ...] | None, ids: list[int], num_prompt: int, reason: Any
) -> Completion:
    """spelled: the tokens that wrote exactly this text; None where it was cut."""
    output = Output(text, tuple(ids), reason, segments=(Text(text, spelled),))
    return Completion((output,), Usage(num_prompt, 0, len(ids)))
