"""A reply is read by threads and tasks, early and late, and ends once."""

from __future__ import annotations

import asyncio
import gc
import threading
import traceback
import weakref
from typing import Any

import pytest

from forkroot.core.api.protocol import (
    Call,
    CallFailed,
    Chunk,
    Completion,
    InvalidCall,
    Output,
    Reply,
    Text,
)
from forkroot.core.api.reply import LoopNotifier, Mailbox, batches

CALL = Call((Text("?"),))
CHUNKS = [Chunk("one "), Chunk("two "), Chunk("three")]
COMPLETION = Completion((Output("one two three"),))


def full() -> Mailbox:
    mailbox = Mailbox(CALL)
    for chunk in CHUNKS:
        mailbox.put(chunk)
    mailbox.finish(COMPLETION)
    return mailbox


def started(target, count: int = 1) -> list[threading.Thread]:
    threads = [threading.Thread(target=target) for _ in range(count)]
    for thread in threads:
        thread.start()
    return threads


def join(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


async def read(reply: Mailbox) -> list[Chunk]:
    return [chunk async for chunk in reply]


def test_a_mailbox_is_a_reply():
    reply: Reply = Mailbox(CALL)
    assert reply.call is CALL
    assert not reply.done()
    assert reply.error() is None


def test_every_late_reader_sees_everything():
    mailbox = full()
    for _ in range(2):
        assert list(mailbox) == CHUNKS
        assert mailbox.result() is COMPLETION
        assert asyncio.run(read(mailbox)) == CHUNKS


def test_readers_that_wait_in_threads_see_chunks_as_they_come():
    mailbox, seen = Mailbox(CALL), []
    threads = started(lambda: seen.append((list(mailbox), mailbox.result(60))), count=4)
    for chunk in CHUNKS:
        mailbox.put(chunk)
    mailbox.finish(COMPLETION)
    join(threads)
    assert seen == [(CHUNKS, COMPLETION)] * 4


def test_a_reader_gets_a_chunk_before_the_next_is_written():
    mailbox, seen = Mailbox(CALL), []
    turns = threading.Semaphore(0)

    def reader() -> None:
        for chunk in mailbox:
            seen.append(chunk)
            turns.release()

    threads = started(reader)
    for count, chunk in enumerate(CHUNKS, 1):
        mailbox.put(chunk)
        assert turns.acquire(timeout=60)
        assert seen == CHUNKS[:count]
    mailbox.finish(COMPLETION)
    join(threads)


def test_tasks_and_threads_read_one_reply_at_once():
    mailbox = Mailbox(CALL)

    async def main() -> list:
        tasks = [asyncio.create_task(read(mailbox)) for _ in range(3)]
        results = [asyncio.create_task(asyncio.wait_for(mailbox, 10)) for _ in range(3)]
        await asyncio.sleep(0)
        threads = started(lambda: [mailbox.put(chunk) for chunk in CHUNKS])
        join(threads)
        join(started(lambda: mailbox.finish(COMPLETION)))
        return await asyncio.gather(*tasks, *results)

    assert asyncio.run(main()) == [CHUNKS] * 3 + [COMPLETION] * 3


def test_an_error_reaches_every_reader_after_the_chunks():
    mailbox = Mailbox(CALL)
    error = CallFailed("broken")
    mailbox.put(CHUNKS[0])
    mailbox.fail(error)
    assert mailbox.error() is error
    seen = []
    with pytest.raises(CallFailed):
        for chunk in mailbox:
            seen.append(chunk)
    assert seen == CHUNKS[:1]
    for reader in (mailbox.result, lambda: asyncio.run(read(mailbox))):
        with pytest.raises(CallFailed) as caught:
            reader()
        assert caught.value is error


def test_an_error_does_not_grow_with_its_readers():
    mailbox = Mailbox(CALL)
    mailbox.fail(CallFailed("broken"))
    lengths = []
    for _ in range(5):
        with pytest.raises(CallFailed) as caught:
            mailbox.result()
        lengths.append(len(traceback.extract_tb(caught.value.__traceback__)))
    assert len(set(lengths)) == 1


def test_only_the_first_ending_counts():
    mailbox = full()
    mailbox.put(Chunk("late"))
    mailbox.fail(CallFailed("late"))
    mailbox.finish(Completion())
    assert mailbox.result() is COMPLETION
    assert mailbox.error() is None
    assert list(mailbox) == CHUNKS
    failed = Mailbox(CALL)
    failed.fail(CallFailed("first"))
    failed.finish(COMPLETION)
    with pytest.raises(CallFailed, match="first"):
        failed.result()


def test_waiting_can_end_before_the_call_does():
    mailbox = Mailbox(CALL)
    for timeout in (0, 0.001):
        with pytest.raises(TimeoutError, match=f"timeout={timeout} s"):
            mailbox.result(timeout)

    async def impatient() -> None:
        await asyncio.wait_for(mailbox, 0.001)

    with pytest.raises(TimeoutError):
        asyncio.run(impatient())
    mailbox.finish(COMPLETION)
    assert mailbox.result(0) is COMPLETION


def test_readers_that_gave_up_are_forgotten():
    mailbox = Mailbox(CALL)
    events = []

    class Event(threading.Event):
        def __init__(self) -> None:
            super().__init__()
            events.append(weakref.ref(self))

    async def give_up(awaitable) -> None:
        task = asyncio.ensure_future(awaitable)
        await asyncio.sleep(0)
        events.append(weakref.ref(task))
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    original, threading.Event = threading.Event, Event
    try:
        for _ in range(3):
            with pytest.raises(TimeoutError):
                mailbox.result(0)
    finally:
        threading.Event = original
    asyncio.run(give_up(mailbox))
    asyncio.run(give_up(read(mailbox)))
    gc.collect()
    assert len(events) == 5
    assert [ref() for ref in events] == [None] * 5


def test_an_action_is_called_once_at_the_end_or_now():
    mailbox, called = Mailbox(CALL), []
    mailbox.when_done(called.append)
    mailbox.put(CHUNKS[0])
    assert called == []
    mailbox.finish(COMPLETION)
    mailbox.fail(CallFailed("late"))
    assert called == [mailbox]
    mailbox.when_done(called.append)
    assert called == [mailbox, mailbox]


@pytest.mark.parametrize("fault", [ValueError("fault"), asyncio.CancelledError(), SystemExit(1)])
def test_an_action_that_raises_harms_neither_the_producer_nor_other_readers(caplog, fault):
    mailbox, called = Mailbox(CALL), []

    def broken(reply: Reply) -> None:
        raise fault

    mailbox.when_done(broken)
    mailbox.when_done(called.append)
    mailbox.finish(COMPLETION)
    assert called == [mailbox]
    assert "a reader of a reply failed" in caplog.text


def test_a_reader_whose_loop_is_gone_harms_nobody(caplog):
    mailbox = Mailbox(CALL)
    waiting = mailbox.__await__()

    async def begin() -> None:
        waiting.send(None)

    asyncio.run(begin())
    mailbox.finish(COMPLETION)
    assert mailbox.result() is COMPLETION
    assert caplog.text == ""
    waiting.close()


def test_cancelling_asks_the_producer_until_the_end():
    cancelled = []
    mailbox = Mailbox(CALL, cancelled.append)
    mailbox.cancel()
    assert cancelled == [mailbox]
    assert not mailbox.done()
    mailbox.finish(COMPLETION)
    mailbox.cancel()
    assert cancelled == [mailbox]
    Mailbox(CALL).cancel()


async def turns() -> None:
    """Let every task go as far as it can."""
    for _ in range(5):
        await asyncio.sleep(0)


async def batches_of(reply: Mailbox, notifier: LoopNotifier | None = None) -> list[list[Chunk]]:
    return [list(ready) async for ready in reply.batches(notifier)]


def test_what_is_there_at_one_time_is_read_at_once():
    mailbox = Mailbox(CALL)

    async def main() -> list[list[Chunk]]:
        mailbox.put(CHUNKS[0])
        mailbox.put(CHUNKS[1])
        task = asyncio.create_task(batches_of(mailbox))
        await asyncio.sleep(0)
        mailbox.put(CHUNKS[2])
        mailbox.finish(COMPLETION)
        return await task

    assert asyncio.run(main()) == [CHUNKS[:2], CHUNKS[2:]]
    assert asyncio.run(batches_of(mailbox)) == [CHUNKS]


def test_an_error_comes_after_all_that_was_there():
    mailbox, seen = Mailbox(CALL), []
    mailbox.put(CHUNKS[0])
    mailbox.fail(CallFailed("broken"))

    async def main() -> None:
        async for ready in mailbox.batches():
            seen.append(list(ready))

    with pytest.raises(CallFailed, match="broken"):
        asyncio.run(main())
    assert seen == [CHUNKS[:1]]


def test_a_reply_without_batches_is_read_one_by_one():
    class Plain:
        async def __aiter__(self):
            for chunk in CHUNKS:
                yield chunk

    async def main() -> list[list[Chunk]]:
        return [list(ready) async for ready in batches(Plain())]

    assert asyncio.run(main()) == [[chunk] for chunk in CHUNKS]


def test_a_step_that_has_something_for_many_readers_wakes_their_loop_once(monkeypatch):
    mailboxes = [Mailbox(CALL) for _ in range(20)]
    visits = []

    async def main() -> list[list[list[Chunk]]]:
        loop = asyncio.get_running_loop()
        visit = loop.call_soon_threadsafe
        monkeypatch.setattr(
            loop, "call_soon_threadsafe", lambda *it: (visits.append(it), visit(*it))
        )
        notifier = LoopNotifier(loop)
        tasks = [asyncio.create_task(batches_of(mailbox, notifier)) for mailbox in mailboxes]
        for chunk in CHUNKS:
            await turns()
            join(started(lambda chunk=chunk: [mailbox.put(chunk) for mailbox in mailboxes]))
        await turns()
        join(started(lambda: [mailbox.finish(COMPLETION) for mailbox in mailboxes]))
        return await asyncio.gather(*tasks)

    assert asyncio.run(main()) == [[[chunk] for chunk in CHUNKS]] * 20
    assert len(visits) == len(CHUNKS) + 1


def test_a_bell_wakes_a_few_at_a_time_and_first_those_who_have_had_nothing():
    async def main() -> tuple[list[int], int]:
        notifier = LoopNotifier(asyncio.get_running_loop())
        waiting = [notifier.loop.create_future() for _ in range(20)]
        woken: list[int] = []
        for number, future in enumerate(waiting):
            future.add_done_callback(lambda _, number=number: woken.append(number))
        for number, future in enumerate(waiting):
            notifier.wake(future, is_first=number >= 18)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        num_early = len(woken)
        await asyncio.wait(waiting)
        await turns()
        return woken, num_early

    woken, num_early = asyncio.run(main())
    assert woken == [18, 19, *range(18)]
    assert num_early == 8


def test_a_bell_whose_loop_is_gone_keeps_nobody():
    loop = asyncio.new_event_loop()
    notifier, waiting = LoopNotifier(loop), loop.create_future()
    loop.close()
    kept = weakref.ref(waiting)
    notifier.wake(waiting)
    del waiting
    gc.collect()
    assert kept() is None


def test_a_bell_may_be_rung_by_many_threads_at_once():
    async def main() -> None:
        notifier = LoopNotifier(asyncio.get_running_loop())
        waiting = [notifier.loop.create_future() for _ in range(400)]
        shares = [waiting[start::8] for start in range(8)]
        threads = [
            thread
            for share in shares
            for thread in started(lambda share=share: [notifier.wake(it) for it in share])
        ]
        await asyncio.wait_for(asyncio.gather(*waiting), 10)
        join(threads)

    asyncio.run(main())


@pytest.mark.parametrize("value", ["Once upon a time", None])
def test_what_is_no_call_is_refused_at_once(value: Any) -> None:
    with pytest.raises(InvalidCall, match=r"^invalid call=.*: expected a Call, as Call"):
        Mailbox(value)
