"""The actor's side without Ray: calls in, chunks and endings out in batches."""

from __future__ import annotations

import asyncio
from typing import Any

from forkroot.adapters.ray.actor import EngineActor, Events
from forkroot.adapters.testing import ScriptedBackend
from forkroot.core.api.codec import pack, unpack
from forkroot.core.api.protocol import (
    BackendInfo,
    Call,
    CallFailed,
    InvalidModel,
    Sampling,
    Text,
    UnsupportedCall,
)


def batch(*messages: tuple[Any, ...]) -> bytes:
    return pack(list(messages))


def submit(number: int, text: str = "x", **fields: Any) -> tuple[Any, ...]:
    return "submit", number, pack(Call((Text(text),), **fields))


async def pulled(actor: EngineActor, num_endings: int) -> list[tuple[int, str, Any]]:
    """Events, until so many calls have ended."""
    events: list[tuple[int, str, Any]] = []
    while sum(kind != "chunks" for _, kind, _ in events) < num_endings:
        events += unpack(await actor.pull())
    return events


def test_calls_of_a_batch_end_each_once_with_their_own_numbers() -> None:
    async def run() -> None:
        actor = EngineActor(lambda: ScriptedBackend(lambda call: f"to {call.prompt[0].text}"))
        await actor.take(batch(*(submit(number, str(number)) for number in range(50))))
        events = await pulled(actor, 50)
        assert sorted((number, value.text) for number, _, value in events) == [
            (number, f"to {number}") for number in range(50)
        ]

    asyncio.run(run())


def test_chunks_come_before_the_ending_and_add_up_to_it() -> None:
    async def run() -> None:
        actor = EngineActor(lambda: ScriptedBackend("a longer answer", chunk_len=2))
        await actor.take(batch(submit(7, stream=True)))
        *chunks, (number, kind, completion) = await pulled(actor, 1)
        assert (number, kind) == (7, "done")
        pieces = [chunk.text for _, _, some in chunks for chunk in some]
        assert "".join(pieces) == completion.text == "a longer answer"

    asyncio.run(run())


def test_a_cancelled_call_ends_as_aborted() -> None:
    async def run() -> None:
        actor = EngineActor(lambda: ScriptedBackend("never", is_held=True))
        await actor.take(batch(submit(1), ("cancel", 1), ("cancel", 2)))
        ((number, kind, completion),) = await pulled(actor, 1)
        assert (number, kind, completion.outputs[0].finish_reason) == (1, "done", "abort")

    asyncio.run(run())


def test_errors_of_calls_and_of_questions_come_as_values() -> None:
    class Broken(ScriptedBackend):
        def submit(self, call: Call) -> Any:
            if call.sampling.n == 2:
                raise KeyError("broken")
            return super().submit(call)

    async def run() -> None:
        actor = EngineActor(lambda: Broken(lambda call: CallFailed("no")))
        await actor.take(batch(submit(1), submit(2, sampling=Sampling(n=2))))
        found = {number: value for number, _, value in await pulled(actor, 2)}
        assert isinstance(found[1], CallFailed)
        assert isinstance(found[2], CallFailed)
        assert "KeyError" in str(found[2])
        assert isinstance(unpack(await actor.ask("info", pack(()))), BackendInfo)
        for kind in ("submit", "close", "clear_cache", "__class__"):
            assert isinstance(
                unpack(await actor.ask(kind, pack(()))), (CallFailed, UnsupportedCall)
            )

    asyncio.run(run())


def test_a_model_that_cannot_be_loaded_is_an_answer_and_not_a_dead_actor() -> None:
    def make() -> ScriptedBackend:
        raise InvalidModel("no such model")

    async def run() -> None:
        actor = EngineActor(make)
        error = unpack(await actor.start())
        assert isinstance(error, InvalidModel)
        assert str(error) == "no such model"
        await actor.close()

    asyncio.run(run())


def test_an_empty_batch_comes_after_a_while_and_no_event_is_lost_around_it() -> None:
    async def run() -> None:
        events = Events(asyncio.get_running_loop())
        assert await events.next(0.01) == []
        loop = asyncio.get_running_loop()
        numbers: list[int] = []
        adding = loop.run_in_executor(
            None, lambda: [events.add(number, "done", None) for number in range(2000)]
        )
        while len(numbers) < 2000:
            numbers += [number for number, _, _ in await events.next(1)]
        await adding
        assert numbers == [*range(2000)]

    asyncio.run(run())
