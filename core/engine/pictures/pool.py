"""Pictures and clips of calls: decoded and preprocessed by threads of their own.

A picture is decoded once for all calls that show it at the same time, and kept for a while; so are
its layout and its keys, which prompts are made of. What the tower takes (`Picture.pixels`) is made
later, only where features are to be computed. Nothing is shared between tenants or namespaces: how
long a picture takes does not tell whether others have shown it. Features and their keys are named
by namespace, as the radix tree is. Knows nothing of batches.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from hashlib import blake2b
from typing import TypeAlias
from weakref import WeakValueDictionary

import numpy as np

from ...api.media import FEATURE, Media, MediaProcessor, media_keys
from ...api.protocol import Call, CallTooLarge, Shown, Video
from ...common.fair_executor import FairExecutor, Task
from .prompt import Picture, Source

_THREADS = max(2, min(4, os.cpu_count() or 1))
_Key: TypeAlias = tuple[tuple[str, str], bytes]  # owner and namespace, and a digest


class PictureRequest:
    """The pictures of one call, which waits for them. futures: one for each, in order. tasks: in
    which they are decoded. has_left: whether the call has gone."""

    def __init__(self, count: int) -> None:
        self.futures: list[Future[Picture]] = [Future() for _ in range(count)]
        self.tasks: list[Task] = []
        self.has_left = False

    @property
    def is_done(self) -> bool:
        """Whether `result` does not wait."""
        return all(future.done() for future in self.futures)

    def when_done(self, action: Callable[[], object]) -> None:
        """Call this once all are decoded, or refused: in a thread of the pool, or now."""
        left = [len(self.futures)]
        lock = threading.Lock()

        def count(_: object) -> None:
            with lock:
                left[0] -= 1
                is_last = left[0] == 0
            if is_last:
                action()

        for future in self.futures:
            future.add_done_callback(count)

    def result(self) -> list[Picture]:
        """The pictures, in the order of their placeholders. Raises the error of one that is
        refused."""
        return [future.result() for future in self.futures]

    def leave(self) -> None:
        """The caller waits no more."""
        self.has_left = True
        for task in self.tasks:
            task.cancel()


class PicturePool:
    """Decodes and preprocesses pictures for a model. Safe for threads.

    load: decodes; raises InvalidCall for what is no picture. settings: see `media_keys`.
    most_features: of one picture. wake: called when pixels have come. decoded_bytes, most_decoded:
      of decoded pictures that are kept.
    """

    def __init__(
        self,
        processor: MediaProcessor,
        load: Callable[[Source], Media],
        vocabulary_size: int,
        most_features: int,
        wake: Callable[[], object] = lambda: None,
        decoded_bytes: int = 256 << 20,
        most_decoded: int = 512,
    ) -> None:
        self._decoded_bytes, self._most_decoded = decoded_bytes, most_decoded
        self._processor = processor
        self._load = load
        self._vocabulary_size = vocabulary_size
        self._most_features = most_features
        self._wake = wake
        self._executor = FairExecutor(_THREADS, "forkroot-picture", _THREADS - 1)
        self._lock = threading.Lock()
        self._decoded: OrderedDict[_Key, Future[Media]] = OrderedDict()
        self._pictures: WeakValueDictionary[_Key, Picture] = WeakValueDictionary()
        self._num_decoded = self._num_shared = 0

    @property
    def features(self) -> frozenset[str]:
        """What the model takes, as in `BackendInfo`."""
        return frozenset(f"{kind}s" for kind in self._processor.kinds)

    @property
    def counters(self) -> dict[str, int]:
        """Pictures that were decoded, and that were there already or on their way."""
        return {"pictures_decoded": self._num_decoded, "pictures_shared": self._num_shared}

    def request(self, call: Call, sources: Sequence[Source]) -> PictureRequest:
        """Decode the pictures of a call, in turn with those of other tenants."""
        request = PictureRequest(len(sources))
        for source, future in zip(sources, request.futures, strict=True):

            def decode(source: Source = source, future: Future[Picture] = future) -> None:
                if not request.has_left:
                    self._decode(call, source, future)

            request.tasks.append(self._executor.submit(call.owner, call.weight, decode))
        return request

    def prepare(self, picture: Picture) -> None:
        """Make the tower's input of a picture, once, and wake the engine."""
        if picture.is_requested or picture.pixels is not None:
            return
        picture.is_requested = True

        def make() -> None:
            try:
                digest = _digest(picture.source)
                media = self._media((picture.space, digest), picture.source).result()
                picture.pixels = self._processor.pixels(media)
            except Exception as error:
                picture.error = error
            picture.is_requested = False
            self._wake()

        self._executor.submit(picture.owner, picture.weight, make)

    def close(self) -> None:
        """End the threads."""
        self._executor.close()

    def _decode(self, call: Call, source: Source, future: Future[Picture]) -> None:
        space = _space(call)
        media = self._media((space, _digest(source)), source)

        def pass_on(media: Future[Media]) -> None:
            try:
                future.set_result(self._picture(call, source, media.result()))
            except Exception as error:
                future.set_exception(error)

        media.add_done_callback(pass_on)

    def _media(self, key: _Key, source: Source) -> Future[Media]:
        """The decoded picture, or that another thread decodes it; else decodes it here."""
        with self._lock:
            found = self._decoded.get(key)
            if found is not None:
                self._decoded.move_to_end(key)
                self._num_shared += 1
                return found
            future = self._decoded[key] = Future()
            self._num_decoded += 1
        try:
            media = self._load(source)
        except Exception as error:
            with self._lock:
                del self._decoded[key]
            future.set_exception(error)
        else:
            future.set_result(media)
            with self._lock:
                self._shrink()
        return future

    def _shrink(self) -> None:
        """Forget pictures that were used longest ago, of the space that holds most."""
        sizes = {
            key: future.result().frames.nbytes
            for key, future in self._decoded.items()
            if future.done()
        }
        held: dict[tuple[str, str], int] = {}
        for (space, _), size in sizes.items():
            held[space] = held.get(space, 0) + size
        while sum(held.values()) > self._decoded_bytes or len(sizes) > self._most_decoded:
            largest = max(held, key=held.__getitem__)
            key = next(key for key in sizes if key[0] == largest)
            held[largest] -= sizes.pop(key)
            del self._decoded[key]

    def _picture(self, call: Call, source: Source, media: Media) -> Picture:
        space, processor = _space(call), self._processor
        named = call.namespace.encode() + b"\0" + media.digest
        key = blake2b(named, digest_size=32).digest()
        with self._lock:
            found = self._pictures.get((space, key))
        if found is not None:
            return found
        layout = processor.layout(media)
        count = layout.num_features
        if count > self._most_features:
            allowed = f"at most {self._most_features} features (feature_slots)"
            raise CallTooLarge("prompt", Shown(f"{media.kind} of {count} features"), allowed)
        ids = layout.ids.astype(np.int32)
        ids[ids == FEATURE] = media_keys(key, processor.settings, count, self._vocabulary_size)
        picture = Picture(key, layout, ids, source, space, call.owner, call.weight)
        with self._lock:
            return self._pictures.setdefault((space, key), picture)


def _space(call: Call) -> tuple[str, str]:
    """Within which pictures are shared: one tenant's, in one namespace."""
    return call.owner, call.namespace


def _digest(source: Source) -> bytes:
    frames = source.num_frames if isinstance(source, Video) else 0
    digest = blake2b(f"{type(source).__name__} {frames}".encode(), digest_size=32)
    digest.update(source.data)
    return digest.digest()
