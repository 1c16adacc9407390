"""What the holder of one key can learn of what another has cached or compiled: by the count of
cached tokens, and by the time to the first token.

A trial: the victim plants a prefix, then the prober sends that one ("other"), or one that
nobody has ("nobody"), and its own again ("own", which must be distinguishable, or the clock is no
good). The same on a server whose keys share their cache shows that such trials do find sharing.
For constraints, a trial sends a pattern that the victim has used ("other"), one that nobody has
("nobody"), and its own again ("own"). Areas under the curve by ranks: 0.5 is chance.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from statistics import median
from typing import Any

from forkroot.adapters.http.server.keys import Keys
from forkroot.adapters.http.server.settings import Settings
from forkroot.benchmarks.campaign.runner import Bars, Plan, Verdict
from forkroot.benchmarks.server.server_child import serving
from forkroot.benchmarks.server.server_client import COMPLETION, GENERATE, Line, request

PREFIX_LEN = 192
KEYS = ("victim-key", "prober-key")
_FIRST_TOKEN, _LAST_TOKEN = 300, 4000
_KNOWN_LEN = 8  # tokens of a planted prefix that are remembered: no two share so many
_MARGIN = 0.05  # of an area around 0.5
_TRIALS = 1000  # of the full campaign; with fewer the margin grows by chance
_DEVIATIONS = 2.6  # of such an area that chance explains, with fewer trials
_FEWEST = 20
_OWN_AREA = 0.2  # at most, of one's own against nobody's: else the clock is no good


class Holder:
    """Asks with one key. cached: tokens found cached beyond what this key had planted itself.
    firsts: seconds to the first token."""

    def __init__(self, line: Line, key: str) -> None:
        self._line = line
        self._headers = {"Authorization": f"Bearer {key}"}
        self._planted: set[tuple[int, ...]] = set()
        self.namespace = Keys(Settings(KEYS)).client(COMPLETION, f"Bearer {key}").namespace
        self.cached: dict[str, list[int]] = {}
        self.firsts: dict[str, list[float]] = {}

    async def ask(self, kind: str, ids: list[int], **more: Any) -> None:
        """One token after this prefix; what was cached and how long it took is kept."""
        options = {"stream": True, "stream_options": {"include_usage": True}}
        body = {"prompt": ids, "max_tokens": 1, "ignore_eos": True, "temperature": 0, **options}
        answer = await self._line.ask(request(COMPLETION, {**body, **more}, self._headers))
        if answer.finish is None or answer.first is None:
            raise RuntimeError(f"a probe failed: {answer.status} {answer.body[-500:]!r}")
        usage = next(it["usage"] for it in reversed(answer.events) if it.get("usage"))
        self._count(kind, ids, usage["prompt_tokens_details"]["cached_tokens"])
        self.firsts.setdefault(kind, []).append(answer.first - answer.sent)

    async def generate(self, kind: str, ids: list[int]) -> None:
        """The same on SGLang's route, untimed."""
        body = {"input_ids": ids, "sampling_params": {"max_new_tokens": 1, "temperature": 0}}
        answer = await self._line.ask(request(GENERATE, body, self._headers))
        if answer.status != 200:
            raise RuntimeError(f"a probe failed: {answer.status} {answer.body[-500:]!r}")
        self._count(kind, ids, json.loads(answer.body)["meta_info"]["cached_tokens"])

    def _count(self, kind: str, ids: list[int], cached: int) -> None:
        starts = [tuple(ids[:end]) for end in range(1, len(ids) + 1)]
        own = sum(start in self._planted for start in starts)
        self.cached.setdefault(kind, []).append(cached if kind == "own" else max(0, cached - own))
        self._planted.update(starts[:_KNOWN_LEN] if kind != "own" else ())


def run(plan: Plan) -> Verdict:
    """Trials of prefixes and constraints on a server as it is; fewer, for the counts, on one whose
    keys share their cache."""
    return asyncio.run(_trials(plan))


async def _trials(plan: Plan) -> Verdict:
    bars, chance = Bars(), random.Random(plan.seed)
    end = time.monotonic() + plan.seconds
    keys = [word for key in KEYS for word in ("--api-key", key)]
    with serving(*keys, admin_key="admin-key") as served:
        victim, prober = [Holder(await Line.to(served.address), key) for key in KEYS]
        trials = {"prefix": _trial, "constraint": _constraint_trial}
        for trial in trials.values():
            for _ in range(5):
                await trial(victim, prober, chance)
        prober.firsts.clear()
        num = 0
        while num < _FEWEST or (num < _TRIALS and (plan.is_full or time.monotonic() < end)):
            for trial in trials.values():
                await trial(victim, prober, chance)
            num += 1
        found = await _other_routes(victim, prober, chance, max(5, num // 20))
    bars.note(trials=num)
    bars.equal("cached_tokens_of_the_other", max(prober.cached["other"]), 0)
    bars.equal("cached_tokens_on_other_routes", max(found.values()), 0)
    bars.at_least("own_cached_tokens", min(prober.cached["own"]), PREFIX_LEN - 1)
    for kind in ("", "constraint "):
        _judge(bars, prober, kind, num)
    return bars.verdict("timings")


def _judge(bars: Bars, prober: Holder, kind: str, num: int) -> None:
    """The bars of one kind of trial."""
    other, nobody, own = (prober.firsts[kind + it] for it in ("other", "nobody", "own"))
    name = (kind or "prefix ").strip()
    error = _standard_error(num, num)
    margin = _MARGIN if num >= _TRIALS else _MARGIN + _DEVIATIONS * error
    area = auc(other, nobody)
    bars.note(**{f"{name}_first_ms": [_median_ms(it) for it in (other, nobody, own)]})
    bars.note(**{f"{name}_auc": round(area, 4), f"{name}_standard_error": round(error, 4)})
    bars.at_most(f"{name}_auc_from_chance", round(abs(area - 0.5), 4), round(margin, 4))
    bars.at_most(f"{name}_auc_of_own", round(auc(own, nobody), 4), _OWN_AREA)


async def _constraint_trial(victim: Holder, prober: Holder, chance: random.Random) -> None:
    kinds = ["other", "nobody"]
    chance.shuffle(kinds)
    for kind in kinds:
        compiled = _pattern(chance)
        await victim.ask("plant", _prefix(chance), **compiled)
        probed = compiled if kind == "other" else _pattern(chance)
        await prober.ask(f"constraint {kind}", _prefix(chance), **probed)
        await victim.ask("plant", _prefix(chance), **_pattern(chance))
        await prober.ask("constraint own", _prefix(chance), **probed)


def _pattern(chance: random.Random) -> dict[str, Any]:
    """A pattern that takes some milliseconds to compile, and that nobody else has."""
    words = ["".join(chance.choices("abcdefghijklmnop", k=12)) for _ in range(40)]
    return {"regex": f"({'|'.join(words)})[0-9]{{3}}", "max_tokens": 20}


async def _trial(victim: Holder, prober: Holder, chance: random.Random) -> None:
    kinds = ["other", "nobody"]
    chance.shuffle(kinds)
    for kind in kinds:
        planted = _prefix(chance)
        await victim.ask("plant", planted)
        probed = planted if kind == "other" else _prefix(chance)
        await prober.ask(kind, probed)
        await victim.ask("plant", _prefix(chance))
        await prober.ask("own", probed)


async def _other_routes(
    victim: Holder, prober: Holder, chance: random.Random, num: int
) -> dict[str, int]:
    """Most tokens found cached by other requests for what the victim has planted."""
    salts = {"salt of its namespace": victim.namespace, "path as salt": f"../{victim.namespace}"}
    for _ in range(num):
        for kind, salt in salts.items():
            planted = _prefix(chance)
            await victim.ask("plant", planted)
            await prober.ask(kind, planted, cache_salt=salt)
        planted = _prefix(chance)
        await victim.ask("plant", planted)
        await prober.generate("generate", planted)
    return {kind: max(prober.cached[kind]) for kind in (*salts, "generate")}


def _prefix(chance: random.Random) -> list[int]:
    """Tokens that share no more than a few with any other."""
    return [chance.randrange(_FIRST_TOKEN, _LAST_TOKEN) for _ in range(PREFIX_LEN)]


def _median_ms(seconds: list[float]) -> float:
    return round(median(seconds) * 1000, 3)


def auc(ones: list[float], others: list[float]) -> float:
    """The chance that one of `ones` is larger than one of `others`, ties counted by half."""
    num, rest = len(ones), len(others)
    return (sum(_ranks([*ones, *others])[:num]) - num * (num + 1) / 2) / (num * rest)


def _standard_error(num: int, rest: int) -> float:
    """Of such an area where there is no difference."""
    return ((num + rest + 1) / (12 * num * rest)) ** 0.5


def _ranks(values: list[float]) -> list[float]:
    """From 1 on; equal values share the mean of theirs."""
    order = sorted(range(len(values)), key=values.__getitem__)
    ranks = [0.0] * len(values)
    start = 0
    while start < len(order):
        end = start
        while end < len(order) and values[order[end]] == values[order[start]]:
            end += 1
        for index in order[start:end]:
            ranks[index] = (start + 1 + end) / 2
        start = end
    return ranks
