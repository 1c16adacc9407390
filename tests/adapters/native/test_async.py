"""The same language for asyncio: twins that wait without holding the loop."""

import asyncio
import threading

import pytest

from forkroot.adapters.native import UnsetVariable, function, gen
from forkroot.adapters.testing import ScriptedBackend, prompt_text
from forkroot.core.api.protocol import Overloaded, ProgramError

pytestmark = pytest.mark.timeout(180)


@function
def ask(s, question):
    s += question + gen("answer")
    s += "!"


def echo(call):
    text = prompt_text(call.prompt)
    if "bad" in text:
        raise Overloaded("the queue is full")
    return text.upper()


def test_a_program_can_be_awaited() -> None:
    state = asyncio.run(ask.arun("a", backend=ScriptedBackend(echo)))
    assert state.text() == "aA!"


def test_an_awaited_program_raises_its_error() -> None:
    with pytest.raises(Overloaded):
        asyncio.run(ask.arun("bad", backend=ScriptedBackend(echo)))


def test_many_programs_wait_at_the_same_time() -> None:
    backend = ScriptedBackend(echo, is_held=True)

    async def main():
        runs = [asyncio.ensure_future(ask.arun(str(i), backend=backend)) for i in range(100)]
        while len(backend.calls) < 100:
            await asyncio.sleep(0.001)
        backend.release()
        return await asyncio.gather(*runs)

    states = asyncio.run(main())
    assert [state["answer"] for state in states] == [str(i) for i in range(100)]


def test_a_batch_can_be_awaited() -> None:
    items = [{"question": "a"}, {"question": "bad"}]
    states = asyncio.run(ask.arun_batch(items, backend=ScriptedBackend(echo)))
    assert states[0]["answer"] == "A"
    assert isinstance(states[1].error(), Overloaded)


def test_a_cancelled_task_cancels_its_calls() -> None:
    backend = ScriptedBackend(echo, is_held=True)

    async def main():
        run = asyncio.ensure_future(ask.arun("a", backend=backend))
        while not backend.calls:
            await asyncio.sleep(0.001)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run

    asyncio.run(main())
    assert backend.replies[0].result(60).outputs[0].finish_reason == "abort"


def test_a_cancelled_batch_begins_no_further_item() -> None:
    backend = ScriptedBackend(echo, is_held=True)
    others = set(threading.enumerate())
    started = []
    ended = threading.Event()

    @function
    def noted(s, index):
        started.append(index)
        try:
            s += gen("x")
            s["x"]
        finally:
            ended.set()

    async def main():
        items = [{"index": index} for index in range(3)]
        run = asyncio.ensure_future(noted.arun_batch(items, backend=backend, num_threads=1))
        while not backend.calls:
            await asyncio.sleep(0.001)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run

    asyncio.run(main())
    assert ended.wait(60)
    for thread in set(threading.enumerate()) - others:
        if thread.name.startswith("forkroot"):
            thread.join(60)
    assert started == [0]


def test_text_comes_in_pieces() -> None:
    async def main():
        state = await ask.arun("hello", backend=ScriptedBackend(echo, chunk_len=2), stream=True)
        whole = [text async for text in state.text_async_iter()]
        variable = [text async for text in state.text_async_iter("answer")]
        return whole, variable, await state.aget_var("answer")

    whole, variable, value = asyncio.run(main())
    assert whole == ["hello", "HE", "LL", "O", "!"]
    assert variable == ["HE", "LL", "O"]
    assert value == "HELLO"


def test_text_is_there_before_the_answer_has_ended() -> None:
    backend = ScriptedBackend(echo, is_held=True, chunk_len=1)

    async def main():
        state = ask.stream("a", backend=backend)
        pieces = state.text_async_iter()
        assert await anext(pieces) == "a"
        while not backend.replies:
            await asyncio.sleep(0.001)
        backend.release()
        return [text async for text in pieces]

    assert asyncio.run(main()) == ["A", "!"]


def test_an_error_ends_the_pieces() -> None:
    async def main():
        state = ask.stream("bad", backend=ScriptedBackend(echo))
        with pytest.raises(Overloaded):
            [text async for text in state.text_async_iter()]
        with pytest.raises(Overloaded):
            [text async for text in state.text_async_iter("answer")]
        with pytest.raises(Overloaded):
            await state.aget_var("answer")

    asyncio.run(main())


def test_a_variable_that_is_never_set_ends_the_wait_for_it() -> None:
    async def main():
        state = ask.stream("a", backend=ScriptedBackend(echo))
        with pytest.raises(UnsetVariable):
            await state.aget_var("nothing")
        with pytest.raises(UnsetVariable):
            [text async for text in state.text_async_iter("nothing")]

    asyncio.run(main())


def test_a_list_has_no_pieces() -> None:
    @function
    def forking(s):
        group = s.fork(2)
        group += gen("x")
        group.join()

    async def main():
        state = await forking.arun(backend=ScriptedBackend("ok"))
        with pytest.raises(ProgramError, match="is a list"):
            [text async for text in state.text_async_iter("x")]

    asyncio.run(main())
