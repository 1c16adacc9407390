"""A mixed load, as long as wanted: what is answered is checked, and what is held is watched.

Clients send constrained calls (each answer is checked against its constraint), legal bodies at
their edges, forks with hints, broken bodies, and streams that they close. Afterwards no slot may be
held; the memory of the server's processes is sampled, and its slope after a warm-up has a bar.

What is kept of texts and of words is bounded, and would grow for hours: a long run begins with as
many new words as fill it, in each process that encodes texts. The same goes for memory that was
freed between what lives on: it depends on the most that was ever open at a time, whose records
become rare but never end. So several times as many clients as later are at work for a while first.

Under load, memory depends on what is open at the moment: by tens of MB, more than hours of a small
leak. So in a long run the clients pause from time to time until nothing is at work, the caches are
emptied (how many nodes a tree has varies by more than MB) and freed pages were given back, and the
slope is that of the memory which is held then.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import time
from collections import Counter
from collections.abc import Callable
from string import ascii_lowercase
from typing import Any, NamedTuple

from forkroot.benchmarks.campaign.legal import CHAT, COMPLETION, GENERATE, PATHS, legal
from forkroot.benchmarks.campaign.malformed import wrong_bodies
from forkroot.benchmarks.campaign.memory import Growth, Sample, growth, sample, watched
from forkroot.benchmarks.campaign.openapi import is_well
from forkroot.benchmarks.campaign.runner import Bars, Plan, Verdict
from forkroot.benchmarks.server.server_child import Served, serving
from forkroot.benchmarks.server.server_client import Answer, Line, request
from forkroot.core.common.memory import SECONDS_BETWEEN_TRIMS

CLIENTS = 12
MAX_SLOPE = 1.0  # MB an hour after the warm-up
MAX_GROWTH = 24.0  # MB over the last half of a run that is too short for a slope
MAX_PROCESSES = 9  # the server, its engine, a spare one, compilers, and what they start in between
_SECONDS_FOR_A_SLOPE = 1800.0
_NUM_TEXTS, _NUM_SENTENCES = 300, 70  # which fill what is kept of texts and words
_CROWD, _SECONDS_OF_CROWD = 5 * CLIENTS, 300.0  # clients with which a long run begins
_SECONDS_OF_LOAD = 60.0  # between two pauses of a run that is long enough for a slope
_SECONDS_TO_TRIM = SECONDS_BETWEEN_TRIMS + 2.0
_SECONDS_TO_ANSWER, _TICK = 60.0, 1.0
_BRANCHES = 6
_USAGE_FROM_THE_START = {"include_usage": True, "continuous_usage_stats": True}
_FLUSH = "/flush_cache"
_SENTENCE = "The city has good bicycle lanes, clean rivers and {}."
# Small caches: all are soon full, memory grows no more for them, and depends little on which
# constraints were the last ones.
_SLOTS = 8192
_CACHES = ("--set", f"constraint_bytes={2 << 20}", "--set", f"logprob_bytes={4 << 20}")
_KINDS = ("constrained",) * 4 + ("legal",) * 3 + ("fork", "wrong", "dropped")


class Constrained(NamedTuple):
    """A constrained call and the check of its text."""

    path: str
    body: dict[str, Any]
    is_valid: Callable[[str], bool]


class Soak:
    """The clients of one server, and what they found."""

    def __init__(self, served: Served, seed: int) -> None:
        self._served = served
        self._chance = random.Random(seed)
        self._number = 0
        self._seconds_awake = 0.0
        self.counts: Counter[str] = Counter()
        self.faults: list[str] = []
        self.at_rest: list[Sample] = []  # memory, at the end of each pause

    async def run(self, seconds: float) -> None:
        """All clients until the time is over; of a long time, with pauses."""
        end = time.monotonic() + seconds
        has_pauses = seconds >= _SECONDS_FOR_A_SLOPE
        clock = asyncio.create_task(self._count_seconds())  # calls time out by it
        if has_pauses:
            await self._fill()
            crowded_until = time.monotonic() + _SECONDS_OF_CROWD
            await asyncio.gather(*(self._client(crowded_until) for _ in range(_CROWD)))
        while (left := end - time.monotonic()) > 0:
            pause_at = time.monotonic() + (min(left, _SECONDS_OF_LOAD) if has_pauses else left)
            await asyncio.gather(*(self._client(pause_at) for _ in range(CLIENTS)))
            if has_pauses:
                await self._rest()
        clock.cancel()

    async def _fill(self) -> None:
        """Send texts of which every part is new. The engine encodes all prompts; the server those
        of streams that report their usage from the start."""
        for _ in range(_NUM_TEXTS):
            for path in (COMPLETION, CHAT):
                text = " ".join(self._sentence() for _ in range(_NUM_SENTENCES))
                messages = [{"role": "user", "content": text}]
                content = {"prompt": text} if path == COMPLETION else {"messages": messages}
                if path == CHAT:
                    content |= {"stream": True, "stream_options": _USAGE_FROM_THE_START}
                answer = await self._ask(path, {**content, "max_tokens": 1})
                if answer.status != 200:
                    self.faults.append(f"fill: {answer.status} {answer.body[-200:]!r}")

    def _sentence(self) -> str:
        return _SENTENCE.format("".join(self._chance.choices(ascii_lowercase, k=8)))

    async def _rest(self) -> None:
        """Wait until nothing is at work, empty the caches, wait until freed pages were given back,
        and sample the memory."""
        if await asyncio.to_thread(self._served.quiet_after) is None:
            self.faults.append("calls are still open long after their clients")
        answer = await self._ask(_FLUSH, {})
        if answer.status != 200:
            self.faults.append(f"flush: {answer.status} {answer.body[-200:]!r}")
        await asyncio.sleep(_SECONDS_TO_TRIM)
        self.at_rest.append(await asyncio.to_thread(sample, self._served.process.pid))

    async def _count_seconds(self) -> None:
        """Count the time in which this process runs: it may be stopped with its server for a
        while, which is no delay of the server's."""
        last = time.monotonic()
        while True:
            await asyncio.sleep(_TICK)
            now = time.monotonic()
            self._seconds_awake += min(now - last, 2 * _TICK)
            last = now

    async def _client(self, end: float) -> None:
        while time.monotonic() < end:
            kind = self._chance.choice(_KINDS)
            self._number += 1
            try:
                await getattr(self, f"_{kind}")(self._number)
            except (TimeoutError, ConnectionError, ValueError, LookupError) as error:
                self.faults.append(f"{kind}: {error!r}")
            self.counts[kind] += 1

    async def _ask(self, path: str, body: Any, most_reads: int | None = None) -> Answer:
        line = await Line.to(self._served.address)
        call = asyncio.create_task(line.ask(request(path, body), most_reads))
        end = self._seconds_awake + _SECONDS_TO_ANSWER
        try:
            while not (await asyncio.wait({call}, timeout=_TICK))[0]:
                if self._seconds_awake > end:
                    raise TimeoutError(f"no answer in {_SECONDS_TO_ANSWER:g} s")
            return call.result()
        finally:
            line.close()
            call.cancel()

    async def _constrained(self, number: int) -> None:
        call = constrained(number, self._chance)
        answer = await self._ask(call.path, call.body)
        text, finish = _text(call.path, answer)
        if finish == "length":
            self.counts["constrained, ended by length"] += 1
        elif not call.is_valid(text):
            self.faults.append(f"invalid: {text[:100]!r} for {call.body}")

    async def _legal(self, number: int) -> None:
        path = self._chance.choice(PATHS)
        body = legal(path, self._chance)
        answer = await self._ask(path, body)
        if not is_well(path, body, answer):
            self.faults.append(f"legal: {answer.status} {answer.body[-200:]!r} for {body}")

    async def _wrong(self, number: int) -> None:
        path = self._chance.choice(PATHS)
        body = self._chance.choice(wrong_bodies(path))
        answer = await self._ask(path, body)
        if not 400 <= answer.status < 500:
            self.faults.append(f"wrong: {answer.status} for {str(body)[:200]}")

    async def _dropped(self, number: int) -> None:
        messages = [{"role": "user", "content": f"Tell all of {number}"}]
        body = {"messages": messages, "stream": True, "max_tokens": 400, "ignore_eos": True}
        await self._ask(CHAT, body, self._chance.randint(1, 6))

    async def _fork(self, number: int) -> None:
        """Branches of one root: equal ones are answered alike."""
        prefix = f"Number {number} is told of in a long and shared text, and then "
        hint = {"version": 1, "root": f"root {number}", "branches": _BRANCHES}
        body = {"max_tokens": 8, "temperature": 0, "forkroot": hint}
        ends = [f"{i % 3}:" for i in range(_BRANCHES)]
        answers = await asyncio.gather(
            *(self._ask(COMPLETION, {**body, "prompt": prefix + end}) for end in ends)
        )
        texts = [_text(COMPLETION, answer)[0] for answer in answers]
        if texts[:3] != texts[3:]:
            self.faults.append(f"fork: equal branches differ: {texts}")


def constrained(number: int, chance: random.Random) -> Constrained:
    """A call whose answer can be checked; `number` makes its constraint differ from others'."""
    low = chance.randint(1, 9)
    values = [f"value {number}", number, None, 1.5]
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {f"n{number % 50}": {"type": "integer"}, "kind": {"enum": ["a", "b"]}},
        "required": ["kind", f"n{number % 50}"],
        "additionalProperties": False,
    }
    pattern = rf"[a-z]{{{low},{low + 5}}}-{number % 1000}"
    choices = [f"choice {number}", f"{number} choice", "é"]
    kinds: tuple[tuple[dict[str, Any], Callable[[str], bool]], ...] = (
        ({"regex": pattern}, lambda text: re.fullmatch(pattern, text) is not None),
        ({"choices": choices}, lambda text: text in choices),
        ({"json_schema": {"enum": values}}, lambda text: json.loads(text) in values),
        ({"json_schema": schema}, lambda text: _is_of_schema(json.loads(text), schema)),
        ({"grammar": 'start: "<" /[0-9]{1,5}/ ">"'}, lambda text: _is_number(text)),
    )
    fields, is_valid = chance.choice(kinds)
    temperature = chance.choice((0, 1.0))
    path = chance.choice((CHAT, COMPLETION, GENERATE))
    if path == GENERATE and ("regex" in fields or "json_schema" in fields):
        fields = {name: it if name == "regex" else json.dumps(it) for name, it in fields.items()}
        sampling = {**fields, "max_new_tokens": 100, "temperature": temperature}
        return Constrained(path, {"text": "Answer:", "sampling_params": sampling}, is_valid)
    common = {**fields, "max_tokens": 100, "temperature": temperature}
    if path == COMPLETION:
        return Constrained(path, {"prompt": "Answer:", **common}, is_valid)
    messages = [{"role": "user", "content": f"Answer {number}"}]
    return Constrained(CHAT, {"messages": messages, **common}, is_valid)


def run(plan: Plan) -> Verdict:
    """All clients for the time of the plan."""
    bars = Bars()
    with serving(*_CACHES, num_slots=_SLOTS) as served:
        soak = Soak(served, plan.seed)
        with watched(served.process.pid) as memory:
            asyncio.run(soak.run(plan.seconds))
        bars.note(requests=sum(soak.counts.values()), kinds=dict(soak.counts))
        bars.equal("faults", soak.faults[:3], [])
        bars.note(num_faults=len(soak.faults))
        bars.at_most("quiet_after_s", served.quiet_after(), 10.0)
        found = served.metrics()
        leaked = found["slots"] - found["free_slots"] - found["cached_slots"]
        bars.equal("slots_leaked", int(leaked), 0)
    _judge_memory(bars, growth(memory), growth(soak.at_rest) if soak.at_rest else None)
    return bars.verdict("soak")


def _judge_memory(bars: Bars, found: Growth, at_rest: Growth | None) -> None:
    """The slope over the second half of a long run, at rest; the growth over that of a short one.
    at_rest: of a long run."""
    bars.note(memory_mb=found.mb, processes=found.most, slopes_mb_per_hour=found.mb_per_hour)
    bars.note(slope_bounds_mb_per_hour=found.bounds, memory_series_mb=found.series)
    bars.at_most("num_processes", sum(found.most.values()), MAX_PROCESSES)
    if at_rest is None:
        bars.at_most("memory_growth_mb", found.late_mb, MAX_GROWTH)
        return
    bars.note(at_rest_slopes_mb_per_hour=at_rest.mb_per_hour, at_rest_series_mb=at_rest.series)
    bars.note(at_rest_slope_bounds_mb_per_hour=at_rest.bounds)
    bars.at_most("memory_mb_per_hour", at_rest.mb_per_hour["all"], MAX_SLOPE)


def _text(path: str, answer: Answer) -> tuple[str, str]:
    """The text of an answer, and why it ended. Raises ValueError for an error."""
    if answer.status != 200:
        raise ValueError(f"{answer.status} {answer.body[-200:]!r}")
    body = json.loads(answer.body)
    if path == GENERATE:
        return body["text"], body["meta_info"]["finish_reason"]["type"]
    (choice,) = body["choices"]
    return choice["message"]["content"] if path == CHAT else choice["text"], choice["finish_reason"]


def _is_of_schema(value: Any, schema: dict[str, Any]) -> bool:
    names = set(schema["properties"])
    (number,) = names - {"kind"}
    return (
        isinstance(value, dict)
        and set(value) == names
        and type(value[number]) is int
        and value["kind"] in ("a", "b")
    )


def _is_number(text: str) -> bool:
    return re.fullmatch("<[0-9]{1,5}>", text) is not None
