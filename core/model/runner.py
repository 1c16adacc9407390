"""Runs batches on a model: the one place where a step meets the device."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from typing import TypeAlias, TypeVar

import numpy as np
import torch
from torch import Tensor

from ...kernels import StaticAttention
from ...kernels.devices import AUTO, Pool, attention_for, has_triton
from .batch import Answer, Batch, Copy, Doubles, Draw, Floats, NoMemory, Outcome
from .config import ModelConfig
from .fetch import Fetch
from .flight import DeviceFlight
from .graphs import CudaRecorder, Graphs, Recorder, States
from .host import Host, HostStore
from .inputs import Inputs, to_tensor
from .model import Model
from .parallel import Ranks
from .pieces import pieces
from .pool import KVPool
from .sampler import Drawn, Top, can_draw, rivals, sample, tops_of
from .there import draw_there, is_plain, tokens_only

T = TypeVar("T")
Promise: TypeAlias = Callable[[], Outcome]

_SCORE_ROWS = 256
_QUERY_ROWS = 32
_PIECES = 4  # of a batch for which memory did not do


class ModelRunner:
    """A model and its pool of `num_slots` slots.

    attention: which kind, see `kernels.devices`. host: where tokens go that have to leave the pool.
    max_running: sequences of a batch at most. graphs: whether steps of single tokens are recorded
    where the device can; recorder: by what, in tests.
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
        recorder: Recorder | None = None,
    ) -> None:
        device, sizes = model.device, model.config
        is_triton = has_triton(device) if device.type == "cuda" else attention == "triton"
        is_cpu = device.type == "cpu" and attention in (AUTO, "cpu")
        self._model = model
        self._ranks = ranks
        self._place = _place(device)
        self._pool = KVPool(sizes, num_slots, model.dtype, device, ranks, is_by_slot=not is_cpu)
        self._host = HostStore(self._pool.storage, host) if host.num_slots else None
        heads = ranks.part(sizes.num_kv_heads), sizes.head_dim, sizes.group
        self._attention = attention_for(Pool(device, model.dtype, num_slots, *heads), attention)
        self._draws_there = is_triton
        self._drawn = torch.zeros(max_running, dtype=torch.int64, device=device)
        self._graphs = self._recorded(max_running, recorder) if graphs else None
        can_draw(device)  # loops are compiled now, not in a call's time

    def run(self, batch: Batch) -> Outcome:
        """Compute one batch: KV of its new tokens into their slots, tokens and scores out.

        A sequence whose numbers are not finite gets token -1, or score NaN, and harms no other.
        Raises NoMemory where the device's does not do.
        """
        return self._landed(self.launch(batch), batch)

    @torch.inference_mode()
    def launch(self, batch: Batch) -> DeviceFlight:
        """Begin to compute a batch, after those before it; on a GPU this waits for nothing unless
        the batch has queries. Its id -1 - i stands for the token that draw i of the flight before
        gave, any token where that is -1. Raises NoMemory."""
        with self._place:
            self._copy(batch.copies)
            return self._flight(self._patient_states(batch), batch)

    @torch.inference_mode()
    def hidden(self, batch: Batch) -> States:
        """Hidden states of the tokens after which something is wanted; with several ranks, each
        must compute the same batch."""
        with self._place:
            self._copy(batch.copies)
            return self._states(batch)

    @torch.inference_mode()
    def outcome(self, states: States, batch: Batch) -> Outcome:
        """What these hidden states give; one rank alone can tell."""
        with self._place:
            return self._landed(self._flight(states, batch), batch)

    def close(self) -> None:
        """Give the pool's memory back; the runner cannot run any more."""
        del self._graphs, self._pool, self._model, self._host

    # --- hidden states -----------------------------------------------------------------------

    def _copy(self, copies: tuple[Copy, ...]) -> None:
        """To and from the host, one by one: a copy may be done twice, but not all of them, as a
        later one may write what an earlier one reads."""
        for it in copies:
            assert self._host is not None
            self._patiently(partial(self._host.copy, (it,)))

    def _states(self, batch: Batch) -> States:
        model = self._model
        if self._graphs is not None:
            made = self._graphs.run(batch)
            if made is not None:
                return made
        inputs = Inputs.of(batch, model.windows, self._attention, model.device, self._drawn)
        return States(model.hidden(inputs, self._pool, self._attention))

    def _patient_states(self, batch: Batch) -> States:
        """As `_states`; where memory does not do for all of a batch at once, in pieces."""
        with contextlib.suppress(torch.OutOfMemoryError):
            return self._states(batch)
        _free(self._model.device)
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
        _free(self._model.device)
        try:
            return action()
        except torch.OutOfMemoryError as error:
            raise self._no_memory() from error

    def _no_memory(self) -> NoMemory:
        return NoMemory(f"the memory of {self._model.device} does not do for a batch")

    def _recorded(self, most: int, recorder: Recorder | None) -> Graphs | None:
        """Recorded steps, where there is something that can record them: our own models' alone, as
        others' code may wait for the device."""
        model, device = self._model, self._model.device
        if recorder is None and device.type != "cuda":
            return None
        if not isinstance(self._attention, StaticAttention):
            return None
        if not isinstance(model.config, ModelConfig):
            return None
        sizes = most, model.config.context_len
        with self._place, torch.inference_mode():
            recorder = recorder or CudaRecorder(device)
            is_first = self._ranks.rank == 0
            graphs = Graphs(
                model, self._pool, self._attention, *sizes, recorder, self._drawn, is_first
            )
            if device.type == "cuda" and self._ranks.size == 1:  # ranks record as they meet
                graphs.record_all()
        return graphs

    # --- what they give ----------------------------------------------------------------------

    def _flight(self, states: States, batch: Batch) -> DeviceFlight:
        fetch, num_sampled = Fetch(self._model.device), len(batch.sampled)
        num_told = num_sampled + len(batch.scored)
        part = states.hidden[num_sampled:num_told]
        scored = self._patiently(lambda: self._score(part, batch, fetch))
        answers = self._patiently(lambda: self._answer(states.hidden[num_told:], batch))
        sampled = States(states.hidden[:num_sampled], states.logits)

        def begin(draws: tuple[Draw, ...]) -> Promise:
            drawn = self._draw(sampled, draws, fetch)
            fetch.seal()

            def outcome() -> Outcome:
                fetch.wait()
                found, (scores, tops) = drawn(), scored()
                told = found.tokens, found.logprobs, found.tops
                return Outcome(*told, scores, found.log_masses, answers, tops)

            return outcome

        return DeviceFlight(begin)

    @torch.inference_mode()
    def _draw(self, states: States, draws: tuple[Draw, ...], fetch: Fetch) -> Callable[[], Drawn]:
        if not draws:
            return lambda: Drawn(np.empty(0, np.int64), np.empty(0, np.float32), ())
        with self._place:
            return self._patiently(lambda: self._drawn_from(states, draws, fetch))

    def _drawn_from(
        self, states: States, draws: tuple[Draw, ...], fetch: Fetch
    ) -> Callable[[], Drawn]:
        logits = self._model.logits(states.hidden) if states.logits is None else states.logits
        if self._draws_there and all(map(is_plain, draws)):
            tokens = draw_there(logits, draws)
            self._keep(tokens)
            told = fetch.add(tokens)
            return lambda: tokens_only(told)
        drawn = sample(logits, draws)
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

    def _score(
        self, hidden: Tensor, batch: Batch, fetch: Fetch
    ) -> Callable[[], tuple[Floats, tuple[Top, ...]]]:
        """Log-probabilities of the targets and their rivals; few rows of logits exist at a time."""
        scores: list[Tensor] = []
        tops: list[tuple[Tensor, Tensor]] = []
        targets = to_tensor(batch.targets, hidden.device) if len(hidden) else None
        for start in range(0, len(hidden), _SCORE_ROWS):
            assert targets is not None
            part = slice(start, start + _SCORE_ROWS)
            logits = self._model.logits(hidden[part])
            total = logits.logsumexp(-1, keepdim=True)
            chosen = logits.gather(1, targets[part, None]) - total
            scores.append(fetch.add(chosen[:, 0]))
            if batch.num_rivals:
                ids, logs = rivals(logits, total, batch.num_rivals)
                tops.append((fetch.add(ids), fetch.add(logs)))

        def told() -> tuple[Floats, tuple[Top, ...]]:
            found = [part.numpy() for part in scores]
            all_scores = np.concatenate(found) if found else np.empty(0, np.float32)
            return all_scores, tuple(top for pair in tops for top in tops_of(*pair))

        return told

    def _answer(self, hidden: Tensor, batch: Batch) -> tuple[Answer, ...]:
        """Answers to the queries, in float64; few rows of logits exist at a time."""
        answers = []
        for place, query in enumerate(batch.queries):
            if place % _QUERY_ROWS == 0:
                logits = self._model.logits(hidden[place : place + _QUERY_ROWS])
                rows = logits.double().log_softmax(-1).numpy(force=True)
            row = rows[place % _QUERY_ROWS]
            masses = [_log_sum(row[tokens]) for tokens in query.sets]
            answers.append(Answer(row[query.tokens], np.array(masses, np.float64)))
        return tuple(answers)


def _log_sum(logs: Doubles) -> float:
    """The logarithm of a sum of numbers given by their logarithms."""
    most = logs.max(initial=-np.inf)
    return most if most == -np.inf else float(most + np.log(np.exp(logs - most).sum()))


def _place(device: torch.device) -> contextlib.AbstractContextManager[object]:
    """Within this, kernels and streams are those of the device, in whichever thread."""
    return torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext()


def _free(device: torch.device) -> None:
    """Give back to the device what torch keeps for later."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
