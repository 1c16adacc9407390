"""Pictures in the runner: units, drops, short memory, several ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from forkroot.core.api.batch import Batch, SamplingParams
from forkroot.core.api.media import Encode, Media, MediaProcessor
from forkroot.core.model.checkpoint.load import describe, load_model
from forkroot.core.model.runner.messages import MediaMessages
from forkroot.core.model.runner.ranks import RankedRunner, follow
from forkroot.core.model.runner.runner import ModelRunner
from forkroot.core.model.vision import load as load_processor

from ..conftest import NUM_SLOTS, load
from ..runner.test_ranks_memory import Noted, Others
from . import tiny
from .prompts import Prompt, placed, with_media

SHORT = torch.OutOfMemoryError("no memory")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("onevision")
    tiny.save("llava_onevision", made)
    return made


@pytest.fixture(scope="module")
def processor(folder: Path) -> MediaProcessor:
    found = load_processor(folder)
    assert found is not None
    return found


@pytest.fixture
def runner(folder: Path) -> ModelRunner:
    return ModelRunner(load(folder), NUM_SLOTS)


def picture(seed: int, size: tuple[int, int] = (40, 60)) -> Media:
    random = np.random.default_rng(seed)
    return Media.of("image", random.integers(0, 256, (1, *size, 3), np.uint8))


def prompt_of(processor: MediaProcessor, *media: Media) -> Prompt:
    return Prompt.of(processor, [[40, 41, 42], *media, [50, 51, 52, 53]])


def nothing(**fields: Any) -> Batch:
    """A batch of no tokens."""
    none, longs = np.empty(0, np.int32), np.empty(0, np.int64)
    table = np.zeros((16, 1024), np.int32)  # as of `placed`
    return Batch(longs, longs, none, none, none, none, table, none, (), **fields)


def steps(prompts: Sequence[Prompt], count: int = 3) -> list[Batch]:
    """Encode in one step, compute all prompts in the next, and tokens that are known after them."""
    placement = placed(prompts)
    encodes = tuple(it for prompt in prompts for it in prompt.encodes)
    found = [nothing(encodes=encodes)]
    counts = {s: len(prompt.ids) for s, prompt in enumerate(prompts)}
    params = SamplingParams(logprobs=3)
    for token in range(60, 60 + count):
        for s in counts:
            placement.ids[s].append(token)
        batch = with_media(placement.batch(counts, params), prompts)
        found.append(replace(batch, table=batch.table.copy()))
        counts = dict.fromkeys(counts, 1)
    return found


def results(runner: Any, batches: Sequence[Batch]) -> list[Any]:
    outcomes = [runner.run(batch) for batch in batches]
    return [
        np.concatenate(
            [it.logprobs, [dict(top)[int(t)] for top, t in zip(it.tops, it.tokens, strict=True)]]
        )
        for it in outcomes
    ]


def assert_near(found: Sequence[Any], wanted: Sequence[Any]) -> None:
    for mine, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-4)


def test_units_may_be_encoded_in_several_batches_and_again(
    runner: ModelRunner, processor: MediaProcessor
) -> None:
    prompt = prompt_of(processor, picture(1), picture(2, (60, 30)))
    encode, prefill, *decodes = steps([prompt])
    wanted = results(runner, [encode, prefill, *decodes])
    first, second = encode.encodes
    runner.run(nothing(dropped=(first.digest, second.digest)))
    runner.run(nothing(encodes=(replace(first, units=range(1)),)))
    rest = replace(first, units=range(1, first.units.stop))
    runner.run(nothing(encodes=(rest, rest, first, second)))
    assert_near(results(runner, [prefill, *decodes]), wanted[1:])


def test_features_that_were_dropped_or_are_not_whole_cannot_be_read(
    runner: ModelRunner, processor: MediaProcessor
) -> None:
    encode, prefill, *_ = steps([prompt_of(processor, picture(1))])
    (whole,) = encode.encodes
    with pytest.raises(RuntimeError, match=f"picture {whole.digest.hex()} are not stored"):
        runner.run(prefill)
    runner.run(nothing(encodes=(replace(whole, units=range(1)),)))
    with pytest.raises(RuntimeError, match="are not stored"):
        runner.run(prefill)
    runner.run(encode)
    runner.run(prefill)
    with pytest.raises(RuntimeError, match="are not stored"):
        runner.run(replace(prefill, dropped=(whole.digest,)))


def calls_of(runner: ModelRunner, monkeypatch: pytest.MonkeyPatch, most: int) -> list[int]:
    """Units of each pass of the tower, which has memory for so many."""
    tower: Any = runner.model.tower  # type: ignore[attr-defined]
    encode, calls = tower.encode, list[int]()

    def noted(pixels: Any, units: Any) -> Any:
        calls.append(sum(map(len, units)))
        if calls[-1] > most:
            raise SHORT
        return encode(pixels, units)

    monkeypatch.setattr(tower, "encode", noted)
    return calls


def test_units_of_several_pictures_go_through_the_tower_together(
    runner: ModelRunner, processor: MediaProcessor, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = calls_of(runner, monkeypatch, 100)
    prompt = prompt_of(processor, *(picture(seed, (40 + seed, 60)) for seed in range(4)))
    encode, *_ = steps([prompt])
    runner.run(encode)
    runner.run(encode)
    assert calls == [sum(len(it.units) for it in encode.encodes)]


def test_in_deterministic_runners_each_unit_goes_through_the_tower_alone(
    folder: Path, processor: MediaProcessor, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = ModelRunner(load(folder), NUM_SLOTS, attention="deterministic")
    calls = calls_of(runner, monkeypatch, 100)
    encode, prefill, *_ = steps([prompt_of(processor, picture(1), picture(2))])
    runner.run(encode)
    runner.run(prefill)
    assert calls == [1] * sum(len(it.units) for it in encode.encodes)


def test_where_memory_is_short_units_go_one_by_one_and_tokens_in_micro_batches(
    runner: ModelRunner, processor: MediaProcessor, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = steps([prompt_of(processor, picture(1)), prompt_of(processor, picture(2))])
    wanted = results(runner, batches)
    runner.run(nothing(dropped=tuple(it.digest for it in batches[0].encodes)))
    calls, hidden = calls_of(runner, monkeypatch, 1), runner.model.hidden
    num_tokens: list[int] = []

    def short(inputs: Any, *rest: Any) -> Any:
        num_tokens.append(len(inputs.ids))
        if len(inputs.ids) > 40:
            raise SHORT
        return hidden(inputs, *rest)

    monkeypatch.setattr(runner.model, "hidden", short)
    both = replace(batches[1], encodes=batches[0].encodes)
    assert_near(results(runner, [both, *batches[2:]]), wanted[1:])
    num_units = sum(len(it.units) for it in both.encodes)
    assert calls == [num_units, *[1] * num_units]
    assert len(num_tokens) == 1 + 4 + len(batches[2:])


def test_penalties_pass_over_the_keys_of_pictures(
    runner: ModelRunner, processor: MediaProcessor
) -> None:
    prompt = prompt_of(processor, picture(1))
    encode, prefill, *_ = steps([prompt])
    ids = np.array(prompt.ids, np.int32)
    runner.run(encode)

    def token(prompt_ids: Any) -> tuple[int, float]:
        params = SamplingParams(
            repetition_penalty=1.7, prompt=prompt_ids, generated=ids[:0], logprobs=0
        )
        found = runner.run(replace(prefill, sampling_params=(params,)))
        return int(found.tokens[0]), float(found.logprobs[0])

    assert token(ids) == token(ids[ids < tiny.VOCABULARY])


def on_two(
    folder: Path, use: Callable[[RankedRunner], Any], prepare: Callable[[list[ModelRunner]], None]
) -> tuple[Any, list[Any], set[int]]:
    """What rank 0 of two threads gives, what it sends, and which batches found memory short."""
    noted, others = Noted(), Others()
    ranks = [noted.ranks(rank) for rank in range(2)]
    sizes, place = describe(folder), torch.device("cpu")
    runners = [
        ModelRunner(load_model(folder, sizes, torch.float32, place, it), NUM_SLOTS, it)
        for it in ranks
    ]
    prepare(runners)
    sent: list[Any] = []
    send = others.send
    others.send = lambda message: (sent.append(message), send(message))[1]  # type: ignore
    with ThreadPoolExecutor(1) as pool:
        messages = iter(others.orders.get, "end")
        following = pool.submit(follow, messages, runners[1], ranks[1], others.short.add)
        try:
            given = use(RankedRunner(runners[0], ranks[0], others))
        finally:
            send("end")
        following.result(60)
    return given, sent, others.short


@pytest.mark.parametrize("short_rank", [None, 0, 1])
def test_two_ranks_each_hold_the_tower_and_get_pixels_once(
    folder: Path, processor: MediaProcessor, short_rank: int | None
) -> None:
    batches = steps([prompt_of(processor, picture(1)), prompt_of(processor, picture(2))])
    wanted = results(ModelRunner(load(folder), NUM_SLOTS), batches)
    first, second = batches[0].encodes
    part = replace(first, units=range(1))
    rest = replace(first, units=range(1, first.units.stop))
    split = [nothing(encodes=(part,)), replace(batches[1], encodes=(rest, second)), *batches[2:]]

    def prepare(runners: list[ModelRunner]) -> None:
        if short_rank is None:
            return
        tower: Any = runners[short_rank].model.tower  # type: ignore[attr-defined]
        encode, is_short = tower.encode, [False, True]

        def once(pixels: Any, units: Any) -> Any:
            if is_short and is_short.pop(0):
                raise SHORT
            return encode(pixels, units)

        tower.encode = once

    found, sent, short = on_two(folder, lambda both: results(both, split), prepare)
    assert_near(found[1:], wanted[1:])
    assert bool(short) == (short_rank == 1)
    pixels = [it[3] is not None for message in sent for it in message[3][1]]
    assert pixels == (
        [True, False, True] if short_rank is None else [True, False, True, True, True]
    )


def test_media_of_batches_arrive_as_they_were_sent(processor: MediaProcessor) -> None:
    mine, theirs = MediaMessages(), MediaMessages()
    prompt = prompt_of(processor, picture(1))
    _, prefill, *_ = steps([prompt])
    (encode,) = prompt.encodes
    parts = np.arange(6).reshape(3, 2)
    units = [range(1), range(1, 2), range(2, 3)]
    for i, span in enumerate(units):
        batch = replace(
            prefill, encodes=(replace(encode, units=span),), dropped=(b"x",), parts=parts
        )
        message = mine.message(batch)
        assert (message[1][0][3] is None) == (i > 0)
        fields = theirs.fields(message)
        assert (fields["dropped"], fields["media"]) == ((b"x",), prefill.media)
        assert np.array_equal(fields["parts"], parts)
        (found,) = fields["encodes"]
        assert isinstance(found, Encode)
        assert (found.digest, found.units) == (encode.digest, span)
        assert np.array_equal(found.pixels.layout.ids, encode.pixels.layout.ids)
        assert found.pixels.layout.unit_costs == encode.pixels.layout.unit_costs
        for name, array in encode.pixels.arrays.items():
            assert np.array_equal(found.pixels.arrays[name], array)
            assert found.pixels.arrays[name].dtype == array.dtype
