"""Which pictures' features the model's runner holds, and what its tower computes in the next step.

Features are kept until their room is needed: those that no running sequence will read go first,
then those that one reads later. What a sequence reads next, or reads in a batch in flight, stays:
so some sequence can always go on. A chunk of a prompt ends before the first feature that is not
there. Names of features differ between namespaces, as how long a picture takes must not tell
whether others have shown it; tenants that share the radix tree share features.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar

from ...api.media import Encode
from ...common.fair_share import FairShare
from .prompt import FeatureSpan, Picture, spans_from


class Reader(Protocol):
    """A running sequence. num_computed, num_allocated: see `Sequence`."""

    spans: tuple[FeatureSpan, ...]
    num_computed: int
    num_allocated: int


R = TypeVar("R", bound=Reader)


class Work(NamedTuple):
    """What a batch does beside computing tokens, as in `Batch`. pictures: of the encodes.
    has_readers: whether a sequence that runs may show pictures."""

    dropped: tuple[bytes, ...] = ()
    encodes: tuple[Encode, ...] = ()
    pictures: tuple[Picture, ...] = ()
    has_readers: bool = True

    @property
    def num_tokens(self) -> int:
        """Tokens that the tower computes."""
        return sum(sum(it.pixels.layout.unit_costs[i] for i in it.units) for it in self.encodes)


@dataclass(slots=True)
class _Held:
    """Room for the features of a picture. num_done: units that are computed, or will be by the next
    batch."""

    num_features: int
    num_units: int
    num_done: int = 0

    @property
    def is_complete(self) -> bool:
        return self.num_done == self.num_units


class Features(Generic[R]):
    """The features that a runner holds for running sequences and for later ones.

    is_waiting: whether pixels of a picture are wanted that are still being made.
    capacity: features at most. tower_tokens: that the tower computes in a step at most; one unit of
      a picture is always allowed. prepare: called with a picture whose pixels are wanted.
    """

    def __init__(
        self,
        capacity: int = 0,
        tower_tokens: int = 1,
        prepare: Callable[[Picture], object] = lambda _: None,
    ) -> None:
        self.capacity = capacity
        self._tower_tokens = tower_tokens
        self._prepare = prepare
        self._readers: dict[R, None] = {}
        self._held: OrderedDict[bytes, _Held] = OrderedDict()
        self._dropped: list[bytes] = []
        self._planned: dict[bytes, tuple[Picture, range]] = {}
        self._planned_cost = 0
        self._cost_of: Counter[str] = Counter()  # by owner, of what is planned
        self.is_waiting = self._is_broken = self._is_limited = False
        self._share = FairShare()
        self._counts: dict[str, int] = {}

    @property
    def num_features(self) -> int:
        """Features that there is room for now."""
        return sum(held.num_features for held in self._held.values())

    @property
    def is_busy(self) -> bool:
        """Whether the tower has something to do in the next batch, or waits for pixels or its
        owner's turn; or there are none, see `take_broken`."""
        return bool(self._planned) or self.is_waiting or self._is_broken or self._is_limited

    @property
    def has_work(self) -> bool:
        """Whether the tower has something to do in the next batch."""
        return bool(self._planned)

    def add(self, reader: R) -> None:
        """A sequence runs."""
        if not reader.spans:
            return
        self._readers[reader] = None
        for span in _ahead(reader):
            if span.picture.key in self._held:
                self._count("features_cached", span.end - max(span.start, reader.num_computed))

    def discard(self, reader: R) -> None:
        """A sequence runs no more."""
        self._readers.pop(reader, None)

    def plan(
        self,
        window: int,
        budget: Callable[[str, int], int | None] = lambda owner, unit: None,
    ) -> None:
        """Choose what the tower computes with the next batch, for features among the next `window`
        tokens of each sequence; tenants in turn. What was planned and not taken stays. budget: for
        an owner whose next unit has so many tokens, the tokens that the tower may compute for it
        in this batch; None: all."""
        self.is_waiting = self._is_broken = self._is_limited = False
        if not self._readers:
            return
        wanted, pinned = self._wanted(window)
        queues: dict[str, list[Picture]] = {}
        for key, picture in wanted.items():
            if picture.error is not None:
                self._is_broken = True
            elif not self._is_complete(key):
                queues.setdefault(picture.owner, []).append(picture)
        self._share.update({owner: some[0].weight for owner, some in queues.items()})
        while queues:
            owner = min(queues, key=self._share.used)
            picture = queues[owner][0]
            if picture.pixels is None:
                self._prepare(picture)
            if picture.pixels is None or not self._has_room(picture, wanted, pinned):
                self.is_waiting |= picture.pixels is None
                queues[owner].pop(0)
            elif not self._plan_unit(picture, budget):  # no smaller one overtakes it
                queues[owner].clear()
            elif self._is_complete(picture.key):
                queues[owner].pop(0)
            if not queues[owner]:
                del queues[owner]

    def reach(self, reader: R, count: int) -> int:
        """How many of the next `count` tokens can be computed with the next batch: those before the
        first feature that is not there."""
        start = reader.num_allocated
        for index in range(spans_from(reader.spans, start), len(reader.spans)):
            span = reader.spans[index]
            if span.start >= start + count:
                break
            if not self._is_complete(span.picture.key):
                return max(0, span.start - start)
            self._held.move_to_end(span.picture.key)
        return count

    def has_next(self, reader: R) -> bool:
        """Whether the next token can be computed with the next batch."""
        return not reader.spans or self.reach(reader, 1) == 1

    def take(self) -> Work:
        """What is planned, for the next batch."""
        encodes: list[Encode] = []
        pictures: list[Picture] = []
        for key, (picture, units) in self._planned.items():
            assert picture.pixels is not None
            encodes.append(Encode(key, picture.pixels, units))
            pictures.append(picture)
            if self._is_complete(key):
                picture.pixels = None
        done = tuple(encodes), tuple(pictures)
        work = Work(tuple(self._dropped), *done, has_readers=bool(self._readers))
        self._dropped.clear()
        self._planned.clear()
        self._cost_of.clear()
        self._planned_cost = 0
        return work

    def fail(self, work: Work) -> list[Work]:
        """A batch failed: it is not known what its runner holds of these pictures. Returns the same
        again, one picture at a time; `hold` says that one of these was done."""
        self._dropped[:0] = work.dropped
        again = []
        for encode, picture in zip(work.encodes, work.pictures, strict=True):
            picture.pixels = encode.pixels
            if self._held.pop(encode.digest, None) is not None:
                self._dropped.append(encode.digest)
            if encode.digest in self._planned:
                del self._planned[encode.digest]
            whole = Encode(encode.digest, encode.pixels, range(encode.units.stop))
            again.append(Work((), (whole,), (picture,)))
        return again

    def hold(self, work: Work) -> None:
        """A batch is done: its pictures are there, also those that `fail` forgot."""
        for encode, picture in zip(work.encodes, work.pictures, strict=True):
            layout = picture.layout
            self._held[encode.digest] = _Held(
                layout.num_features, len(layout.unit_costs), encode.units.stop
            )
            self._dropped = [key for key in self._dropped if key != encode.digest]

    def readers_of(self, work: Work) -> list[R]:
        """The running sequences that will read features of these pictures."""
        keys = {encode.digest for encode in work.encodes}
        return [
            reader
            for reader in self._readers
            if any(span.picture.key in keys for span in _ahead(reader))
        ]

    def take_broken(self) -> list[tuple[R, Exception]]:
        """The running sequences whose pictures could not be preprocessed, and why."""
        found: list[tuple[R, Exception]] = []
        broken: list[Picture] = []
        for reader in self._readers:
            for span in _ahead(reader):
                if span.picture.error is not None:
                    found.append((reader, span.picture.error))
                    broken.append(span.picture)
                    break
        for picture in broken:
            picture.error = None
        return found

    def clear(self) -> None:
        """Drop all features that no running sequence will read."""
        needed = {span.picture.key for reader in self._readers for span in _ahead(reader)}
        for key in [key for key in self._held if key not in needed]:
            self._drop(key)

    def take_counts(self) -> Mapping[str, int]:
        """What was counted since the last call, by the names of `Counters`."""
        counts, self._counts = self._counts, {}
        return counts

    def check(self, running: Collection[R]) -> None:
        """Assert that the budgets hold and that these are all that read. For tests, between
        steps."""
        assert set(self._readers) == {reader for reader in running if reader.spans}
        assert self.num_features <= self.capacity, f"{self.num_features} of {self.capacity}"
        for key in self._planned:
            assert key in self._held, "a unit is planned and has no room"
        assert all(held.num_done <= held.num_units for held in self._held.values())
        assert not set(self._dropped) & (set(self._held) - set(self._planned)), "dropped and held"

    def _wanted(self, window: int) -> tuple[dict[bytes, Picture], set[bytes]]:
        """The pictures that are read soon, the next ones first, and those that must stay: each
        sequence's next one, and those of its tokens in flight."""
        wanted: dict[bytes, Picture] = {}
        pinned: set[bytes] = set()
        later: dict[bytes, Picture] = {}
        for reader in self._readers:
            first: Picture | None = None
            for span in _ahead(reader, reader.num_allocated + window):
                picture = span.picture
                if span.end > reader.num_allocated:
                    first = first or picture
                if picture is first or span.start < reader.num_allocated:
                    wanted[picture.key] = picture
                    pinned.add(picture.key)
                else:
                    later.setdefault(picture.key, picture)
        return {**wanted, **later}, pinned

    def _is_complete(self, key: bytes) -> bool:
        held = self._held.get(key)
        return held is not None and held.is_complete

    def _has_room(
        self, picture: Picture, wanted: Mapping[bytes, Picture], pinned: set[bytes]
    ) -> bool:
        """Whether there is room for a picture's features, or some could be dropped for it: those
        that are not wanted soon; also wanted ones where this one comes first."""
        if picture.key in self._held:
            return True
        gone = [key for key in self._held if key not in wanted]
        if picture.key in pinned:
            gone += [key for key in self._held if key in wanted and key not in pinned]
        gone = [key for key in gone if key not in self._planned]
        needed = picture.layout.num_features - (self.capacity - self.num_features)
        for count, key in enumerate(gone):
            if needed <= 0:
                gone = gone[:count]
                break
            needed -= self._held[key].num_features
        if needed > 0:
            return False
        for key in gone:
            self._drop(key)
        layout = picture.layout
        self._held[picture.key] = _Held(layout.num_features, len(layout.unit_costs))
        return True

    def _plan_unit(self, picture: Picture, budget: Callable[[str, int], int | None]) -> bool:
        """Let the tower compute the picture's next unit; False where the step's budget is spent, or
        that of its owner."""
        held = self._held[picture.key]
        cost = picture.layout.unit_costs[held.num_done]
        if self._planned_cost and self._planned_cost + cost > self._tower_tokens:
            return False
        most = budget(picture.owner, cost)
        if most is not None and self._cost_of[picture.owner] + cost > most:
            self._is_limited = True
            return False
        _, units = self._planned.get(picture.key, (picture, range(held.num_done, held.num_done)))
        self._planned[picture.key] = picture, range(units.start, units.stop + 1)
        self._planned_cost += cost
        self._cost_of[picture.owner] += cost
        self._share.charge(picture.owner, cost)
        held.num_done += 1
        self._count("tower_tokens", cost)
        self._count("pictures_encoded", held.is_complete)
        return True

    def _drop(self, key: bytes) -> None:
        del self._held[key]
        self._dropped.append(key)

    def _count(self, name: str, amount: int) -> None:
        self._counts[name] = self._counts.get(name, 0) + amount


def _ahead(reader: Reader, end: int | None = None) -> Iterator[FeatureSpan]:
    """The spans of features that are still read, as far as `end`."""
    for index in range(spans_from(reader.spans, reader.num_computed), len(reader.spans)):
        if end is not None and reader.spans[index].start >= end:
            return
        yield reader.spans[index]
