"""What the holder of one key can learn of what another has cached: by the count of cached tokens,
and by the time to the first token.

A trial: the victim plants a prefix, then the prober sends that one ("other"), or one that
nobody has ("nobody"), and its own again ("own", which must be distinguishable, or the clock is no
good). The same on a server whose keys share their cache shows that such trials do find sharing.
Areas under the curve by ranks: 0.5 is chance; `distance` is the same, or its
counterpart below 0.5: what a classifier reaches that may guess the direction.
"""

from __future__ import annotations

import json
import random
from statistics import median
from typing import Any

from forkroot.adapters.http.server.keys import Keys
from forkroot.adapters.http.server.settings import Settings
from forkroot.benchmarks.server.server_child import serving
from forkroot.benchmarks.server.server_client import COMPLETION, GENERATE, Line, request

PREFIX_LEN = 192
KEYS = ("victim-key", "prober-key")
_FIRST_TOKEN, _LAST_TOKEN = 300, 4000
_KNOWN_LEN = 8  # tokens of a planted prefix that are remembered: no two share so many


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
        if answer.finish != "length" or answer.first is None:
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


async def measure(probes: int, seed: int) -> dict[str, Any]:
    """So many probes of a server as it is, and a tenth on one whose keys share."""
    return {
        "apart": await _probed(probes, seed),
        "shared": await _probed(max(10, probes // 10), seed, "--share-cache"),
    }


async def _probed(probes: int, seed: int, *options: str) -> dict[str, Any]:
    chance = random.Random(seed)
    keys = [word for key in KEYS for word in ("--api-key", key)]
    with serving(*keys, *options, admin_key="admin-key") as served:
        victim, prober = [Holder(await Line.to(served.address), key) for key in KEYS]
        for _ in range(20):
            await _trial(victim, prober, chance)
        prober.firsts.clear()
        for _ in range(probes):
            await _trial(victim, prober, chance)
        spaces = await _other_routes(victim, prober, chance, max(5, probes // 20))
    return {"probes": probes, **_figures(prober), "other_doors_cached": spaces}


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


def _figures(prober: Holder) -> dict[str, Any]:
    other, nobody, own = (prober.firsts[kind] for kind in ("other", "nobody", "own"))
    return {
        "cached_tokens_of_the_other": max(prober.cached["other"]),
        "probes_with_cached_tokens": sum(count > 0 for count in prober.cached["other"]),
        "cached_tokens_of_nobody": max(prober.cached["nobody"]),
        "own_cached_tokens": min(prober.cached["own"]),
        "first_ms": {kind: _median_ms(prober.firsts[kind]) for kind in ("other", "nobody", "own")},
        "auc_other_against_nobody": _auc(other, nobody),
        "auc_own_against_nobody": _auc(own, nobody),
    }


def _median_ms(seconds: list[float]) -> float:
    return round(median(seconds) * 1000, 3)


def _auc(ones: list[float], others: list[float]) -> dict[str, float]:
    """The chance that one of `ones` takes longer than one of `others`, ties counted by half; and
    the standard error that it has where there is no difference."""
    ranks = _ranks([*ones, *others])
    num, rest = len(ones), len(others)
    area = (sum(ranks[:num]) - num * (num + 1) / 2) / (num * rest)
    error = ((num + rest + 1) / (12 * num * rest)) ** 0.5
    return {
        "auc": round(area, 4),
        "distance": round(max(area, 1 - area), 4),
        "standard_error": round(error, 4),
    }


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
