"""Requests that come at once begin a few at a time, those of several clients in turn."""

from __future__ import annotations

import asyncio

from forkroot.adapters.http.server.turns import Turns


async def begun(clients: list[str], num_cancelled: int = 0) -> list[tuple[int, str]]:
    """The round of the event loop in which each request began, and whose it is, in order."""
    turns, found, num_rounds = Turns(), list[tuple[int, str]](), 0

    async def one(client: str) -> None:
        await turns.wait(client)
        found.append((num_rounds, client))

    tasks = [asyncio.create_task(one(client)) for client in clients]
    while len(found) < len(clients) - num_cancelled:
        await asyncio.sleep(0)
        num_rounds += 1
        if num_rounds == 1:
            for task in tasks[4 : 4 + num_cancelled]:
                task.cancel()
        assert num_rounds < 1_000
    return found


def test_few_requests_begin_at_once() -> None:
    found = asyncio.run(begun(["one"] * 4))
    assert found == [(0, "one")] * 4


def test_many_requests_of_one_client_begin_a_few_in_each_round() -> None:
    rounds = [number for number, _ in asyncio.run(begun(["one"] * 40))]
    assert max(rounds.count(number) for number in rounds) <= 4
    assert rounds == sorted(rounds) and max(rounds) <= 14


def test_a_client_does_not_wait_for_all_requests_of_another() -> None:
    found = [client for _, client in asyncio.run(begun(["greedy"] * 200 + ["modest"] * 2))]
    assert found.index("modest") <= 6
    assert [index for index, client in enumerate(found) if client == "modest"][1] <= 12


def test_requests_that_end_before_their_turn_take_none() -> None:
    found = asyncio.run(begun(["one"] * 30, num_cancelled=20))
    assert len(found) == 10 and max(number for number, _ in found) <= 5


def test_turns_begin_anew_once_all_have_begun() -> None:
    async def twice() -> list[int]:
        turns, counts = Turns(), list[int]()
        for _ in range(3):
            await asyncio.gather(*(turns.wait("one") for _ in range(9)))
            counts.append(1)
        return counts

    assert asyncio.run(twice()) == [1, 1, 1]
