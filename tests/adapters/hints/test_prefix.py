"""From calls to hints: the same answers, each beginning computed once, counted, and bounded."""

from __future__ import annotations

import asyncio
import logging
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forkroot.adapters.connection import Lent
from forkroot.adapters.hints import prefix
from forkroot.adapters.hints.outline import groups
from forkroot.adapters.hints.prefix import KEPT_SHARE, LEAST, Prefixes
from forkroot.adapters.hints.savings import MOST_ROOTS, MOST_TRACED, Saving
from forkroot.adapters.testing import ScriptedBackend
from forkroot.benchmarks.common.fake_runner import FakeRunner, byte_tokenizer
from forkroot.core.api.config import EngineConfig
from forkroot.core.api.protocol import (
    Backend,
    BackendClosed,
    Call,
    CallFailed,
    Chat,
    Completion,
    ForkHint,
    Image,
    InvalidCall,
    Message,
    Output,
    Reply,
    Sampling,
    Segment,
    Text,
    Tokens,
    Usage,
    Video,
)
from forkroot.core.common.harmless import hint_errors
from forkroot.core.local import LocalBackend

SIZES = {"num_slots": 20_000, "context_len": 4096, "max_running": 32, "chunk_tokens": 512}
GREEDY = Sampling(max_tokens=3, temperature=0, ignore_eos=True)
HOLD = 8  # shared tokens for which the runtime lets a call wait for another


class Watched(Lent):
    """A backend that remembers its calls and replies."""

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend)
        self.replies: list[Reply] = []

    def submit(self, call: Call) -> Reply:
        reply = super().submit(call)
        self.replies.append(reply)
        return reply

    @property
    def plants(self) -> list[Reply]:
        return [r for r in self.replies if r.call.sampling.max_tokens == 0]


def start(**settings: Any) -> tuple[LocalBackend, FakeRunner]:
    """A whole runtime over a runner without a model; its tokens are bytes."""
    config = EngineConfig.from_settings(SIZES | settings)
    runner = FakeRunner(SIZES["num_slots"])
    tokenizer = byte_tokenizer()
    return LocalBackend("fake", config, tokenizer, runner, 257, frozenset({256})), runner


def text_call(text: str, **settings: Any) -> Call:
    return Call((Text(text),), GREEDY, **settings)


def chat_call(*texts: str, **settings: Any) -> Call:
    roles = ["system", *("user", "assistant") * len(texts)]
    messages = zip(roles, texts, strict=False)
    return Call(Chat(tuple(Message(r, (Text(t),)) for r, t in messages)), GREEDY, **settings)


def long_text(name: str, length: int = 3 * LEAST) -> str:
    words = (f"{name} says {number} and" for number in range(length))
    return " ".join(words)[:length]


def texts_of(replies: Sequence[Reply]) -> list[str]:
    return [reply.result(60).text for reply in replies]


def wait_until(is_so: Callable[[], bool], timeout: float = 30.0) -> None:
    end = time.monotonic() + timeout
    while not is_so():
        assert time.monotonic() < end, f"not so within {timeout} s"
        time.sleep(0.005)


@pytest.fixture
def scripted() -> Iterator[ScriptedBackend]:
    backend = ScriptedBackend("a")
    yield backend
    backend.close()


@st.composite
def trees(draw: st.DrawFn) -> list[str]:
    """Prompts that share beginnings, some of which are long enough to be worth sharing."""
    random_ = random.Random(draw(st.integers(0, 1 << 30)))
    prompts = [""]
    for _ in range(draw(st.integers(2, 14))):
        parent = random_.choice(prompts)
        start = random_.randrange(len(parent) + 1)
        more = "".join(random_.choices("ab c", k=random_.choice([0, 3, 40, 150, 400])))
        prompts.append(parent[:start] + more)
    return [prompt + "?" for prompt in prompts if len(prompt) < 3000]


def num_distinct(texts: Sequence[str]) -> int:
    """Beginnings of these texts that differ: tokens that must be computed once."""
    return len({text[:end] for text in texts for end in range(1, len(text) + 1)})


# --- answers and work --------------------------------------------------------------------------


@settings(max_examples=40)
@given(trees(), st.booleans())
def test_sharing_changes_no_answer_and_computes_each_beginning_once(
    texts: list[str], is_batch: bool
) -> None:
    calls = [text_call(text) for text in texts]
    backend, runner = start()
    plain, _ = start(cache=False)
    with backend, plain:
        watched = Watched(backend)
        prefixes = Prefixes(watched)
        if is_batch:
            replies = prefixes.submit_all(calls)
        else:
            replies = [prefixes.submit(call) for call in calls]
        answers = texts_of(replies)
        for reply in watched.replies:
            reply.result(60)
        assert answers == texts_of([plain.submit(call) for call in calls])
        backend.check()
        # beside these, each call computes its last prompt token and what it writes
        most = num_distinct(texts) + len(texts) * (GREEDY.max_tokens + 1) + HOLD * len(texts)
        assert runner.num_computed <= most


@settings(max_examples=40)
@given(trees())
def test_every_shareable_token_is_planted_at_most_once(texts: list[str]) -> None:
    backend, _ = start()
    with backend:
        watched = Watched(backend)
        prefixes = Prefixes(watched)
        for reply in prefixes.submit_all([text_call(text) for text in texts]):
            reply.result(60)
        planted = [reply.call.prompt[0].text for reply in watched.plants]  # type: ignore[index]
        usages = [reply.result(60).usage for reply in watched.plants]
    assert len(planted) == len(set(planted))
    assert all(sum(text.startswith(root) for text in texts) >= 2 for root in planted)
    computed = sum(usage.prompt_tokens - usage.cached_tokens for usage in usages)
    assert computed <= num_distinct(planted) + HOLD * len(planted)


def test_a_wrong_hint_of_ours_is_no_worse_than_none() -> None:
    backend, _ = start(num_slots=1200)
    with backend:
        prefixes = Prefixes(backend)
        root = long_text("root", 900)
        for number in range(5):  # roots that never fit beside each other
            calls = [text_call(f"{number} {root} {end}") for end in "abc"]
            assert texts_of(prefixes.submit_all(calls)) == texts_of(map(backend.submit, calls))
        backend.check()


# --- calls that come together ------------------------------------------------------------------


def test_what_a_batch_of_long_messages_shares_is_sent_first(local: Backend) -> None:
    watched = Watched(local)
    root = long_text("one message", 2400)
    calls = [Call(Chat((Message("user", (Text(f"{root} {n}"),)),)), GREEDY) for n in range(64)]
    replies = Prefixes(watched).submit_all(calls)
    usages = [reply.result(60).usage for reply in replies]
    (plant,) = watched.plants
    assert watched.replies[0] is plant
    planted = plant.result(60).usage.prompt_tokens
    assert all(usage.cached_tokens >= planted for usage in usages)
    assert sum(u.cached_tokens for u in usages) >= 0.95 * sum(u.prompt_tokens for u in usages)
    assert texts_of(replies) == texts_of([local.submit(call) for call in calls])


def test_a_batch_names_its_root_and_how_many_share_it(scripted: ScriptedBackend) -> None:
    root = long_text("root")
    replies = Prefixes(scripted).submit_all([text_call(f"{root} {n}") for n in range(5)])
    plant, *others = scripted.calls
    assert [reply.call for reply in replies] == others
    assert plant.sampling.max_tokens == 0
    assert plant.prompt == (Text(root),)
    assert {call.hint for call in others} == {plant.hint}
    assert plant.hint is not None
    assert plant.hint.branches == 5


@pytest.mark.parametrize("media", [Image(b"png"), Video(b"mp4", 8)])
def test_a_picture_that_calls_share_is_sent_ahead_of_them(
    scripted: ScriptedBackend, media: Segment
) -> None:
    questions = ["What is it?", "Is it red?", "Who made it?"]
    prompts = [(Text("Look: "), media, Text(question)) for question in questions]
    chats = [Chat((Message("user", prompt),)) for prompt in prompts]
    for asked in (prompts, chats):
        before = len(scripted.calls)
        Prefixes(scripted).submit_all([Call(prompt, GREEDY) for prompt in asked])
        planted, *calls = scripted.calls[before:]
        content = planted.prompt.messages[0].content if asked is chats else planted.prompt
        assert content[:2] == (Text("Look: "), media)
        assert {call.hint for call in calls} == {planted.hint}


def test_different_pictures_share_nothing(scripted: ScriptedBackend) -> None:
    calls = [Call((Image(bytes([it])), Text("What is it?")), GREEDY) for it in range(5)]
    Prefixes(scripted).submit_all(calls)
    assert scripted.calls == calls


def test_roots_within_roots_are_each_sent_for_their_own_calls(scripted: ScriptedBackend) -> None:
    root, deep = long_text("root"), long_text("deep")
    texts = [*(f"{root} {n}" for n in "ab"), *(f"{root} {deep} {n}" for n in "cde")]
    Prefixes(scripted).submit_all([text_call(text) for text in texts])
    plants = [call for call in scripted.calls if call.sampling.max_tokens == 0]
    assert [call.prompt for call in plants] == [(Text(root),), (Text(f"{root} {deep}"),)]
    assert [call.hint.branches for call in plants if call.hint] == [2, 3]
    hints = [call.hint for call in scripted.calls[2:]]
    assert hints == [plants[0].hint] * 2 + [plants[1].hint] * 3


def test_a_beginning_that_is_short_or_not_shared_is_not_sent(scripted: ScriptedBackend) -> None:
    texts = ["short a", "short b", long_text("one"), long_text("two")]
    calls = [text_call(text) for text in texts]
    Prefixes(scripted).submit_all(calls)
    assert scripted.calls == calls


def test_a_root_that_is_cached_and_that_a_hint_can_express_is_not_sent(
    scripted: ScriptedBackend,
) -> None:
    prefixes = Prefixes(scripted)
    system = long_text("system")
    prefixes.submit(chat_call(system, "first")).result(60)
    prefixes.submit_all([chat_call(system, f"Why {n}?") for n in range(3)])
    assert [call.sampling.max_tokens for call in scripted.calls] == [3] * 4
    hints = [call.hint for call in scripted.calls[1:]]
    assert [hint.branches for hint in hints if hint] == [3, 3, 3]
    assert [hint.prefix_end for hint in hints if hint] == [1, None, None]


def test_calls_of_two_namespaces_share_nothing(scripted: ScriptedBackend) -> None:
    root = long_text("root")
    prefixes = Prefixes(scripted)
    spaces = ["a", "b", "a", "b", "c"]
    prefixes.submit_all([text_call(f"{root} {n}", namespace=s) for n, s in enumerate(spaces)])
    plants = [call for call in scripted.calls if call.sampling.max_tokens == 0]
    assert [call.namespace for call in plants] == ["a", "b"]
    assert len({call.hint.root for call in plants if call.hint}) == 2
    assert scripted.calls[-1].hint is None
    prefixes.submit(text_call(f"{root} again", namespace="d"))
    assert scripted.calls[-1].hint is None


def test_calls_that_have_hints_keep_them(scripted: ScriptedBackend) -> None:
    root, own = long_text("root"), ForkHint("mine", 2, 1)
    prefixes = Prefixes(scripted)
    prefixes.submit_all([text_call(f"{root} {n}", hint=own) for n in range(3)])
    prefixes.submit(text_call(f"{root} 4", hint=own))
    assert [call.hint for call in scripted.calls] == [own] * 4


def test_calls_that_only_plant_go_out_as_they_are(scripted: ScriptedBackend) -> None:
    prefixes = Prefixes(scripted)
    calls = [Call((Text(long_text("root")),), Sampling(max_tokens=0))] * 2
    prefixes.submit(calls[0])
    prefixes.submit_all(calls)
    assert scripted.calls == [calls[0], *calls]
    prefixes.submit(text_call(long_text("root") + " and more"))
    assert scripted.calls[-1].hint is not None


def test_replies_come_in_the_order_of_their_calls(scripted: ScriptedBackend) -> None:
    roots = [long_text("one"), long_text("two"), "three"]
    calls = [text_call(f"{roots[n % 3]} {n}") for n in range(12)]
    replies = Prefixes(scripted).submit_all(calls)
    assert [reply.call.prompt for reply in replies] == [call.prompt for call in calls]
    assert Prefixes(scripted).submit_all([]) == []


def test_groups_share_as_much_as_they_say_and_no_call_is_in_two() -> None:
    texts = [long_text("a") + end for end in "xyz"] + [long_text("b") + end for end in "xy"] + ["c"]
    found = list(groups([text_call(text) for text in texts], LEAST))
    assert sorted(group.members for group in found) == [(0, 1, 2), (3, 4)]
    for group in found:
        beginning = group.outline.text[1 : group.length]
        assert all(texts[place].startswith(beginning) for place in group.members)


# --- calls that come one after another ---------------------------------------------------------


def test_a_call_that_begins_as_an_earlier_one_bears_its_root(scripted: ScriptedBackend) -> None:
    prefixes = Prefixes(scripted)
    system = long_text("system")
    for number in range(4):
        prefixes.submit(chat_call(system, f"Question {number}"))
    first, *others = [call.hint for call in scripted.calls]
    assert first is None
    assert len({hint.root for hint in others if hint}) == 1
    assert [hint.prefix_end for hint in others if hint] == [1, None, None]
    assert [hint.branches for hint in others if hint] == [None] * 3


def test_a_conversation_bears_one_root_and_sends_nothing_ahead(scripted: ScriptedBackend) -> None:
    prefixes = Prefixes(scripted)
    turns = [long_text(f"turn {number}", 2 * LEAST) for number in range(9)]
    for count in (2, 4, 6, 8):
        prefixes.submit(chat_call(*turns[:count]))
    first, *others = [call.hint for call in scripted.calls]
    assert first is None
    assert len(others) == 3
    assert len({hint.root for hint in others if hint}) == 1
    assert [(hint.branches, hint.prefix_end) for hint in others if hint] == [(None, None)] * 3


def test_two_ways_to_go_on_from_a_conversation_share_all_of_it(scripted: ScriptedBackend) -> None:
    prefixes = Prefixes(scripted)
    turns = [long_text(f"turn {number}", 2 * LEAST) for number in range(5)]
    prefixes.submit(chat_call(*turns[:2]))
    prefixes.submit(chat_call(*turns[:4]))
    prefixes.submit(chat_call(*turns[:3], "another way"))
    hint = scripted.calls[-1].hint
    assert hint is not None
    assert hint.prefix_end == 3
    assert hint != scripted.calls[1].hint


def test_accidents_of_wording_make_hardly_any_roots(scripted: ScriptedBackend) -> None:
    prefixes = Prefixes(scripted)
    root = long_text("root", 2000)
    questions = ["What is it?", "What was it?", "Who is it?", "What is it not?", "Why?"] * 3
    for number, question in enumerate(questions):
        prefixes.submit(text_call(f"{root} {question} {number}"))
    hints = [call.hint for call in scripted.calls if call.sampling.max_tokens]
    assert len({hint.root for hint in hints if hint}) <= 2
    assert sum(call.sampling.max_tokens == 0 for call in scripted.calls) <= 2


def test_a_root_within_a_message_is_pinned_by_sending_it_though_it_is_cached() -> None:
    backend, runner = start()
    with backend:
        watched = Watched(backend)
        prefixes = Prefixes(watched)
        root = long_text("root", 1000)
        prefixes.submit(text_call(f"{root} one")).result(60)
        computed = runner.num_computed
        second = prefixes.submit(text_call(f"{root} two")).result(60)
        (plant,) = watched.plants
        usage = plant.result(60).usage
        assert usage.cached_tokens >= usage.prompt_tokens - 1
        assert second.usage.cached_tokens >= 1000
        assert runner.num_computed - computed <= 12


@pytest.mark.parametrize("is_hinted", [True, False])
def test_a_root_stays_cached_while_others_need_the_room(is_hinted: bool) -> None:
    backend, _ = start(num_slots=1500)
    with backend:
        to = Prefixes(backend) if is_hinted else backend
        root, found = long_text("root", 500), []
        for number in range(6):
            usage = to.submit(text_call(f"{root} {number}")).result(60).usage
            found.append(usage.cached_tokens >= 490)
            for other in range(3):
                backend.submit(text_call(f"{number} {other} {'z' * 600}")).result(60)
    assert found[2:] == [is_hinted] * 4


def test_the_same_beginning_has_one_root_whoever_calls(scripted: ScriptedBackend) -> None:
    root = long_text("root")
    one, other = Prefixes(scripted), Prefixes(scripted)
    for prefixes in (one, other):
        prefixes.submit(text_call(f"{root} a"))
        prefixes.submit(text_call(f"{root} b"))
    hints = [call.hint for call in scripted.calls if call.hint and call.sampling.max_tokens]
    assert len(hints) == 2
    assert hints[0].root == hints[1].root


def test_tokens_share_what_their_ids_share(scripted: ScriptedBackend) -> None:
    prefixes = Prefixes(scripted)
    root = tuple(range(3 * LEAST))
    calls = [Call((Tokens((*root, 1000 + n)),), GREEDY) for n in range(3)]
    prefixes.submit_all(calls)
    plant = scripted.calls[0]
    assert plant.sampling.max_tokens == 0
    assert plant.prompt == (Tokens(root),)


# --- planting ----------------------------------------------------------------------------------


def test_a_planted_prefix_is_found_by_the_calls_that_begin_so(local: Backend) -> None:
    prefixes = Prefixes(local)
    system = long_text("planted system", 900)
    hint = prefixes.plant(Chat((Message("system", (Text(system),)),)), branches=2)
    assert hint.branches == 2
    replies = [prefixes.submit(chat_call(system, f"What of {n}?")) for n in range(2)]
    usages = [reply.result(60).usage for reply in replies]
    assert all(usage.cached_tokens >= 0.95 * usage.prompt_tokens for usage in usages)
    assert [r.call.hint.root for r in replies if r.call.hint] == [hint.root] * 2


@pytest.mark.parametrize("is_open", [True, False])
def test_a_planted_chat_is_sent_with_the_opening_of_what_comes(
    is_open: bool, scripted: ScriptedBackend
) -> None:
    system, user = Message("system", (Text("s"),)), Message("user", (Text("u"),))
    prefixes = Prefixes(scripted)
    prefixes.plant(Chat((system,)))
    prefixes.plant(Chat((system, user), open_last=is_open))
    assert [call.prompt for call in scripted.calls] == [
        Chat((system, Message("user", ())), open_last=True),
        Chat((system, user), open_last=is_open),
    ]


def test_planting_never_raises(scripted: ScriptedBackend) -> None:
    prefixes = Prefixes(scripted)
    assert prefixes.plant(7).root == ""  # type: ignore[arg-type]
    assert prefixes.plant(Chat(())).root == ""
    scripted.close()
    assert prefixes.plant((Text("a"),)).root != ""
    prefixes.release(ForkHint("nobody knows it"))


def test_a_broken_hint_is_logged_and_counted_and_the_call_is_answered(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken:
        @staticmethod
        def of(prompt: object) -> object:
            raise LookupError("no outline")

    caplog.set_level(logging.DEBUG, "forkroot.adapters.hints")
    monkeypatch.setattr(prefix, "Outline", Broken)
    backend = Lent(ScriptedBackend(["a", "b"]))
    prefixes, before = Prefixes(backend), hint_errors.total
    replies = [prefixes.submit(text_call("a prompt")) for _ in range(2)]
    assert [reply.result(60).text for reply in replies] == ["a", "b"]
    assert backend.info().counters["hint_errors"] == hint_errors.total == before + 2
    (record,) = caplog.records
    assert record.message.startswith("adding a hint to a call failed")
    assert record.exc_info is not None and "no outline" in str(record.exc_info[1])


def test_a_call_that_failed_is_not_kept_and_is_no_error_of_a_hint() -> None:
    prefixes, before = Prefixes(ScriptedBackend([CallFailed("no")])), hint_errors.total
    assert not prefixes.keep(prefixes.submit(text_call("a")), "mine")
    assert hint_errors.total == before


def test_a_planted_prefix_stays_until_it_is_released() -> None:
    backend, _ = start(root_timeout=1000.0)
    with backend:
        prefixes = Prefixes(backend)
        root = long_text("root", 500)
        hint = prefixes.plant((Text(root),), namespace="n")
        prefixes.submit(text_call(root + " a", namespace="n")).result(60)
        assert backend.info().load["locked_slots"] >= 500
        prefixes.release(hint, namespace="n")
        prefixes.submit(text_call("b", namespace="n")).result(60)
        assert backend.info().load["locked_slots"] == 0


def test_a_kept_prompt_stays_cached_until_it_is_released() -> None:
    backend, _ = start(root_timeout=1000.0)
    with backend:
        prefixes = Prefixes(backend)
        first, second = long_text("first", 400), long_text("second", 600)
        for text in (first, second):  # the second takes the first one's place
            reply = prefixes.submit(text_call(text, namespace="n"))
            reply.result(60)
            prefixes.keep(reply, "mine")
        prefixes.submit(text_call("a", namespace="n")).result(60)
        assert len(second) <= backend.info().load["locked_slots"] < len(first) + len(second)
        prefixes.release(ForkHint("mine"), namespace="n")
        prefixes.submit(text_call("b", namespace="n")).result(60)
        assert backend.info().load["locked_slots"] == 0


def test_nothing_more_is_kept_where_all_of_it_has_no_room() -> None:
    backend, _ = start(root_timeout=1000.0)
    with backend:
        watched = Watched(backend)
        prefixes = Prefixes(watched)
        prefixes.plant((Text("the runtime is asked how large it is"),))
        wait_until(lambda: prefixes.most_kept == SIZES["num_slots"] * KEPT_SHARE)
        replies = [prefixes.submit(text_call(long_text(str(n), 3000))) for n in range(5)]
        is_kept = []
        for number, reply in enumerate(replies):
            reply.result(60)
            is_kept.append(prefixes.keep(reply, str(number)))
        assert is_kept == [True, True, True, False, False]
        for name in ("3", "4"):  # which are not pinned: nothing is to be sent for them
            prefixes.release(ForkHint(name))
        assert len(watched.plants) == 4
        prefixes.release(ForkHint("1"))
        assert len(watched.plants) == 5
        assert prefixes.keep(replies[4], "4")
        assert watched.plants[-1].call.prompt == replies[4].call.prompt


def test_keeping_never_raises(scripted: ScriptedBackend) -> None:
    prefixes = Prefixes(ScriptedBackend([CallFailed("no")]))
    assert not prefixes.keep(prefixes.submit(text_call("a")), "mine")
    scripted.close()
    prefixes = Prefixes(scripted)
    assert not prefixes.keep(prefixes.submit(text_call("a")), "mine")


def test_a_planted_prefix_is_given_up_when_its_branches_are_done() -> None:
    backend, _ = start(root_timeout=1000.0)
    with backend:
        prefixes = Prefixes(backend)
        calls = [text_call(f"{long_text('root', 500)} {n}") for n in range(4)]
        for reply in prefixes.submit_all(calls):
            reply.result(60)
        assert backend.info().load["locked_slots"] == 0


def test_a_prefix_is_not_planted_again_while_it_is_pinned(
    scripted: ScriptedBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefixes = Prefixes(scripted)
    prompt = (Text(long_text("root")),)
    first = prefixes.plant(prompt)
    assert prefixes.plant(prompt) == first
    assert len(scripted.calls) == 1
    monkeypatch.setattr(prefix, "PINNED_FOR", -1.0)
    prefixes.plant(prompt, namespace="other")
    prefixes.plant(prompt, namespace="other")
    assert len(scripted.calls) == 3


def test_a_backend_that_follows_no_hints_is_sent_no_prefixes() -> None:
    class SignallingBackend(ScriptedBackend):
        def info(self) -> Any:
            try:
                return super().info()
            finally:
                was_called.set()

    was_called = threading.Event()
    backend = SignallingBackend("a", features=frozenset({"tokens"}))
    prefixes = Prefixes(backend)
    prefixes.plant((Text("before it is known"),))
    assert was_called.wait(60)
    for thread in threading.enumerate():
        if thread.name == "forkroot-features":
            thread.join(60)
    prefixes.submit_all([text_call(f"{long_text('root')} {n}") for n in range(3)])
    assert sum(call.sampling.max_tokens == 0 for call in backend.calls) == 1
    backend.close()


# --- whatever happens, the call goes out -------------------------------------------------------


@pytest.mark.parametrize("prompt", [7, None, (), (7,), Chat(()), Chat((7,))], ids=repr)
def test_a_prompt_that_is_none_gets_the_runtimes_own_error(prompt: Any) -> None:
    backend, _ = start()
    with backend:
        prefixes = Prefixes(backend)
        for reply in (
            *prefixes.submit_all([Call(prompt, GREEDY)] * 2),
            prefixes.submit(Call(prompt)),
        ):
            with pytest.raises(InvalidCall, match="prompt="):
                reply.result(60)


def test_one_bad_call_takes_nothing_from_the_others(scripted: ScriptedBackend) -> None:
    good = [text_call(f"{long_text('root')} {n}") for n in range(3)]
    replies = Prefixes(scripted).submit_all([*good, Call(7)])  # type: ignore[arg-type]
    assert texts_of(replies[:3]) == ["a"] * 3
    with pytest.raises(InvalidCall, match="prompt=7"):
        replies[3].result(60)


def test_a_failed_call_counts_for_nothing() -> None:
    backend = ScriptedBackend(lambda call: CallFailed("no"))
    prefixes = Prefixes(backend)
    for reply in prefixes.submit_all([text_call(f"{long_text('root')} {n}") for n in range(3)]):
        with pytest.raises(CallFailed):
            reply.result(60)
    assert prefixes.savings == ()
    backend.close()
    with pytest.raises(BackendClosed):
        prefixes.submit(text_call("more")).result(60)


def test_submitting_waits_for_nobody() -> None:
    backend = ScriptedBackend("a", is_held=True)
    prefixes = Prefixes(backend)

    async def ask() -> list[Completion]:
        replies = prefixes.submit_all([text_call(f"{long_text('root')} {n}") for n in range(3)])
        assert not any(reply.done() for reply in replies)
        backend.release()
        return [await reply for reply in replies]

    assert [found.text for found in asyncio.run(ask())] == ["a"] * 3
    backend.close()


def test_threads_may_call_at_once() -> None:
    backend, _ = start()
    with backend:
        prefixes = Prefixes(backend)
        roots = [long_text(name, 400) for name in "ab"]

        def work(number: int) -> list[str]:
            calls = [text_call(f"{roots[number % 2]} {number} {n}") for n in range(4)]
            return texts_of([prefixes.submit(calls[0]), *prefixes.submit_all(calls[1:])])

        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(work, range(24)))
        assert found == [
            texts_of([backend.submit(text_call(f"{roots[n % 2]} {n} {k}")) for k in range(4)])
            for n in range(24)
        ]
        assert sum(saving.calls for saving in prefixes.savings) >= 24 * 4 - 2
        backend.check()


# --- savings -----------------------------------------------------------------------------------


def used(prompt_tokens: int, cached_tokens: int, root_tokens: int = 0) -> Completion:
    return Completion((Output("a"),), Usage(prompt_tokens, cached_tokens, 1, root_tokens))


def test_savings_are_the_usage_of_the_calls_of_each_root() -> None:
    answers = [used(100, 90, 80), used(110, 95, 80), used(50, 0), used(30, 20)]
    backend = ScriptedBackend(answers)
    prefixes = Prefixes(backend)
    hint = ForkHint("mine")
    prefixes.submit(text_call("a", hint=hint))
    prefixes.submit(text_call("b", hint=hint))
    prefixes.submit(text_call("nobody's"))
    prefixes.submit(text_call("c", hint=hint, namespace="n"))
    assert prefixes.savings == (Saving("mine", 2, 210, 185, 160), Saving("mine", 1, 30, 20))
    ends = [
        "mine               2 calls        185 of       210 prompt tokens cached (88%),       160",
        "mine               1 calls         20 of        30 prompt tokens cached (67%),         0",
        "2 roots            3 calls        205 of       240 prompt tokens cached (85%),       160",
    ]
    assert prefixes.report().splitlines() == [f"{end} of the root" for end in ends]
    usages = [answer.usage for answer in (answers[0], answers[1], answers[3])]
    assert [it.usage for it in prefixes.trace] == usages
    assert [(it.root, it.namespace) for it in prefixes.trace] == [
        ("mine", ""),
        ("mine", ""),
        ("mine", "n"),
    ]
    backend.close()


def test_a_hint_saves_what_its_root_has_and_no_more() -> None:
    backend, _ = start()
    with backend:
        prefixes = Prefixes(backend)
        root = long_text("root")
        hint = prefixes.plant((Text(root),), branches=3)
        replies = [prefixes.submit(text_call(f"{root} {n}", hint=hint)) for n in range(3)]
        usages = [reply.result(60).usage for reply in replies]
        assert [it.root_tokens for it in usages] == [len(root)] * 3
        late = prefixes.submit(text_call(f"{root} 0", hint=hint)).result(60).usage
        assert (late.root_tokens, late.cached_tokens) == (0, len(root) + 1)  # the pin has ended
        other = prefixes.submit(text_call(f"{root} 1", hint=ForkHint("nobody's"))).result(60).usage
        assert (other.root_tokens, other.cached_tokens) == (0, len(root) + 1)
        found = prefixes.trace
        assert [it.is_ahead for it in found] == [True, False, False, False, False, False]
        assert found[0].usage.prompt_tokens == len(root)
        assert [it.usage for it in found[1:4]] == usages
        assert backend.info().counters["root_tokens"] == 3 * len(root)
        backend.check()


def test_without_hints_none_saves_anything() -> None:
    backend, _ = start(hints=False)
    with backend:
        prefixes = Prefixes(backend)
        root = long_text("root")
        for n in range(3):
            prefixes.submit(text_call(f"{root} {n}", hint=ForkHint("root", prefix_end=1))).result(
                60
            )
        assert [it.usage.root_tokens for it in prefixes.trace] == [0, 0, 0]
        assert prefixes.trace[2].usage.cached_tokens >= len(root)


def test_nothing_saved_is_reported_as_that(scripted: ScriptedBackend) -> None:
    assert Prefixes(scripted).report() == (
        "0 roots            0 calls          0 of         0 prompt tokens cached (0%),"
        "         0 of the root"
    )


def test_savings_and_what_was_seen_are_bounded(
    scripted: ScriptedBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prefix, "MOST_CHARS", 100_000)
    prefixes = Prefixes(scripted)
    assert MOST_TRACED < MOST_ROOTS
    for number in range(MOST_ROOTS + 10):
        prefixes.submit(text_call("a", hint=ForkHint(f"root {number}")))
    assert len(prefixes.savings) == MOST_ROOTS
    assert prefixes.savings[-1].root == prefixes.trace[-1].root == f"root {MOST_ROOTS + 9}"
    assert len(prefixes.trace) == MOST_TRACED
    for number in range(1000):
        prefixes.submit(text_call(f"{number} {long_text('text', 1000)}"))
        assert prefixes.num_chars <= 100_000
