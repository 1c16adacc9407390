"""Random programs of requests against one server, and a reference of what must hold.

A program mixes calls, streams, aborts, hints, pinned prefixes, cache resets and keys. What the
reference knows: a greedy answer depends on its prompt alone; a key ends its own requests and no
other's; only an admin resets the cache; at the end nothing is held. Hypothesis makes the programs,
and shortens one that fails.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPResponse
from typing import Any

from forkroot.benchmarks.campaign.legal import COMPLETION
from forkroot.benchmarks.campaign.runner import Bars, Plan, Skipped, Verdict
from forkroot.benchmarks.server.server_child import Served, serving

KEYS, ADMIN_KEY = ("key-one", "key-two"), "admin-key"
PROMPTS = ("The capital of France is", "Once upon a time", "a b c d e f g " * 20, "Hello")
LENGTHS = (1, 7, 60)
_STEPS, _EXAMPLES = 25, 4  # of one round
_SECONDS_QUIET = 10.0


@dataclass
class Stream:
    """A stream that is being read. is_ended: its own key has ended it."""

    key: int
    prompt: str
    name: str
    line: HTTPConnection
    response: HTTPResponse
    text: str = ""
    is_ended: bool = False

    def events(self) -> Iterator[dict[str, Any]]:
        """What comes, to the end. Raises OSError where nothing comes for long."""
        for line in self.response:
            if line.startswith(b"data: {"):
                yield json.loads(line[6:])


@dataclass
class Reference:
    """A server, and what is known of it. texts: greedy answers by prompt and length."""

    served: Served
    texts: dict[tuple[str, int], str] = field(default_factory=dict)
    streams: list[Stream] = field(default_factory=list)
    prefixes: list[tuple[int, str]] = field(default_factory=list)
    steps: int = 0
    num_streams: int = 0

    def send(self, method: str, path: str, body: Any, key: str) -> tuple[int, Any]:
        """A request with this key: status and JSON."""
        line = HTTPConnection(*self.served.address, timeout=30)
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
        try:
            line.request(method, path, json.dumps(body), headers)
            response = line.getresponse()
            data = response.read()
            return response.status, json.loads(data or b"null")
        finally:
            line.close()

    def complete(self, key: int, prompt: str, num: int, **more: Any) -> None:
        """A greedy call is answered as ever."""
        body = {"prompt": prompt, "max_tokens": num, "temperature": 0, "ignore_eos": True, **more}
        status, found = self.send("POST", COMPLETION, body, KEYS[key])
        assert status == 200, found
        text = found["choices"][0]["text"]
        assert self.texts.setdefault((prompt, num), text) == text, (prompt, num, text)

    def constrain(self, key: int, low: int) -> None:
        """A pattern holds."""
        pattern = f"[a-z]{{{low},{low + 3}}}!"
        body = {"prompt": "Word:", "regex": pattern, "max_tokens": 40, "temperature": 1}
        status, found = self.send("POST", COMPLETION, body, KEYS[key])
        assert status == 200, found
        assert re.fullmatch(pattern, found["choices"][0]["text"]), found

    def open(self, key: int, prompt: str) -> None:
        """A stream whose first text has come."""
        self.num_streams += 1
        name = f"stream-{self.num_streams}"
        line = HTTPConnection(*self.served.address, timeout=30)
        headers = {
            "Content-Type": "application/json",
            "Authorization": f"Bearer {KEYS[key]}",
            "X-Request-Id": name,
        }
        body = {"prompt": prompt, "max_tokens": 300, "temperature": 0, "ignore_eos": True}
        line.request("POST", COMPLETION, json.dumps({**body, "stream": True}), headers)
        response = line.getresponse()
        assert response.status == 200
        stream = Stream(key, prompt, name, line, response)
        stream.text += next(stream.events())["choices"][0]["text"]
        self.streams.append(stream)

    def finish(self, number: int) -> None:
        """A stream that nobody has ended is whole, and answered as ever."""
        stream = self.streams.pop(number % len(self.streams))
        finish = None
        for event in stream.events():
            assert "error" not in event or stream.is_ended, event
            for choice in event.get("choices", ()):
                stream.text += choice["text"]
                finish = choice["finish_reason"] or finish
        stream.line.close()
        if not stream.is_ended:
            assert finish == "length", finish
            known = self.texts.setdefault((stream.prompt, 300), stream.text)
            assert known == stream.text, (stream.prompt, known, stream.text)

    def drop(self, number: int) -> None:
        """Close a stream."""
        self.streams.pop(number % len(self.streams)).line.close()

    def abort(self, number: int, key: int, ends_all: bool) -> None:
        """End a stream by its name, or all of a key: those of another key go on."""
        stream = self.streams[number % len(self.streams)]
        body = {"abort_all": True} if ends_all else {"rid": stream.name}
        status, found = self.send("POST", "/abort_request", body, KEYS[key])
        assert status < 500, found
        for it in self.streams:
            it.is_ended |= it.key == key and (ends_all or it is stream)

    def pin(self, key: int, prompt: str) -> None:
        """Pin a prefix."""
        status, found = self.send("POST", "/v1/prefixes", {"prompt": prompt}, KEYS[key])
        assert status == 200, found
        self.prefixes.append((key, found["id"]))

    def release(self, number: int, key: int) -> None:
        """A key releases its own prefixes, and no other's."""
        owner, name = self.prefixes[number % len(self.prefixes)]
        status, found = self.send("DELETE", f"/v1/prefixes/{name}", None, KEYS[key])
        assert (status < 300) == (key == owner), (status, found)
        if key == owner:
            self.prefixes.remove((owner, name))

    def reset(self, key: str) -> None:
        """Only an admin resets the cache."""
        status, found = self.send("POST", "/flush_cache", None, key)
        assert status == (200 if key == ADMIN_KEY else 403), found

    def refuse(self, key: str, body: Any) -> None:
        """Neither a wrong key nor a wrong body reaches the engine."""
        status, found = self.send("POST", COMPLETION, body, key)
        assert status == (400 if key in KEYS else 401), found

    def check(self) -> None:
        """The server is alive."""
        self.steps += 1
        assert self.served.ask("GET", "/health")[0] == 200

    def end(self) -> None:
        """Close and release all; then nothing is held."""
        while self.streams:
            self.drop(0)
        while self.prefixes:
            self.release(0, self.prefixes[0][0])
        assert self.served.quiet_after(_SECONDS_QUIET) is not None, self.served.metrics()
        found = self.served.metrics()
        assert found["slots"] == found["free_slots"] + found["cached_slots"], found


def run(plan: Plan) -> Verdict:
    """Programs until the time is over. Raises Skipped without hypothesis."""
    try:
        import hypothesis
        from hypothesis.stateful import run_state_machine_as_test
    except ModuleNotFoundError:
        raise Skipped("needs hypothesis: `pip install hypothesis`") from None
    bars, end, rounds, fault = Bars(), time.monotonic() + plan.seconds, 0, ""
    keys = [word for key in KEYS for word in ("--api-key", key)]
    settings = hypothesis.settings(
        max_examples=_EXAMPLES,
        stateful_step_count=_STEPS,
        database=None,
        deadline=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    options = ("--set", "dtype=float32", *keys)
    with serving(*options, admin_key=ADMIN_KEY, num_slots=16_384) as served:
        reference = Reference(served)
        while not fault and (rounds == 0 or time.monotonic() < end):
            machine = hypothesis.seed(plan.seed * 1000 + rounds)(machine_of(reference))
            rounds += 1
            try:
                run_state_machine_as_test(machine, settings=settings)
            except Exception as error:
                notes = " ".join(getattr(error, "__notes__", ()))
                fault = f"{type(error).__name__}: {error} {notes}"[:1500]
    bars.note(rounds=rounds, steps=reference.steps, streams=reference.num_streams)
    bars.equal("fault", fault, "")
    return bars.verdict("model")


def machine_of(reference: Reference) -> Any:
    """The programs: a rule for each request."""
    from hypothesis import strategies as st
    from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

    key, number = st.integers(0, 1), st.integers(0, 99)
    prompt, length = st.sampled_from(PROMPTS), st.sampled_from(LENGTHS)
    has_streams = precondition(lambda self: bool(reference.streams))
    has_prefixes = precondition(lambda self: bool(reference.prefixes))
    wrong = st.sampled_from(({}, {"prompt": 5}, {"prompt": "a", "n": -1}, []))

    class Machine(RuleBasedStateMachine):
        """One program."""

        def __init__(self) -> None:
            super().__init__()
            with suppress(AssertionError):  # of the program before, which has reported it
                reference.end()

        complete = rule(key=key, prompt=prompt, num=length)(
            lambda self, key, prompt, num: reference.complete(key, prompt, num)
        )
        hint = rule(key=key, prompt=prompt, num=length, root=st.sampled_from("ab"))(
            lambda self, key, prompt, num, root: reference.complete(
                key, prompt, num, forkroot={"version": 1, "root": root, "branches": 2}
            )
        )
        constrain = rule(key=key, low=st.integers(1, 4))(
            lambda self, key, low: reference.constrain(key, low)
        )
        open = rule(key=key, prompt=prompt)(lambda self, key, prompt: reference.open(key, prompt))
        finish = has_streams(rule(number=number)(lambda self, number: reference.finish(number)))
        drop = has_streams(rule(number=number)(lambda self, number: reference.drop(number)))
        abort = has_streams(
            rule(number=number, key=key, ends_all=st.booleans())(
                lambda self, number, key, ends_all: reference.abort(number, key, ends_all)
            )
        )
        pin = rule(key=key, prompt=prompt)(lambda self, key, prompt: reference.pin(key, prompt))
        release = has_prefixes(
            rule(number=number, key=key)(lambda self, number, key: reference.release(number, key))
        )
        reset = rule(key=st.sampled_from((*KEYS, ADMIN_KEY)))(
            lambda self, key: reference.reset(key)
        )
        refuse = rule(key=st.sampled_from((*KEYS, "nobody's")), body=wrong)(
            lambda self, key, body: reference.refuse(key, body)
        )
        check = invariant()(lambda self: reference.check())

        def teardown(self) -> None:
            reference.end()

    return Machine
