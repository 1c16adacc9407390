"""The router before virtual replicas: the real router and real radix caches, in virtual time.

Each of the paper's shapes is run by many tenants, whose sizes follow Zipf's law, so many programs
at a time for each replica. Reported for each number of replicas and each policy:

- hit rate over that of one cache without limits, which computes every token once (`of_optimum`);
- speed-up over one replica without limits that runs the same programs as many at a time as each
  replica does, between 15 % and 75 % of all work, over the number of replicas (`of_linear`);
- balance: the busiest replica's time over the mean; calls of the busiest over the mean;
- what of the expected prefixes was not there any more (`stale`);
- microseconds of processor time of a decision, median and 99th percentile, and nodes and
  estimated size of the tree.

"planned" is a policy that knows all calls before: no router is one.

With faults, replicas are killed and replaced while programs run, and each call must end once.
"""

from __future__ import annotations

import gc
import time
from array import array
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import numpy as np

from forkroot.adapters.router.policies import Placement, Replicas, Request, policy_of
from forkroot.adapters.router.router import Router
from forkroot.benchmarks.common.programs import Body, Driver, ProgramContext
from forkroot.benchmarks.common.report import parser, report
from forkroot.benchmarks.router.planned_policy import PlannedPolicy, Recorder
from forkroot.benchmarks.router.sglang_policy import SglangPolicy
from forkroot.benchmarks.router.tenants import SHAPES, Tenancy, programs_of
from forkroot.benchmarks.router.virtual_replica import (
    Arrays,
    Clock,
    Costs,
    Totals,
    VirtualReplica,
    answer_to,
    is_plant,
)
from forkroot.core.api.protocol import Call
from forkroot.core.radix.tree import Tree

POLICIES = ("affinity", "round-robin", "power-of-two", "sglang")
NEVER = 1e6  # seconds: the real clock plays no part
SLOTS, SLOTS_EACH = 1_000_000, 150_000  # of the replica without limits: some, and for each replica
TIMED = 8  # one of so many decisions is timed
GARBAGE = 50_000, 20, 100  # the collector looks rarely: what programs are made of stays
READ_EVERY = 1.0  # virtual seconds between looks at what was evicted


class TokenIds:
    """Prompts that are tokens already. arrays: of which what was encoded is read again."""

    def __init__(self, arrays: Arrays) -> None:
        self._arrays = arrays

    def encode_prompt(self, prompt: Any, most: int | None = None) -> Any:
        """Token ids of a whole prompt."""
        return array("i", self._arrays.of(prompt).tobytes())


@dataclass(slots=True)
class TimedPolicy:
    """A policy, how long some of its decisions took, and what the last one expected."""

    inner: Any
    seconds: list[float] = field(default_factory=list)
    num: int = 0
    expected: int = 0

    @property
    def uses_tree(self) -> bool:
        """As `Policy.uses_tree`."""
        return bool(self.inner.uses_tree)

    def choose(self, request: Request, among: int) -> Placement:
        """As `Policy.choose`."""
        self.num += 1
        is_timed = self.num % TIMED == 0
        start = time.thread_time() if is_timed else 0.0
        placement: Placement = self.inner.choose(request, among)
        if is_timed:
            self.seconds.append(time.thread_time() - start)
        self.expected = placement.expected * 2  # digests are 8 bytes for 16 tokens
        return placement

    def forget(self, holders: int) -> None:
        """As `Policy.forget`."""
        self.inner.forget(holders)


class Optimum:
    """One cache without limits: the fewest tokens of prompts that must be computed."""

    def __init__(self, arrays: Arrays) -> None:
        self._arrays, self._tree = arrays, Tree(1)
        self.prompt = self.prefilled = 0

    def count(self, call: Call) -> None:
        """A call, once its prompt is known; its answer is decoded, not computed again."""
        ids = self._arrays.of(call.prompt)
        length = 0 if call.options else (call.sampling.max_tokens or 0)
        _, answer = answer_to(call, ids, length, 0)
        node = self._tree.lock_prefix("", ids.tobytes()[: 4 * (len(ids) - 1)])
        self.prompt += 0 if is_plant(call) else len(ids)
        self.prefilled += len(ids) - node.end
        whole = np.concatenate([ids, answer[:-1]])
        lowest, _ = self._tree.extend(node, whole.tobytes(), np.zeros(len(whole), np.int8))
        self._tree.unlock(lowest)

    @property
    def hit_rate(self) -> float:
        """The best hit rate."""
        return 1 - self.prefilled / self.prompt


class VirtualFleet:
    """A router over virtual replicas."""

    def __init__(
        self,
        num: int,
        policy: str,
        num_slots: int,
        faults: bool = False,
        work: dict[bytes, float] | None = None,
    ) -> None:
        self.clock, self.totals, self.arrays = Clock(), Totals(), Arrays()
        self._num_slots = num_slots
        self.replicas = {str(i): self._replica() for i in range(num)}
        own = "affinity" if policy in ("sglang", "planned") else policy
        self.router = Router(
            self.replicas,
            own,
            tokenizer=TokenIds(self.arrays),
            heartbeat=NEVER,
            hang_timeout=NEVER,
        )
        fleet = self.router.fleet
        chosen: Any = Replicas(fleet.loads, fleet.work, fleet.tree, fleet.rendezvous)
        if policy == "planned":
            chosen = PlannedPolicy(chosen, work or {}, num)
        else:
            chosen = SglangPolicy(chosen) if policy == "sglang" else policy_of(policy, chosen)
        self.policy = TimedPolicy(chosen)
        fleet.policy = self.policy
        self.num_deaths = 0
        self._is_over = False
        self.clock.after(READ_EVERY, self._read)
        if faults:
            self.clock.after(READ_EVERY, self._kill)

    @property
    def num_evicted(self) -> int:
        """Tokens that its replicas have evicted."""
        return sum(it.num_evicted for it in self.replicas.values())

    def _replica(self) -> VirtualReplica:
        def expected() -> int:
            return self.policy.expected

        return VirtualReplica(
            self.clock, self.totals, self._num_slots, Costs(), expected, self.arrays
        )

    def _read(self) -> None:
        """Read what was evicted."""
        reader = self.router.watch.evictions
        for replica in list(self.router.fleet.replicas.values()):
            reader.read(replica, NEVER + time.monotonic())
        self.clock.after(READ_EVERY, self._read)

    def _kill(self) -> None:
        """Kill a replica, and put another in its place a second later."""
        names = sorted(self.replicas, key=int)
        name = names[self.num_deaths * 7 % len(names)]
        self.num_deaths += 1
        self.replicas[name].die()
        self.router.remove(name)

        def replace() -> None:
            self.replicas[name] = self._replica()
            self.router.add(self.replicas[name], name)

        self.clock.after(1.0, replace)
        self.clock.after(2.0, self._kill)


def run(
    bodies: list[Body], width: int, fleet: VirtualFleet, optimum: Optimum | None = None
) -> None:
    """Run these programs to their end."""
    context = ProgramContext(True)
    ended: dict[int, int] = {}

    def submit(call: Call) -> Any:
        if optimum is not None:
            optimum.count(call)
        reply = fleet.router.submit(call)
        number = len(ended)
        ended[number] = 0

        def end(_: object) -> None:
            ended[number] += 1

        reply.when_done(end)
        return reply

    Driver(submit, fleet.clock.advance).run((body(context) for body in bodies), width)
    assert set(ended.values()) == {1}, "a call has not ended exactly once"


def rate(ends: list[tuple[float, int]]) -> float:
    """Work in a second, between 15 % and 75 % of all of it."""
    done = list(accumulate(work for _, work in ends))
    first = next(i for i, work in enumerate(done) if work >= 0.15 * done[-1])
    last = next(i for i, work in enumerate(done) if work >= 0.75 * done[-1])
    return (done[last] - done[first]) / (ends[last][0] - ends[first][0])


def figures(fleet: VirtualFleet, best: float, single: float, num: int) -> dict[str, Any]:
    """How a run went."""
    totals, seconds = fleet.totals, np.array(fleet.policy.seconds) * 1e6
    busy = [it.busy for it in fleet.replicas.values()]
    calls = [it.num_calls for it in fleet.replicas.values()]
    hit_rate = 1 - totals.prefilled / totals.prompt
    tree = fleet.router.fleet.tree
    return {
        "hit_rate": round(hit_rate, 4),
        "of_optimum": round(hit_rate / best, 4) if best > 0 else None,
        "of_linear": round(rate(totals.ends) / single / num, 4) if single else None,
        "busiest": round(max(busy) / (sum(busy) / len(busy)), 3),
        "most_calls": round(max(calls) / (sum(calls) / len(calls)), 3),
        "stale": round(totals.stale / max(1, totals.expected), 5),
        "decision_us": [round(float(np.percentile(seconds, it)), 1) for it in (50, 99)],
        "nodes": tree.num_nodes,
        "tree_mb": round(tree.num_bytes / 1e6, 1),
        "deaths": fleet.num_deaths,
        "resent": fleet.router.info().counters["resent"],
    }


def measure(
    name: str, tenancy: Tenancy, num: int, policies: list[str], options: Any
) -> dict[str, Any]:
    """A shape on so many replicas, by each policy."""
    tenancy = tenancy._replace(share=tenancy.share * options.programs)
    bodies = programs_of(tenancy, num, options.seed, options.zipf, options.scale)
    gc.collect()  # what the shape before left is not frozen
    gc.freeze()
    single = VirtualFleet(
        1, "round-robin", int(SLOTS + SLOTS_EACH * num * max(1.0, options.programs))
    )
    recorder = single.policy.inner = Recorder(single.policy.inner)
    optimum = Optimum(single.arrays)
    run(bodies, tenancy.width, single, optimum)
    assert not single.num_evicted, "the replica without limits has one"
    row: dict[str, Any] = {"shape": name, "replicas": num, "programs": len(bodies)}
    row |= {"calls": len(single.totals.ends), "optimum": round(optimum.hit_rate, 4)}
    base, token = rate(single.totals.ends), Costs().token
    others = single.replicas["0"].busy - token * single.totals.prefilled
    work = recorder.work(token, others / len(single.totals.ends))
    best = optimum.hit_rate
    del optimum, single
    for policy in policies:
        gc.collect()
        fleet = VirtualFleet(num, policy, options.slots, options.faults, work)
        run(bodies, tenancy.width * num, fleet)
        row[policy] = figures(fleet, best, base, num)
        fleet.router.watch.stop()
        del fleet
        print(f"{name:16} {num:4} {policy:14} {row[policy]}", flush=True)
    gc.unfreeze()
    return row


def main() -> None:
    """Measure and print the row."""
    options = parser(__doc__)
    options.add_argument("--replicas", type=int, nargs="+", default=[4, 16])
    known = (*POLICIES, "planned")
    options.add_argument("--policies", nargs="+", default=list(POLICIES), choices=known)
    options.add_argument("--only", nargs="+", default=list(SHAPES), choices=SHAPES, help="shapes")
    options.add_argument("--zipf", type=float, default=1.0, help="exponent of the tenants' sizes")
    options.add_argument("--scale", type=float, default=1.0, help="of the number of tenants")
    text = "so many times as many programs of each tenant"
    options.add_argument("--programs", type=float, default=4.0, help=text)
    options.add_argument("--slots", type=int, default=1 << 17, help="tokens that a replica caches")
    options.add_argument("--faults", action="store_true", help="kill replicas")
    args = options.parse_args()
    gc.set_threshold(*GARBAGE)
    fixed = {"zipf": args.zipf, "scale": args.scale, "programs": args.programs}
    fixed |= {"slots": args.slots, "faults": args.faults}
    for num in args.replicas:
        rows: list[dict[str, Any]] = []
        try:
            for name in args.only:
                rows.append(measure(name, SHAPES[name], num, args.policies, args))
        finally:  # what was measured is kept where the rest takes too long
            report("router_simulation", {"rows": rows}, args.out, seed=args.seed, **fixed)


if __name__ == "__main__":
    main()
