"""Where calls go, by each policy."""

from __future__ import annotations

from collections import Counter

import pytest

from forkroot.adapters.router.loads import Loads
from forkroot.adapters.router.policies import Affinity, Replicas, Request, policy_of
from forkroot.adapters.router.rendezvous import Rendezvous
from forkroot.adapters.router.tree import MetaTree
from forkroot.core.api.protocol import InvalidCall


def replicas(num: int) -> Replicas:
    found = Replicas(Loads(), Loads(), MetaTree(), Rendezvous())
    for index in range(num):
        found.rendezvous.enter(index, str(index))
        found.loads.enter(1 << index)
        found.work.enter(1 << index)
    return found


def send(here: Replicas, bit: int, num: int = 1, work: int | None = None) -> None:
    """So many more calls of a replica, each of one unit of work, or of so many together."""
    here.loads.change(bit, num)
    here.work.change(bit, num if work is None else work)


def key(name: str, num: int = 10) -> bytes:
    return b"".join(f"{name}{number:03}".encode()[-8:].rjust(8) for number in range(num))


def test_round_robin_goes_through_all_that_take_calls() -> None:
    here = replicas(4)
    policy = policy_of("round-robin", here)
    here.loads.leave(2)
    assert [policy.choose(Request(""), 15).bit for _ in range(5)] == [1, 4, 8, 1, 4]


@pytest.mark.parametrize("name", ["affinity", "least-loaded"])
def test_unknown_prompts_go_where_the_fewest_calls_are(name: str) -> None:
    here = replicas(3)
    send(here, 1, 2)
    send(here, 4, 1)
    assert policy_of(name, here).choose(Request("", key("new")), 7).bit == 2


@pytest.mark.parametrize("name", ["power-of-two", "random"])
def test_drawn_replicas_are_all_used(name: str) -> None:
    here = replicas(4)
    policy = policy_of(name, here)
    assert {policy.choose(Request(""), 15).bit for _ in range(200)} == {1, 2, 4, 8}


@pytest.mark.parametrize(
    "name", ["affinity", "round-robin", "least-loaded", "power-of-two", "random"]
)
def test_no_replica_is_chosen_where_none_takes_calls(name: str) -> None:
    here = replicas(2)
    assert policy_of(name, here).choose(Request("", key("a")), 0).bit == 0


def test_calls_go_where_the_longest_prefix_is() -> None:
    here = replicas(8)
    policy = policy_of("affinity", here)
    first = policy.choose(Request("", key("root")), 255)
    send(here, first.bit, 3)
    again = policy.choose(Request("", key("root") + key("question", 2)), 255)
    assert (again.bit, again.expected) == (first.bit, 80)
    assert policy.choose(Request("other", key("root")), 255).bit != first.bit


def test_branches_of_a_root_go_together_also_where_prompts_are_short() -> None:
    here = replicas(8)
    policy = policy_of("affinity", here)
    root = ("tenant", "root 1")
    chosen = set()
    for _ in range(6):
        bit = policy.choose(Request("", root=root), 255).bit
        send(here, bit, 1)
        chosen.add(bit)
    assert len(chosen) == 1


def test_a_replica_that_is_far_too_busy_gives_its_root_to_another() -> None:
    here = replicas(2)
    policy = Affinity(here, credit=0, share=0.0)
    first = policy.choose(Request("", key("root")), 3).bit
    send(here, first, 65)
    assert policy.choose(Request("", key("root")), 3).bit == first ^ 3
    send(here, first, -1)
    assert policy.choose(Request("", key("root")), 3).bit == first ^ 3, "both hold it now"


def test_without_credit_an_idle_replica_takes_no_root_before_that() -> None:
    here = replicas(2)
    policy = Affinity(here, credit=0, share=0.0)
    first = policy.choose(Request("", key("root")), 3).bit
    send(here, first, 64)
    assert policy.choose(Request("", key("root")), 3).bit == first


def test_one_root_is_soon_on_all_replicas() -> None:
    here = replicas(4)
    policy = policy_of("affinity", here)
    sent: Counter[int] = Counter()
    for number in range(200):
        bit = policy.choose(Request("", key("root") + key(f"q{number}", 2)), 15).bit
        send(here, bit, 1)
        sent[bit] += 1
    assert min(sent.values()) > 30


def placed(policy: Affinity, here: Replicas, request: Request) -> int:
    """Where a call goes, which stays open there."""
    placement = policy.choose(request, here.loads.everyone)
    send(here, placement.bit, 1, placement.work(request))
    return placement.bit


def test_prompts_that_must_be_computed_are_spread_by_their_lengths() -> None:
    here = replicas(2)
    policy = Affinity(here)
    long = placed(policy, here, Request("", key("long", 80)))
    short = [placed(policy, here, Request("", key(f"s{number}"))) for number in range(4)]
    assert short == [long ^ 3] * 4


def test_a_replica_with_many_calls_gets_no_more_of_them_for_being_done_with_their_prompts() -> None:
    here = replicas(2)
    policy = Affinity(here)
    send(here, 1, 100)
    send(here, 2, 4, work=500)
    assert placed(policy, here, Request("", key("new"))) == 2


def test_a_long_root_that_is_being_computed_is_not_computed_elsewhere_at_once() -> None:
    here = replicas(2)
    policy = Affinity(here, credit=1 << 20)
    root = key("root", 500)
    first = placed(policy, here, Request("", root))
    assert placed(policy, here, Request("", root + key("question", 2))) == first
    assert policy.num_spills == 0


@pytest.mark.parametrize(("busy", "idle", "is_moved"), [(48, 12, True), (48, 13, False)])
def test_a_replica_with_a_quarter_of_the_calls_takes_a_root(
    busy: int, idle: int, is_moved: bool
) -> None:
    here = replicas(2)
    policy = Affinity(here)
    first = policy.choose(Request("", key("root")), 3).bit
    send(here, first, busy)
    send(here, first ^ 3, idle)
    moved = policy.choose(Request("", key("root")), 3).bit != first
    assert moved is is_moved


def test_balance_costs_no_more_than_its_share() -> None:
    here = replicas(16)
    policy = Affinity(here, share=0.05, credit=0)
    computed = 0
    for number in range(3000):
        request = Request("", key(f"r{number % 7}") + key(f"q{number}", 2))
        placement = policy.choose(request, (1 << 16) - 1)
        computed += len(request.key) - placement.expected
        send(here, placement.bit, 1)
    least = 7 * 80 + 3000 * 16
    assert computed <= least * 1.06


@pytest.mark.parametrize(("num", "is_copied"), [(1, False), (10, True)])
def test_the_last_credit_is_kept_for_roots_that_many_calls_begin_with(
    num: int, is_copied: bool
) -> None:
    here = replicas(2)
    policy = Affinity(here, credit=100, share=0.0, loss=0.0)  # of 200: enough for two copies
    everyone = here.loads.everyone
    for name, times in (("root", num), ("other", 10)):
        for _ in range(times):
            holder = policy.choose(Request("", key(name, 20)), everyone).bit
            policy.choose(Request("", key(name, 20)), holder)
    first = policy.choose(Request("", key("root", 20)), everyone).bit
    send(here, first, 60)
    moved = policy.choose(Request("", key("root", 20)), everyone).bit != first
    assert moved is is_copied


def test_every_prompt_earns_credit_for_balance_also_where_all_is_cached() -> None:
    here = replicas(2)
    policy = Affinity(here, share=0.0, loss=0.01, credit=100, reserve=0.0)  # 200: for one copy
    one, other = Request("", key("one", 20)), Request("", key("other", 20))
    policy.choose(one, 1)
    policy.choose(other, 1)
    send(here, 1, 60)
    assert [policy.choose(request, 3).bit for request in (one, other)] == [2, 1]
    for _ in range(100):
        policy.choose(one, 3)
    assert policy.choose(other, 3).bit == 2


def test_unknown_policies_are_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidCall, match="did you mean affinity"):
        policy_of("afinity", replicas(1))
