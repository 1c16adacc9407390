"""Whatever happens to its replicas, every call of a router ends exactly once."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from forkroot.adapters.router.router import Router
from forkroot.adapters.testing import ScriptedBackend
from forkroot.core.api.protocol import BackendClosed, Call, Sampling, Text

NEVER = 1e6
ANSWER = "an answer"


class RouterMachine(RuleBasedStateMachine):
    """A router over scripted replicas that hold their calls until they are released."""

    @initialize(policy=st.sampled_from(["affinity", "round-robin", "power-of-two"]))
    def start(self, policy: str) -> None:
        self.backends = {"0": self._held(), "1": self._held()}
        self.router = Router(
            dict(self.backends), policy, heartbeat=NEVER, hang_timeout=NEVER, patience=NEVER
        )
        self.ends: list[int] = []
        self.replies: list[Any] = []
        self.names = 2

    def _held(self) -> ScriptedBackend:
        return ScriptedBackend(ANSWER, is_held=True)

    @rule(root=st.sampled_from("abc"), stream=st.booleans(), plants=st.booleans())
    def submit(self, root: str, stream: bool, plants: bool) -> None:
        sampling = Sampling(max_tokens=0 if plants else 16)
        reply = self.router.submit(Call((Text(root * 200),), sampling, stream=stream))
        number = len(self.ends)
        self.ends.append(0)
        self.replies.append(reply)

        def end(_: object) -> None:
            self.ends[number] += 1

        reply.when_done(end)

    @rule(data=st.data())
    def release(self, data: Any) -> None:
        backend = self.backends[data.draw(st.sampled_from(sorted(self.backends)))]
        open_ones = [i for i, reply in enumerate(backend.replies) if not reply.done()]
        if open_ones:
            backend.release(data.draw(st.sampled_from(open_ones)))

    @rule(data=st.data())
    def cancel(self, data: Any) -> None:
        if self.replies:
            data.draw(st.sampled_from(self.replies)).cancel()

    @rule(data=st.data())
    def kill(self, data: Any) -> None:
        self.backends[data.draw(st.sampled_from(sorted(self.backends)))].close()

    @rule()
    def add(self) -> None:
        if len(self.backends) < 5:
            name = str(self.names)
            self.names += 1
            self.backends[name] = self._held()
            self.router.add(self.backends[name], name)

    @rule(data=st.data(), is_closed=st.booleans())
    def remove(self, data: Any, is_closed: bool) -> None:
        if len(self.backends) > 1:
            name = data.draw(st.sampled_from(sorted(self.backends)))
            backend = self.router.remove(name)
            assert backend is self.backends.pop(name)
            if is_closed:
                backend.close()
            else:
                self._release_all(backend)

    @rule(data=st.data(), resumes=st.booleans())
    def drain(self, data: Any, resumes: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.backends)))
        self._release_all(self.backends[name])
        self.router.drain(name, 5)
        if resumes:
            self.router.resume(name)

    @rule()
    def look(self) -> None:
        self.router.tick()

    @invariant()
    def no_call_ends_twice(self) -> None:
        if hasattr(self, "router"):
            assert all(count <= 1 for count in self.ends)
            self.router.check()

    def _release_all(self, backend: Any) -> None:
        for index, reply in enumerate(backend.replies):
            if not reply.done():
                backend.release(index)

    def teardown(self) -> None:
        if not hasattr(self, "router"):
            return
        self.router.add(ScriptedBackend(ANSWER), "last")
        for backend in self.backends.values():
            self._release_all(backend)
        self.router.tick()
        assert all(reply.done() for reply in self.replies)
        self.router.check()
        assert not any(view.open for view in self.router.replicas)
        self.router.close()
        assert self.ends == [1] * len(self.ends)
        for reply in self.replies:
            error = reply.error()
            assert error is None or isinstance(error, BackendClosed)
            if error is None and reply.call.sampling.max_tokens:
                output = reply.result(0).outputs[0]
                assert output.text == ANSWER or output.finish_reason == "abort"


TestRouter = RouterMachine.TestCase
TestRouter.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)
