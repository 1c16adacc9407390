"""Recorded steps give what steps that are run as they are give: padding, static plans and the
renewal of their memory, with a recorder that does the same once more where there is no GPU."""

from __future__ import annotations

import contextlib
import os
from dataclasses import replace
from typing import Any
from unittest.mock import MagicMock, patch

import numpy as np
import pytest
import torch

if not torch.cuda.is_available():  # before Triton is first imported
    os.environ["TRITON_INTERPRET"] = "1"
pytest.importorskip("triton")

from forkroot.core.api.batch import Batch, Outcome, SamplingParams
from forkroot.core.api.media import FEATURE, Encode, Layout, MediaSpan, Pixels
from forkroot.core.model.model import Model
from forkroot.core.model.parallel import Ranks
from forkroot.core.model.pool import KVPool
from forkroot.core.model.runner.graphs import CudaRecorder, Graphs
from forkroot.core.model.runner.runner import ModelRunner
from forkroot.core.model.step_sizes import sizes_up_to

from ..conftest import NUM_SLOTS, MakeCheckpoint, Placement, load
from .test_gpu_path import SMALL, load_there, take

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
MOST = 6
DEVICE_KINDS: dict[str, Any] = {"attention": "triton", "sampling": "triton"}
EXTENDS = (8, 32)


@pytest.fixture
def device() -> torch.device:
    """A GPU, or a CPU that plays one."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def repeating(run: Any) -> Any:
    """Records nothing: the function itself."""
    return run


class Counting:
    """Tells how many steps were recorded and how many repeated."""

    def __init__(self) -> None:
        self.recorded = self.repeated = 0

    def __call__(self, run: Any) -> Any:
        self.recorded += 1

        def again() -> None:
            self.repeated += 1
            run()

        return again


def filled_pool(*sizes: Any, **options: Any) -> KVPool:
    """Whose slots hold random keys and values, always the same: as if tokens had been computed."""
    pool = KVPool(*sizes, **options)
    torch.manual_seed(0)
    pool.storage[:, :, :, : pool.num_slots].normal_()
    return pool


class Pair:
    """One checkpoint, its steps recorded and not. What is cached is that of `filled_pool`."""

    def __init__(self, model: Model, most: int = MOST) -> None:
        self.counting = Counting()
        with patch("forkroot.core.model.runner.runner.KVPool", filled_pool):
            self._start(model, most)

    def _start(self, model: Model, most: int) -> None:
        self.plain = ModelRunner(model, NUM_SLOTS, **DEVICE_KINDS, graphs=False)
        self.recorded = ModelRunner(
            model,
            NUM_SLOTS,
            **DEVICE_KINDS,
            max_running=most,
            recorder=self.counting,
            extend_sizes=EXTENDS,
        )

    def check(self, batch: Batch) -> Outcome:
        """Both give the same; what the recorded one gives."""
        batch = replace(
            batch,
            sampling_params=tuple(replace(draw, logprobs=0) for draw in batch.sampling_params),
        )
        plain, recorded = self.plain.run(batch), self.recorded.run(batch)
        assert plain.logprobs == pytest.approx(recorded.logprobs, abs=1e-5)
        assert plain.tokens.tolist() == recorded.tokens.tolist()
        assert plain.scores == pytest.approx(recorded.scores, abs=1e-5)
        return recorded


class Tower:
    """Features of pictures that are in the arrays already."""

    def encode(self, pixels: Any, units: Any) -> Any:
        return [[torch.from_numpy(it.arrays["features"])] for it in pixels]

    def features(self, pixels: Any, units: Any) -> Any:
        return units[0]


def test_steps_with_pictures_are_not_replayed(
    make_checkpoint: MakeCheckpoint, device: torch.device
) -> None:
    model: Any = load_there(make_checkpoint(**SMALL)[0], device)
    model.tower = Tower()
    pair, placement = Pair(model), Placement(1)
    sequence = placement.add([5, 200, 201, 7, 8])
    features = np.random.default_rng(2).normal(size=(2, model.config.hidden_size))
    layout = Layout(np.array([FEATURE] * 2, np.int32), (1,))
    pixels = Pixels({"features": features.astype(np.float32)}, layout)
    batch = replace(
        placement.batch({sequence: 4}),
        encodes=(Encode(b"a", pixels, range(1)),),
        media=(MediaSpan(1, 3, b"a", 0),),
    )
    assert not pair.recorded.fits_graphs(batch)
    tokens = pair.check(batch).tokens.tolist()
    assert (pair.recorded.num_replayed, pair.recorded.num_eager) == (0, 1)
    pair.check(placement.batch({sequence: 1}))
    assert (pair.recorded.num_replayed, pair.recorded.num_eager) == (1, 1)
    other = replace(pixels, arrays={"features": -features.astype(np.float32)})
    changed = replace(batch, dropped=(b"a",), encodes=(Encode(b"a", other, range(1)),))
    again = pair.recorded.run(changed)
    assert again.tokens.tolist() != tokens


def test_sizes_grow_in_steps_up_to_the_most() -> None:
    assert sizes_up_to(1) == (1,)
    assert sizes_up_to(3) == (1, 2, 3)
    assert sizes_up_to(8) == (1, 2, 4, 8)
    assert sizes_up_to(30) == (1, 2, 4, 8, 16, 24, 30)
    assert sizes_up_to(256)[9:] == (56, 64, 80, 96, 112, 128, 160, 192, 224, 256)
    assert sizes_up_to(400)[-4:] == (256, 320, 384, 400)


@pytest.mark.parametrize("changes", [{}, {"kind": "mistral", "sliding_window": 12}], ids=str)
def test_steps_of_any_size_are_as_if_run_alone(
    changes: dict[str, Any], make_checkpoint: MakeCheckpoint, device: torch.device
) -> None:
    pair = Pair(load_there(make_checkpoint(**{**SMALL, **changes})[0], device))
    placement = Placement(1)
    prompts = [placement.random.integers(3, 61, size).tolist() for size in (9, 1, 14, 3, 2)]
    sequences = [placement.add(prompt) for prompt in prompts]
    tokens = pair.check(placement.batch({s: len(prompts[s]) for s in sequences})).tokens.tolist()
    assert pair.counting.repeated == 1  # of 32 tokens
    placement.ids = [[*ids, token] for ids, token in zip(placement.ids, tokens, strict=True)]
    for some in ([0, 1, 2, 3, 4], [2], [4, 0, 3], [1, 3], [0, 1, 2, 3, 4], [3, 2, 1]):
        draw = SamplingParams(temperature=1.0, seed=3, index=len(placement.ids[0]))
        counts = dict.fromkeys(some, 1)
        found = pair.check(placement.batch(counts, draw)).tokens.tolist()
        take(placement, some, found)
    assert (pair.counting.recorded, pair.counting.repeated) == (5, 7)


def test_other_steps_are_run_as_they_are(
    make_checkpoint: MakeCheckpoint, device: torch.device
) -> None:
    pair = Pair(load_there(make_checkpoint(**SMALL)[0], device), most=2)
    placement = Placement(2)
    three = [placement.add([5, 6, 7, 8]) for _ in range(3)]
    pair.check(placement.batch(dict.fromkeys(three, 1)))  # too many
    found = pair.counting.repeated, pair.recorded.num_replayed, pair.recorded.num_eager
    assert found == (0, 0, 1)
    batch = placement.batch({0: 1, 1: 1})
    assert pair.recorded.fits_graphs(batch)
    scoring = replace(
        batch,
        sampled=np.array([1], np.int32),
        sampling_params=batch.sampling_params[:1],
        scored=np.array([0, 1]),
    )
    pair.check(replace(scoring, targets=np.array([9, 10])))  # other rows are wanted
    assert pair.counting.repeated == 1


def test_shared_roots_have_room_in_a_recorded_step(
    make_checkpoint: MakeCheckpoint, device: torch.device
) -> None:
    pair = Pair(load_there(make_checkpoint(**SMALL)[0], device), most=15)
    placement = Placement(3)
    root = placement.add(placement.random.integers(3, 61, 130).tolist())
    placement.batch({root: 130})  # as if it had been computed
    branches = [placement.fork(root, [5 + i]) for i in range(15)]
    few = branches[:2]
    tokens = pair.check(placement.batch(dict.fromkeys(branches, 1))).tokens.tolist()
    assert (pair.counting.recorded, pair.counting.repeated) == (1, 1)
    counts = take(placement, branches, tokens)
    pair.check(placement.batch({s: counts[s] for s in few}))  # too few to share anything
    pair.check(placement.batch({s: counts[s] for s in branches[2:]}))
    assert (pair.counting.recorded, pair.counting.repeated) == (3, 3)


@pytest.mark.parametrize("is_recorded", [True, False])
def test_a_batch_may_refer_to_samples_in_flight(
    is_recorded: bool, make_checkpoint: MakeCheckpoint, device: torch.device
) -> None:
    folder = make_checkpoint(**SMALL)[0]
    model = load_there(folder, device) if is_recorded else load(folder)
    settings: dict[str, Any] = DEVICE_KINDS if is_recorded else {}
    recorder = repeating if is_recorded else None
    plain = ModelRunner(model, NUM_SLOTS, **settings)
    few = {"max_running": 3, "extend_sizes": (12,)}
    runner = ModelRunner(model, NUM_SLOTS, **settings, **few, recorder=recorder)
    placement = Placement(6)
    prompts = [placement.random.integers(3, 61, size).tolist() for size in (4, 2, 5)]
    sequences = [placement.add(prompt) for prompt in prompts]
    batch = placement.batch({s: len(prompts[s]) for s in sequences})
    expected, in_flight, before = plain.run(batch), runner.launch(batch), sequences
    in_flight.sample(batch.sampling_params)
    for mine in ([2, 0, 1], [1, 2], [2, 1]):
        known = dict(zip(before, expected.tokens.tolist(), strict=True))
        batch = placement.batch(take(placement, mine, [known[s] for s in mine]))
        references = np.array([-1 - before.index(s) for s in mine])
        launched = runner.launch(replace(batch, ids=references, sampling_params=()))
        assert in_flight.result().tokens.tolist() == expected.tokens.tolist()
        launched.sample(batch.sampling_params)
        expected, in_flight, before = plain.run(batch), launched, mine
    assert in_flight.result().tokens.tolist() == expected.tokens.tolist()


def test_what_fills_a_step_up_touches_the_spare_slot_only(
    make_checkpoint: MakeCheckpoint, device: torch.device
) -> None:
    model = load_there(make_checkpoint(**SMALL)[0], device)
    few: dict[str, Any] = {"max_running": 4, "extend_sizes": (12,)}
    runner = ModelRunner(model, 40, attention="triton", **few, recorder=repeating)
    placement = Placement(4)
    placement.free = list(range(39, -1, -1))
    sequences = [placement.add([5, 6, 7]), placement.add([8, 9, 10]), placement.add([11, 12, 13])]
    whole = runner.run(placement.batch(dict.fromkeys(sequences, 3))).tokens.tolist()
    alone = []
    placement.free = list(range(39, -1, -1))
    for sequence in sequences:  # into the same slots, one token at a time
        placement.computed[sequence] = 0
    for _ in range(3):
        alone = runner.run(placement.batch(dict.fromkeys(sequences, 1))).tokens.tolist()
    assert alone == whole


def test_all_sizes_can_be_recorded_at_once(
    make_checkpoint: MakeCheckpoint, device: torch.device
) -> None:
    from forkroot.kernels.gpu.attention.attention import GpuAttention

    model = load_there(make_checkpoint(**SMALL)[0], device)
    pool = KVPool(model.config, NUM_SLOTS, model.dtype, device, Ranks(), is_by_slot=True)
    counting, attention = Counting(), GpuAttention(device, 1, model.dtype, 2)
    sampled_ids = torch.zeros(4, dtype=torch.int64, device=device)
    with torch.inference_mode():
        Graphs(model, pool, attention, 4, 256, counting, sampled_ids, (16, 32)).record_all()
    assert (counting.recorded, counting.repeated) == (7, 0)


@pytest.mark.gpu
def test_cuda_graphs_give_what_runs_without_them(make_checkpoint: MakeCheckpoint) -> None:
    sizes = {"hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8, "head_dim": 64}
    folder, _ = make_checkpoint(**{**SMALL, **sizes}, initializer_range=0.05)
    model = load_there(folder, torch.device("cuda"))
    plain = ModelRunner(model, NUM_SLOTS, graphs=False)
    recorded = ModelRunner(model, NUM_SLOTS, max_running=16)
    placement = Placement(5)
    prompts = [placement.random.integers(3, 61, 20).tolist() for _ in range(15)]
    sequences = [placement.add(prompt) for prompt in prompts]
    batch = placement.batch(dict.fromkeys(sequences, 20))
    tokens = plain.run(batch).tokens.tolist()
    assert recorded.run(batch).tokens.tolist() == tokens
    for step in range(15):
        counts = take(placement, sequences[step:], tokens[-len(sequences[step:]) :])
        batch = placement.batch(counts)
        tokens = plain.run(batch).tokens.tolist()
        assert recorded.run(batch).tokens.tolist() == tokens


def test_graphs_are_captured_on_one_stream_of_their_own_device(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, captured = list[Any](), list[Any]()

    def stream(device: torch.device) -> Any:
        made.append(MagicMock(device=device))
        return made[-1]

    def capture(graph: Any, pool: Any, stream: Any, capture_error_mode: str) -> Any:
        captured.append(stream)
        return contextlib.nullcontext()

    asked = list[torch.device]()

    def current(device: torch.device) -> Any:
        asked.append(device)
        return MagicMock()

    for name, double in {
        "Stream": stream,
        "graph": capture,
        "current_stream": current,
        "stream": lambda _: contextlib.nullcontext(),
        "CUDAGraph": MagicMock,
        "graph_pool_handle": object,
    }.items():
        monkeypatch.setattr(torch.cuda, name, double)
    device = torch.device("cuda:1")
    recorder = CudaRecorder(device)
    for _ in range(3):
        recorder(lambda: None)
    assert [it.device for it in made] == [device]
    assert captured == made * 3
    assert asked == [device] * 3


def test_extends_beside_decode_tokens_and_roots_are_recorded(
    make_checkpoint: MakeCheckpoint, device: torch.device
) -> None:
    pair = Pair(load_there(make_checkpoint(**SMALL)[0], device), most=15)
    placement = Placement(8)
    root = placement.add(placement.random.integers(3, 61, 130).tolist())
    placement.batch({root: 130})  # as if it had been computed
    branches = [placement.fork(root, [5 + i, 7, 9, 11]) for i in range(12)]
    counts = dict.fromkeys(branches[:10], 1) | {branches[10]: 4, branches[11]: 3}
    pair.check(placement.batch(counts))  # ten decode tokens share a root, two sequences extend
    pair.check(placement.batch({branches[0]: 3, branches[11]: 1, branches[1]: 2}))
    assert (pair.recorded.num_replayed, pair.recorded.num_eager) == (2, 0)


def test_extends_of_more_tokens_are_run_as_they_are(
    make_checkpoint: MakeCheckpoint, device: torch.device
) -> None:
    pair = Pair(load_there(make_checkpoint(**SMALL)[0], device))
    placement = Placement(9)
    pair.check(placement.batch({placement.add([5] * 33): 33}))
    assert (pair.recorded.num_replayed, pair.recorded.num_eager) == (0, 1)


def test_a_slot_table_is_sent_again_where_a_step_failed(
    make_checkpoint: MakeCheckpoint, device: torch.device
) -> None:
    model = load_there(make_checkpoint(**SMALL)[0], device)
    plain, runner = (ModelRunner(model, NUM_SLOTS, **DEVICE_KINDS, graphs=False) for _ in range(2))
    placement, none = Placement(10), np.empty((0, 3), np.int32)
    sequences = [placement.add([5, 6, 7, 8, 9]), placement.add([9, 8, 7, 6, 5])]
    first = replace(placement.batch(dict.fromkeys(sequences, 3)), changed=none)
    with pytest.raises(IndexError):
        runner.run(replace(first, ids=np.full(len(first.ids), 10_000)))  # no such token
    assert runner.run(first).tokens.tolist() == plain.run(first).tokens.tolist()
    second = replace(placement.batch(dict.fromkeys(sequences, 1)), changed=none)
    assert runner.run(second).tokens.tolist() == plain.run(second).tokens.tolist()


class Idle:
    """A model that computes nothing, over a pool that is none."""

    windows = (None, 4096)
    device = torch.device("cpu")
    has_spare, num_slots = True, 1 << 22

    def hidden(self, inputs: Any, *_: Any) -> torch.Tensor:
        return torch.zeros(len(inputs.ids), 1)

    def logits(self, hidden: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        return torch.zeros(len(hidden), 1) if out is None else out


def recording_once(run: Any) -> Any:
    """Runs what it records, and nothing when that is repeated."""
    run()
    return lambda: None


@pytest.mark.parametrize("root", [4_000, 16_000])
@pytest.mark.parametrize("size", [4, 64, 256])
def test_decode_steps_over_long_roots_are_replayed(root: int, size: int) -> None:
    from forkroot.kernels.gpu.attention.attention import GpuAttention

    idle: Any = Idle()
    attention = GpuAttention(idle.device, 8, torch.bfloat16, 4, num_programs=264)
    sampled_ids, context_len = torch.zeros(size, dtype=torch.int64), root + 400
    sizes = size, context_len
    graphs = Graphs(idle, idle, attention, *sizes, recording_once, sampled_ids)
    random = np.random.default_rng(size)
    table = np.arange(size * context_len, dtype=np.int32).reshape(size, context_len)
    table[:, :root] = table[0, :root]  # all share this, and halves of them more
    table[: size // 2, root : root + 300] = table[0, root : root + 300]
    ends = root + random.integers(1, 300, size)
    num_replayed, num_steps = 0, min(size, 40)
    for step in range(num_steps):
        some = np.sort(random.permutation(size)[: max(size - step, 1)]).astype(np.int32)
        lens = np.ones(len(some), np.int32)
        if step % 4 == 3:  # jumps, and branches that begin
            lens[:8] = random.integers(1, 32, len(lens[:8]))
        starts = ends[some].astype(np.int32)
        positions = np.concatenate([np.arange(n) for n in lens]) + np.repeat(starts, lens)
        batch = Batch(
            ids=np.zeros(len(positions), np.int64),
            positions=positions,
            slots=table[np.repeat(some, lens), positions],
            rows=some,
            starts=starts,
            lens=lens,
            table=table,
            sampled=np.cumsum(lens, dtype=np.int32) - 1,
            sampling_params=(),
            changed=np.empty((0, 3), np.int32),
        )
        num_replayed += graphs.run(batch) is not None
    assert num_replayed == num_steps
