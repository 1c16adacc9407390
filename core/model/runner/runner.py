"""Runs batches on a model: the part of a step that runs on the device."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from ....kernels.cpu.attention.prefault import Prefaulter
from ....kernels.devices import AUTO, Pool, attention_for, sampler_for
from ....kernels.interface import StaticAttention
from ...api.batch import Answer, Batch, Copy, Floats, Ints, NoMemory, Outcome, SamplingParams
from ..config import ModelConfig
from ..inputs import Inputs
from ..model import Model
from ..parallel import Ranks
from ..pool import KVPool
from ..sampling.device_sampler import sample_on_device
from ..sampling.fetch import Fetch
from ..sampling.logprobs import Top
from ..sampling.masks import allowed
from ..sampling.sampler import Samples, has_compiled_sampler, sample
from ..step_sizes import EXTEND_SIZES
from .answers import answer, blocks, score
from .features import FeatureStore
from .graphs import CudaRecorder, Graphs, Recorder, States
from .host import Host, HostStore
from .micro_batches import NUM_MICRO_BATCHES, micro_batches

T = TypeVar("T")


class ModelRunner:
    """A model and its pool of `num_slots` slots.

    attention, sampling: which kinds, see `kernels.devices`. host: where offloaded tokens
    go. max_running: sequences of a batch at most. graphs: whether steps of few
    tokens are recorded where the device can; recorder: by what, in tests.
    extend_sizes: as in `Graphs`.
    num_replayed, num_eager: steps that were replays of recorded ones, and others.
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
        extend_sizes: tuple[int, ...] = EXTEND_SIZES,
    ) -> None:
        device, sizes = model.device, model.config
        is_cpu = device.type == "cpu" and attention in (AUTO, "cpu", "deterministic")
        self.model = model
        self._ranks = ranks
        # In which kernels and streams are those of the device, in any thread.
        self._context: contextlib.AbstractContextManager[object] = (
            torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext()
        )
        self._pool = KVPool(sizes, num_slots, model.dtype, device, ranks, is_by_slot=not is_cpu)
        self._ahead = Prefaulter(self._pool.storage)
        with self._context:
            self._host = HostStore(self._pool.storage, host) if host.num_slots else None
        self._due_copies: deque[Copy] = deque()
        heads = ranks.part(sizes.num_kv_heads), sizes.head_dim, sizes.group
        self._attention = attention_for(Pool(device, model.dtype, num_slots, *heads), attention)
        self._drawing = sampler_for(device, sampling)
        self._features = FeatureStore(model)
        self._sampled_ids = torch.zeros(max_running, dtype=torch.int64, device=device)
        self._graphs = self._recorded(max_running, recorder, extend_sizes) if graphs else None
        self.num_replayed = self.num_eager = 0
        if device.type == "cuda" and ranks.size == 1:
            self.record_steps()
        has_compiled_sampler(device)  # compile the loops now, not during a call

    def run(self, batch: Batch) -> Outcome:
        """Compute one batch: write the KV of its new tokens, return tokens and scores.

        A sequence whose numbers are not finite gets token -1, or score NaN, and harms no other.
        Raises NoMemory where the device has too little memory.
        """
        launched = self.launch(batch)
        launched.sample(batch.sampling_params)
        return launched.result()

    @torch.inference_mode()
    def launch(self, batch: Batch) -> DeviceBatch:
        """Launch a batch after those before it; on a GPU this does not wait. Its id -1 - i refers
        to sample i of the batch before; any token where that is -1. Raises NoMemory; with several
        ranks, which must stay in step, OutOfMemoryError."""
        with self._context, self._resending():
            self._copy(batch.copies)
            self._encode(batch)
            return self._in_flight(self._states_or_micro_batches(batch), batch)

    @torch.inference_mode()
    def follow(self, batch: Batch) -> None:
        """Compute this rank's part of a batch that rank 0 launches."""
        with self._context, self._resending():
            self._copy(batch.copies)
            self._encode(batch)
            self._follow(self._states(batch), batch)

    @torch.inference_mode()
    def record_steps(self) -> None:
        """Record graphs of all decode steps now, where graphs are used; with several ranks, on all
        at once."""
        if self._graphs is not None:
            with self._context:
                self._graphs.record_all()

    def fits_graphs(self, batch: Batch) -> bool:
        """Whether a batch may be run as a recorded step."""
        return self._graphs is not None and _is_plain(batch) and self._graphs.fits(batch)

    def close(self) -> None:
        """Free the pool's memory; the runner cannot run any more."""
        if self._host is not None:
            self._host.close()
        del self._graphs, self._pool, self._ahead, self.model, self._host, self._features

    # --- hidden states -----------------------------------------------------------------------

    @contextlib.contextmanager
    def _resending(self) -> Iterator[None]:
        """If the body fails, what the batch changed in the slot table is not on the device."""
        try:
            yield
        except BaseException:
            if isinstance(self._attention, StaticAttention):
                self._attention.forget()
            raise

    def _copy(self, copies: tuple[Copy, ...]) -> None:
        """To and from the host, one by one: a copy may be made twice, but not all of them, as a
        later one may write what an earlier one reads. The cache counts on all of them: those for
        which there is no memory are made before the next batch."""
        self._due_copies.extend(copies)
        while self._due_copies:
            assert self._host is not None
            self._with_retry(partial(self._host.copy, self._due_copies[0]))
            self._due_copies.popleft()

    def _encode(self, batch: Batch) -> None:
        """Free and encode features of pictures; one unit at a time where memory is short."""
        self._features.drop(batch.dropped)
        if batch.encodes:
            encode = self._features.encode
            self._collectively(lambda: encode(batch), lambda: encode(batch, most_tokens=1))

    def _states(self, batch: Batch) -> States:
        model = self.model
        if not len(batch.ids):
            if isinstance(self._attention, StaticAttention) and batch.changed is not None:
                self._attention.forget()  # nobody reads what changed in the table
            return States(torch.empty(0, 1, dtype=model.dtype, device=model.device))
        if self._ranks.size > 1 and not self._features.has(batch.media):
            raise torch.OutOfMemoryError("pictures were not encoded, as memory was short")
        num_references = -int(batch.ids.min(initial=0))
        if num_references:
            self._ranks.broadcast_from_first(self._sampled_ids[:num_references])
        if self._graphs is not None and _is_plain(batch):
            made = self._graphs.run(batch)
            if made is not None:
                self.num_replayed += 1
                return made
        self.num_eager += 1
        self._ahead.use(int(batch.slots.max(initial=0)))
        sampled_ids = self._sampled_ids if num_references else None
        features = self._features.of(batch.media)
        arguments = model.windows, self._attention, model.device, sampled_ids, features
        inputs = Inputs.of(batch, *arguments)
        return States(model.hidden(inputs, self._pool, self._attention))

    def _states_or_micro_batches(self, batch: Batch) -> States:
        """As `_states`; in micro-batches where memory is short (with several ranks it raises: the
        others would not know)."""
        if self._ranks.size > 1:
            return self._states(batch)
        return self._with_retry(lambda: self._states(batch), lambda: self._in_micro_batches(batch))

    def _in_micro_batches(self, batch: Batch) -> States:
        rows: list[tuple[Tensor, ...]] = []  # sampled, scored and queried ones of each micro-batch
        for micro_batch in micro_batches(batch, -(-len(batch.ids) // NUM_MICRO_BATCHES)):
            counts = len(micro_batch.sampled), len(micro_batch.scored), len(micro_batch.queried)
            hidden = self._states(micro_batch).hidden
            rows.append(tuple(part.clone() for part in hidden.split(counts)))
        return States(torch.cat([part for kind in zip(*rows, strict=True) for part in kind]))

    def _with_retry(self, action: Callable[[], T], again: Callable[[], T] | None = None) -> T:
        """Run the action; where memory is short, free torch's cached memory and run it again, or
        what takes less memory. Raises NoMemory."""
        with contextlib.suppress(torch.OutOfMemoryError):
            return action()
        device = self.model.device
        if device.type == "cuda":
            torch.cuda.empty_cache()
        try:
            return (again or action)()
        except torch.OutOfMemoryError as error:
            raise NoMemory(f"the memory of {device} is too small for a batch") from error

    def _recorded(
        self, most: int, recorder: Recorder | None, extend_sizes: tuple[int, ...]
    ) -> Graphs | None:
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
        with self._context, torch.inference_mode():
            parts = model, self._pool, self._attention
            recorder = recorder or CudaRecorder(device)
            return Graphs(*parts, *sizes, recorder, self._sampled_ids, extend_sizes)

    # --- results -----------------------------------------------------------------------------

    def _in_flight(self, states: States, batch: Batch) -> DeviceBatch:
        fetch, num_sampled = Fetch(self.model.device), len(batch.sampled)
        read_scores, read_answers = _no_scores, _no_answers
        if len(batch.scored) or len(batch.queried):
            end_scored = num_sampled + len(batch.scored)
            part, rest = states.hidden[num_sampled:end_scored], states.hidden[end_scored:]
            read_scores = self._collectively(lambda: score(self.model, part, batch, fetch))
            read_answers = self._collectively(lambda: answer(self.model, rest, batch, fetch))
        may_wait = self.model.device.type == "cpu" and self._ranks.size == 1
        logits = (
            None
            if may_wait
            else self._collectively(lambda: self._sampled_logits(states, num_sampled))
        )

        def launch_sampling(params: tuple[SamplingParams, ...]) -> Callable[[], Outcome]:
            read_samples = self._sample(states, logits, params, fetch)
            fetch.seal()

            def result() -> Outcome:
                fetch.wait()
                found, (scores, tops) = read_samples(), read_scores()
                samples = found.tokens, found.logprobs, found.tops
                return Outcome(*samples, scores, found.log_masses, read_answers(), tops)

            return result

        return DeviceBatch(launch_sampling)

    def _follow(self, states: States, batch: Batch) -> None:
        """The logits that `_in_flight` requests, in its order."""
        num_sampled = len(batch.sampled)
        end_scored = num_sampled + len(batch.scored)
        for part in blocks(states.hidden[num_sampled:end_scored], states.hidden[end_scored:]):
            self.model.logits(part)
        self._sampled_logits(states, num_sampled)

    def _collectively(self, action: Callable[[], T], again: Callable[[], T] | None = None) -> T:
        """Run what all ranks do together: as `_with_retry` with one rank, else only once."""
        return action() if self._ranks.size > 1 else self._with_retry(action, again)

    def _sampled_logits(
        self, states: States, count: int, allowed: Ints | None = None
    ) -> Tensor | None:
        """Logits of the first `count` rows, as `Model.logits`; None if there are none."""
        if states.logits is not None or not count:
            return states.logits
        return self.model.logits(states.hidden[:count], allowed)

    @torch.inference_mode()
    def _sample(
        self,
        states: States,
        logits: Tensor | None,
        params: tuple[SamplingParams, ...],
        fetch: Fetch,
    ) -> Callable[[], Samples]:
        """logits: None: computed here, and only those that the masks allow."""
        if not params:
            return lambda: Samples(np.empty(0, np.int64), np.empty(0, np.float32), ())
        with self._context:
            if logits is None:
                bits = allowed(params, self.model.config.vocabulary_size)
                logits = self._with_retry(lambda: self._sampled_logits(states, len(params), bits))
                assert logits is not None
            return self._with_retry(lambda: self._sample_logits(logits, params, fetch))

    def _sample_logits(
        self, logits: Tensor, params: tuple[SamplingParams, ...], fetch: Fetch
    ) -> Callable[[], Samples]:
        if self._drawing is not None:
            tokens, result = sample_on_device(logits, params, self._drawing, fetch)
            self._store_sampled(tokens)
            return result
        samples = sample(logits, params)
        if self._sampled_ids.is_cpu:
            kept = self._sampled_ids.numpy()
            kept[: len(samples.tokens)] = samples.tokens[: len(kept)]
        else:
            self._store_sampled(torch.from_numpy(samples.tokens))
        return lambda: samples

    def _store_sampled(self, tokens: Tensor) -> None:
        """Store sampled tokens on the device, for the next batch to refer to."""
        kept = self._sampled_ids[: len(tokens)]
        kept.copy_(tokens[: len(kept)], non_blocking=True)


class DeviceBatch:
    """A launched batch whose results are not read yet: it holds the results of a forward pass until
    sampling is launched. Forward passes, sampling and copies are enqueued on the device in the
    order of the calls; sampled tokens stay there, where the next batch reads them.

    launch_sampling: enqueues sampling and copies, and returns a function that waits for them.
    """

    def __init__(
        self, launch_sampling: Callable[[tuple[SamplingParams, ...]], Callable[[], Outcome]]
    ) -> None:
        self._launch_sampling = launch_sampling
        self._wait: Callable[[], Outcome] | None = None

    def sample(self, params: tuple[SamplingParams, ...]) -> None:
        """Launch sampling with these parameters; must come before the next launch."""
        self._wait = self._launch_sampling(params)

    def result(self) -> Outcome:
        """Wait for the results, and for nothing that was launched after them."""
        assert self._wait is not None, "result() before sample()"
        return self._wait()


def _is_plain(batch: Batch) -> bool:
    """Whether all its tokens are tokens, whose rotary positions are their positions."""
    return not batch.media and batch.parts is None


def _no_scores() -> tuple[Floats, tuple[Top, ...]]:
    return np.empty(0, np.float32), ()


def _no_answers() -> tuple[Answer, ...]:
    return ()
