"""Runs batches on a model: the one place where a step meets the device."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from typing import TypeAlias, TypeVar

import numpy as np
import torch
from torch import Tensor

from ....kernels.cpu.attention.prefault import Prefaulter
from ....kernels.devices import AUTO, Pool, attention_for, sampler_for
from ....kernels.interface import StaticAttention
from ...api.batch import Answer, Batch, Copy, Draw, Floats, Ints, NoMemory, Outcome
from ..config import ModelConfig
from ..inputs import Inputs
from ..model import Model
from ..parallel import Ranks
from ..pool import KVPool
from ..sampling.fetch import Fetch
from ..sampling.masks import allowed
from ..sampling.sampler import Drawn, Top, can_draw, sample
from ..sampling.there import sample_there
from .answers import answer, compute_along, score
from .flight import DeviceFlight
from .graphs import CudaRecorder, Graphs, Recorder, States
from .host import Host, HostStore
from .pieces import pieces

T = TypeVar("T")
Promise: TypeAlias = Callable[[], Outcome]

_PIECES = 4  # of a batch for which memory did not do


class ModelRunner:
    """A model and its pool of `num_slots` slots.

    attention, sampling: which kinds, see `kernels.devices`. host: where tokens go that have to
    leave the pool. max_running: sequences of a batch at most. graphs: whether steps of single
    tokens are recorded where the device can; recorder: by what, in tests.
    """

    def __init__(
        self,
        model: Model,
        num_slots: int,
        ranks: Ranks = Ranks(),  # noqa: B008 (frozen)
        attention: str = AUTO,
        host: Host = Host(),  # noqa: B008 (frozen)
        max_running: int = 64,
        graphs: bool = True,
        sampling: str = AUTO,
        recorder: Recorder | None = None,
    ) -> None:
        device, sizes = model.device, model.config
        is_cpu = device.type == "cpu" and attention in (AUTO, "cpu")
        self.model = model
        self._ranks = ranks
        self._place = _place(device)
        self._pool = KVPool(sizes, num_slots, model.dtype, device, ranks, is_by_slot=not is_cpu)
        self._ahead = Prefaulter(self._pool.storage)
        self._host = HostStore(self._pool.storage, host) if host.num_slots else None
        heads = ranks.part(sizes.num_kv_heads), sizes.head_dim, sizes.group
        self._attention = attention_for(Pool(device, model.dtype, num_slots, *heads), attention)
        self._drawing = sampler_for(device, sampling)
        self._drawn = torch.zeros(max_running, dtype=torch.int64, device=device)
        self._graphs = self._recorded(max_running, recorder) if graphs else None
        if device.type == "cuda" and ranks.size == 1:
            self.record_steps()
        can_draw(device)  # loops are compiled now, not in a call's time

    def run(self, batch: Batch) -> Outcome:
        """Compute one batch: KV of its new tokens into their slots, tokens and scores out.

        A sequence whose numbers are not finite gets token -1, or score NaN, and harms no other.
        Raises NoMemory where the device's does not do.
        """
        return self._landed(self.launch(batch), batch)

    @torch.inference_mode()
    def launch(self, batch: Batch) -> DeviceFlight:
        """Begin to compute a batch, after those before it; on a GPU this waits for nothing. Its id
        -1 - i stands for the token that draw i of the flight before gave, any token where that is
        -1. Raises NoMemory; with several ranks, which must all come along, OutOfMemoryError."""
        with self._place:
            self._copy(batch.copies)
            return self._flight(self._patient_states(batch), batch)

    @torch.inference_mode()
    def follow(self, batch: Batch) -> None:
        """Compute along with rank 0, which launches the same batch: this rank's part of all."""
        with self._place:
            self._copy(batch.copies)
            self._follow(self._states(batch), batch)

    @torch.inference_mode()
    def record_steps(self) -> None:
        """Record all steps of single tokens now, where such are recorded; with several ranks, on
        all at once."""
        if self._graphs is not None:
            with self._place:
                self._graphs.record_all()

    def close(self) -> None:
        """Give the pool's memory back; the runner cannot run any more."""
        del self._graphs, self._pool, self._ahead, self.model, self._host

    # --- hidden states -----------------------------------------------------------------------

    def _copy(self, copies: tuple[Copy, ...]) -> None:
        """To and from the host, one by one: a copy may be done twice, but not all of them, as a
        later one may write what an earlier one reads."""
        for it in copies:
            assert self._host is not None
            self._patiently(partial(self._host.copy, (it,)))

    def _states(self, batch: Batch) -> States:
        model = self.model
        num_named = -int(batch.ids.min(initial=0))
        if num_named:
            self._ranks.spread(self._drawn[:num_named])
        if self._graphs is not None:
            made = self._graphs.run(batch)
            if made is not None:
                return made
        self._ahead.use(int(batch.slots.max(initial=0)))
        drawn = self._drawn if num_named else None
        inputs = Inputs.of(batch, model.windows, self._attention, model.device, drawn)
        return States(model.hidden(inputs, self._pool, self._attention))

    def _patient_states(self, batch: Batch) -> States:
        """As `_states`; where memory does not do for all of a batch at once, in pieces (with
        several ranks it ends there: no other would know)."""
        if self._ranks.size > 1:
            return self._states(batch)
        with contextlib.suppress(torch.OutOfMemoryError):
            return self._states(batch)
        _free(self.model.device)
        rows: list[tuple[Tensor, ...]] = []  # sampled, scored and queried ones of each piece
        try:
            for piece in pieces(batch, -(-len(batch.ids) // _PIECES)):
                lens = len(piece.sampled), len(piece.scored), len(piece.queried)
                hidden = self._states(piece).hidden
                rows.append(tuple(part.clone() for part in hidden.split(lens)))
        except torch.OutOfMemoryError as error:
            raise self._no_memory() from error
        return States(torch.cat([part for kind in zip(*rows, strict=True) for part in kind]))

    def _patiently(self, action: Callable[[], T]) -> T:
        """Do it; once more, with all given back that torch keeps for later, where memory does not
        do. Raises NoMemory."""
        with contextlib.suppress(torch.OutOfMemoryError):
            return action()
        _free(self.model.device)
        try:
            return action()
        except torch.OutOfMemoryError as error:
            raise self._no_memory() from error

    def _no_memory(self) -> NoMemory:
        return NoMemory(f"the memory of {self.model.device} does not do for a batch")

    def _recorded(self, most: int, recorder: Recorder | None) -> Graphs | None:
        """Recorded steps, where there is something that can record them: our own models' alone, as
        others' code may wait for the device."""
        model, device = self.model, self.model.device
        if recorder is None and device.type != "cuda":
            return None
        if not isinstance(self._attention, StaticAttention):
            return None
        if not isinstance(model.config, ModelConfig):
            return None
        sizes = most, model.config.context_len
        with self._place, torch.inference_mode():
            recorder = recorder or CudaRecorder(device)
            return Graphs(model, self._pool, self._attention, *sizes, recorder, self._drawn)

    # --- what they give ----------------------------------------------------------------------

    def _flight(self, states: States, batch: Batch) -> DeviceFlight:
        fetch, num_sampled = Fetch(self.model.device), len(batch.sampled)
        scored, answered = _no_scores, _no_answers
        if len(batch.scored) or len(batch.queried):
            num_told = num_sampled + len(batch.scored)
            part, rest = states.hidden[num_sampled:num_told], states.hidden[num_told:]
            scored = self._together(lambda: score(self.model, part, batch, fetch))
            answered = self._together(lambda: answer(self.model, rest, batch, fetch))
        may_wait = self.model.device.type == "cpu" and self._ranks.size == 1
        logits = None if may_wait else self._together(lambda: self._sampled(states, num_sampled))

        def begin(draws: tuple[Draw, ...]) -> Promise:
            drawn = self._draw(states, logits, draws, fetch)
            fetch.seal()

            def outcome() -> Outcome:
                fetch.wait()
                found, (scores, tops) = drawn(), scored()
                told = found.tokens, found.logprobs, found.tops
                return Outcome(*told, scores, found.log_masses, answered(), tops)

            return outcome

        return DeviceFlight(begin)

    def _follow(self, states: States, batch: Batch) -> None:
        """The logits that `_flight` asks for, in its order."""
        num_sampled = len(batch.sampled)
        num_told = num_sampled + len(batch.scored)
        compute_along(self.model, states.hidden[num_sampled:num_told], states.hidden[num_told:])
        self._sampled(states, num_sampled)

    def _together(self, action: Callable[[], T]) -> T:
        """Do what all ranks do at once: as `_patiently` if there is one, else only once."""
        return action() if self._ranks.size > 1 else self._patiently(action)

    def _sampled(self, states: States, count: int, allowed: Ints | None = None) -> Tensor | None:
        """Logits of the first rows, after which tokens are drawn, as `Model.logits`; None if there
        are none."""
        if states.logits is not None or not count:
            return states.logits
        return self.model.logits(states.hidden[:count], allowed)

    @torch.inference_mode()
    def _draw(
        self, states: States, logits: Tensor | None, draws: tuple[Draw, ...], fetch: Fetch
    ) -> Callable[[], Drawn]:
        """logits: None where only those are computed of which it is now known that they matter."""
        if not draws:
            return lambda: Drawn(np.empty(0, np.int64), np.empty(0, np.float32), ())
        with self._place:
            if logits is None:
                bits = allowed(draws, self.model.config.vocabulary_size)
                logits = self._patiently(lambda: self._sampled(states, len(draws), bits))
                assert logits is not None
            return self._patiently(lambda: self._drawn_from(logits, draws, fetch))

    def _drawn_from(
        self, logits: Tensor, draws: tuple[Draw, ...], fetch: Fetch
    ) -> Callable[[], Drawn]:
        if self._drawing is not None:
            tokens, told = sample_there(logits, draws, self._drawing, fetch)
            self._keep(tokens)
            return told
        drawn = sample(logits, draws)
        if self._drawn.is_cpu:
            kept = self._drawn.numpy()
            kept[: len(drawn.tokens)] = drawn.tokens[: len(kept)]
        else:
            self._keep(torch.from_numpy(drawn.tokens))
        return lambda: drawn

    def _keep(self, tokens: Tensor) -> None:
        """For the next batch to name."""
        kept = self._drawn[: len(tokens)]
        kept.copy_(tokens[: len(kept)], non_blocking=True)

    @staticmethod
    def _landed(flight: DeviceFlight, batch: Batch) -> Outcome:
        flight.draw(batch.draws)
        return flight.outcome()


def _no_scores() -> tuple[Floats, tuple[Top, ...]]:
    return np.empty(0, np.float32), ()


def _no_answers() -> tuple[Answer, ...]:
    return ()


def _place(device: torch.device) -> contextlib.AbstractContextManager[object]:
    """Within this, kernels and streams are those of the device, in whichever thread."""
    return torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext()


def _free(device: torch.device) -> None:
    """Give back to the device what torch keeps for later."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
