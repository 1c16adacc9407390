"""A causal model of transformers in two halves, so that logits are made of wanted rows only."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor

from ...api.batch import Ints
from ...api.protocol import InvalidModel
from ..inputs import Spliced


class Decoder:
    """A causal model of transformers, each half run by its own code: the body gives states, and
    the head makes logits of some of these. Raises InvalidModel for models that cannot be cut."""

    def __init__(self, whole: Any) -> None:
        self.name = type(whole).__name__
        self.num_layers = int(whole.config.get_text_config().num_hidden_layers)
        self.whole = whole
        self.dtype: torch.dtype = whole.dtype
        self.device: torch.device = whole.device
        names = whole.base_model_prefix, "model"  # some name the one and have the other
        self._name = next((name for name in names if name in whole._modules), "")
        self._base = whole._modules.get(self._name, whole)
        self._body = self._base._modules.get("language_model", self._base)  # beside a tower
        self._given = _Given()
        self._parameters = inspect.signature(self._body.forward).parameters
        self._check()

    def states(
        self, ids: Tensor, positions: Tensor, mask: Tensor | None, spliced: Spliced | None = None
    ) -> Tensor:
        """Last hidden states [tokens, hidden] of ids [1, tokens] and positions [1, tokens], or
        rotary ones [3, 1, tokens]."""
        given = {} if mask is None else {"attention_mask": mask}
        given |= {"input_ids": ids} if spliced is None else self._embedded(ids, spliced)
        out = self._body(position_ids=positions, use_cache=False, **given)
        states: Tensor = out[0][0]
        return states

    def _embedded(self, ids: Tensor, spliced: Spliced) -> dict[str, Any]:
        """Features of pictures in place of tokens, as a body takes them."""
        embeddings = self._body.get_input_embeddings()(ids)
        first, *others = spliced.values.split(embeddings.shape[-1], dim=-1)
        embeddings[0, spliced.tokens] = first
        if not others:
            return {"inputs_embeds": embeddings}
        is_spliced = torch.zeros_like(ids, dtype=torch.bool)
        is_spliced[0, spliced.tokens] = True
        layers = {"visual_pos_masks": is_spliced, "deepstack_visual_embeds": others}
        return {"inputs_embeds": embeddings, **layers}

    def cached(self, ids: Tensor, positions: Tensor, mask: Tensor | None, cache: Any) -> Tensor:
        """Last hidden states [rows, tokens, hidden] of ids and positions [rows, tokens] behind what
        a cache of transformers holds. mask: [rows, past and new tokens], 0 where there is only
        padding; None: nowhere."""
        given = {"attention_mask": mask, "past_key_values": cache, "use_cache": True}
        if "position_ids" in self._parameters:
            given["position_ids"] = positions
        states: Tensor = self._body(input_ids=ids, **given)[0]
        return states

    def logits(self, states: Tensor) -> Tensor:
        """Logits [rows, vocabulary] of states [rows, hidden]."""
        self._given.states = states[None]
        self.whole._modules[self._name] = self._given
        try:
            ids = torch.zeros(1, len(states), dtype=torch.int64, device=states.device)
            logits: Tensor = self.whole(input_ids=ids, use_cache=False).logits[0]
        finally:
            self.whole._modules[self._name] = self._base
        return logits

    def alone(self, ids: Tensor, attention: str, **pictures: Tensor) -> Tensor:
        """Logits [tokens, vocabulary] of one whole sequence [1, tokens] by an attention of
        transformers. pictures: what the model takes for those in it."""
        own = self._body.config._attn_implementation
        self._body.set_attn_implementation(attention)
        try:
            logits: Tensor = self.whole(input_ids=ids, use_cache=False, **pictures).logits[0]
        finally:
            self._body.set_attn_implementation(own)
        return logits

    def check_positions(self) -> None:
        """Raise InvalidModel for a body that takes no positions, and so no mixed batches."""
        if "position_ids" not in self._parameters:
            raise InvalidModel(f"{self.name} takes no positions; expected models that do")

    def _check(self) -> None:
        if self._base is self.whole:
            raise InvalidModel(f"{self.name} has no body apart from its head")
        mixers = (torch.nn.Conv1d, torch.nn.RNNBase)
        found = [name for name, part in self._body.named_modules() if isinstance(part, mixers)]
        if found:
            raise InvalidModel(f"{self.name} mixes tokens in {found[0]}; expected attention only")


class DecoderModel:
    """What every `Model` of a decoder of transformers shares."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self.dtype, self.device = decoder.dtype, decoder.device

    def logits(
        self, hidden: Tensor, allowed: Ints | None = None, out: Tensor | None = None
    ) -> Tensor:
        """As `Model.logits`, of all tokens."""
        logits = self._decoder.logits(hidden)
        return logits.float() if out is None else out.copy_(logits)


class _Given(torch.nn.Module):
    """Replaces the body of a model whose states are known, and the parts of it that some heads
    call."""

    states: Tensor

    def __getattr__(self, name: str) -> Any:
        return self.__dict__.get(name, self)

    def forward(self, *_: Any, **__: Any) -> Any:
        """What a body gives."""
        return _Output(last_hidden_state=self.states)


class _Output(dict[str, Any]):
    """A model output of which only the states are set: by name, by key and by index."""

    def __getattr__(self, name: str) -> Any:
        return self.get(name)

    def __getitem__(self, key: Any) -> Any:
        return self["last_hidden_state"] if key == 0 else super().__getitem__(key)
