"""Calls with pictures in a whole runtime: decoded by other threads, while others go on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from forkroot.benchmarks.common.fake_media import FakeProcessor, load, picture
from forkroot.benchmarks.common.fake_runner import FakeRunner, byte_tokenizer
from forkroot.core.api.codec import pack, unpack
from forkroot.core.api.config import EngineConfig
from forkroot.core.api.media import Media, Pixels
from forkroot.core.api.protocol import (
    Call,
    CallFailed,
    Chat,
    DeadlineExceeded,
    Image,
    InvalidCall,
    Message,
    Overloaded,
    Regex,
    Sampling,
    Text,
    Video,
)
from forkroot.core.engine import pending_calls
from forkroot.core.engine.pictures.pool import PicturePool
from forkroot.core.local import LocalBackend

SIZES = {"num_slots": 600, "context_len": 256, "max_running": 8, "chunk_tokens": 64}
SLOW = picture(1, 1)


class Decoder:
    """Decodes pictures; SLOW only once it may. loaded: all that were decoded."""

    def __init__(self) -> None:
        self.may_go_on = threading.Event()
        self.entered = threading.Event()
        self.loaded: list[Image | Video] = []

    def load(self, source: Image | Video) -> Media:
        self.loaded.append(source)
        if source == SLOW:
            self.entered.set()
            assert self.may_go_on.wait(60)
        return load(source)


class LatePixels(FakeProcessor):
    """Makes pixels only once it may."""

    def __init__(self) -> None:
        super().__init__()
        self.may_go_on = threading.Event()
        self.error: Exception | None = None

    def pixels(self, media: Media) -> Pixels:
        assert self.may_go_on.wait(60)
        if self.error is not None:
            raise self.error
        return super().pixels(media)


def start(decoder: Decoder, processor: Any = None, **settings: Any) -> LocalBackend:
    config = EngineConfig.from_settings(SIZES | settings).resolve(256, 1, 600)
    parts = byte_tokenizer(), FakeRunner(600), 257, frozenset({256})
    return LocalBackend(
        "fake", config, *parts, processor=processor or FakeProcessor(), load=decoder.load
    )


def ask(*segments: Any, **options: Any) -> Call:
    prompt = tuple(Text(it) if isinstance(it, str) else it for it in segments)
    return Call(prompt, Sampling(max_tokens=4, temperature=0.0), **options)


@pytest.fixture
def decoder() -> Iterator[Decoder]:
    made = Decoder()
    yield made
    made.may_go_on.set()


@pytest.fixture
def backend(decoder: Decoder) -> Iterator[LocalBackend]:
    made = start(decoder)
    yield made
    decoder.may_go_on.set()
    made.close()


def test_a_backend_says_what_its_model_takes(decoder):
    backend = start(decoder, FakeProcessor(kinds=("image",)))
    assert {"images", "tokens"} <= backend.info().features
    assert "videos" not in backend.info().features
    backend.close()


def test_others_go_on_while_a_call_waits_for_its_picture(backend, decoder):
    slow = backend.submit(ask(SLOW, "?"))
    assert decoder.entered.wait(60)
    quick = backend.submit(ask(picture(2, 3), "?", tenant="other")).result(60)
    assert len(quick.outputs[0].ids) == 4
    assert backend.submit(ask("no picture")).result(60).outputs[0].finish_reason == "length"
    assert not slow.done()
    decoder.may_go_on.set()
    assert len(slow.result(60).outputs[0].ids) == 4


def test_a_call_that_waits_for_its_picture_can_be_cancelled(backend, decoder):
    reply = backend.submit(ask(SLOW, "?"))
    assert decoder.entered.wait(60)
    reply.cancel()
    assert reply.result(60).outputs[0].finish_reason == "abort"
    decoder.may_go_on.set()
    assert len(backend.submit(ask(SLOW, "?")).result(60).outputs[0].ids) == 4
    backend.check()


def test_a_deadline_ends_a_call_that_waits_for_its_picture(backend, decoder):
    reply = backend.submit(ask(SLOW, "?", deadline=0.05))
    with pytest.raises(DeadlineExceeded, match="waits for its constraint or its pictures"):
        reply.result(60)


@pytest.mark.parametrize("deadline", [None, 60.0])
def test_a_call_that_waits_for_too_long_ends_in_a_typed_error(
    backend, decoder, monkeypatch, deadline
):
    monkeypatch.setattr(pending_calls, "SECONDS_HELD", 0.05)
    reply = backend.submit(ask(SLOW, "?", deadline=deadline))
    with pytest.raises(Overloaded, match=r"for its constraint or its pictures, .* 0.05 s"):
        reply.result(10)
    monkeypatch.undo()
    decoder.may_go_on.set()
    assert len(backend.submit(ask(SLOW, "?")).result(10).outputs[0].ids) == 4


def test_a_picture_is_decoded_once_for_calls_that_show_it(backend, decoder):
    replies = [backend.submit(ask(SLOW, str(i))) for i in range(5)]
    assert decoder.entered.wait(60)
    decoder.may_go_on.set()
    for reply in replies:
        reply.result(60)
    backend.submit(ask("later: ", Image(bytes(SLOW.data)), "?")).result(60)
    assert decoder.loaded == [SLOW]


@pytest.mark.parametrize("other", [{"namespace": "b"}, {"tenant": "b"}])
def test_what_one_has_decoded_is_decoded_again_for_another(backend, decoder, other):
    backend.submit(ask(picture(2, 2), "?")).result(60)
    backend.submit(ask(picture(2, 2), "?", **other)).result(60)
    assert decoder.loaded == [picture(2, 2)] * 2


def test_a_picture_that_is_refused_is_refused_again(backend, decoder):
    for _ in range(2):
        with pytest.raises(InvalidCall, match="a picture of 4 bytes"):
            backend.submit(ask(Image(b"no"), "?")).result(60)
    assert len(decoder.loaded) == 2
    assert len(backend.submit(ask("and on")).result(60).outputs[0].ids) == 4


def test_a_call_may_wait_for_a_picture_and_a_constraint(backend):
    call = ask(picture(2, 2), "?", constraint=Regex("[a-c]{3}"))
    assert len(backend.submit(call).result(60).text) == 3


def test_a_call_waits_for_pixels_while_others_go_on(decoder):
    processor = LatePixels()
    backend = start(decoder, processor)
    late = backend.submit(ask("See ", picture(2, 3), "?"))
    assert len(backend.submit(ask("no picture")).result(60).outputs[0].ids) == 4
    expiring = backend.submit(ask("See ", picture(2, 4), "?", deadline=0.05))
    with pytest.raises(DeadlineExceeded):
        expiring.result(60)
    cancelled = backend.submit(ask("See ", picture(2, 5), "?"))
    cancelled.cancel()
    assert cancelled.result(60).outputs[0].finish_reason == "abort"
    assert not late.done()
    processor.may_go_on.set()
    assert len(late.result(60).outputs[0].ids) == 4
    backend.check()
    backend.close()


def test_pixels_that_cannot_be_made_fail_the_calls_that_show_them(decoder):
    processor = LatePixels()
    processor.error = ValueError("no such pixels")
    processor.may_go_on.set()
    backend = start(decoder, processor)
    with pytest.raises(CallFailed, match="no such pixels"):
        backend.submit(ask(picture(2, 3), "?")).result(60)
    processor.error = None
    assert len(backend.submit(ask(picture(2, 3), "?")).result(60).outputs[0].ids) == 4
    backend.close()


def test_keys_and_values_that_are_cached_need_no_pixels(decoder):
    processor = FakeProcessor()
    backend = start(decoder, processor)
    backend.submit(ask("See ", picture(2, 3), " who?")).result(60)
    done = backend.submit(ask("See ", picture(2, 3), " where?")).result(60)
    assert done.usage.image_tokens == 6
    assert processor.num_pixels == 1
    counters = backend.info().counters
    assert (counters["pictures_encoded"], counters["image_tokens"]) == (1, 12)
    backend.close()


@pytest.mark.parametrize(("most_bytes", "most"), [(400, 9), (9999, 2)])
def test_of_decoded_pictures_those_of_who_has_most_are_forgotten(most_bytes, most):
    decoder = Decoder()
    pool = PicturePool(
        FakeProcessor(), decoder.load, 257, 600, decoded_bytes=most_bytes, most_decoded=most
    )

    def decode(seed: int, namespace: str) -> None:
        source = picture(4, 13, seed)  # of 156 bytes
        request = pool.request(Call((source,), namespace=namespace), [source])
        done = threading.Event()
        request.when_done(done.set)
        assert done.wait(60)
        assert len(request.result()[0].ids) == 4 * 13 + 3

    for seed, namespace in ((1, "b"), (1, "a"), (2, "a"), (3, "a")):
        decode(seed, namespace)
    decoder.loaded.clear()
    for seed, namespace in ((1, "b"), (3, "a")):
        decode(seed, namespace)
    assert decoder.loaded == []
    decode(2, "a")
    assert decoder.loaded == [picture(4, 13, 2)]
    pool.close()


def test_closing_ends_calls_that_wait_for_pictures(decoder):
    backend = start(decoder)
    reply = backend.submit(ask(SLOW, "?"))
    assert decoder.entered.wait(60)
    backend.close()
    assert reply.error() is not None


def test_pictures_cross_processes():
    segments = Image(b"\x00\xff"), Video(b"clip", 3)
    for call in (Call(segments), Call(Chat((Message("user", segments),)))):
        assert unpack(pack(call)) == call
