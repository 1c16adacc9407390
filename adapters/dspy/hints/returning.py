"""Programs that repeat a prompt: an agent's next step, another attempt.

Between two such calls a tool runs or a judge judges, and other programs call meanwhile. A run is
one call of an outermost module; prompts that its calls repeat stay pinned until it ends.

While a tool works, the known part of the agent's next prompt is computed: all of the next prompt of
`dspy.ReAct` but what the tool finds goes on from the last one with the thought, the tool and its
arguments. So does the trajectory of the prompt that comes at the end.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Mapping
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, replace
from typing import Any

import dspy

from ....core.api.protocol import Call, Chat, ForkHint, Message, Reply, Text
from ....core.common.harmless import hint_errors
from ...hints.courses import Course, Courses
from ...hints.prefix import LEAST, PINNED_FOR, Prefixes
from ...hints.seen import common_len
from ..patterns.agents import ARGUMENTS, NAME
from .running import Formatted

FINAL = "dspy-final"
_log = logging.getLogger(__name__)
_THOUGHT, _SO_FAR = "next_thought", "trajectory"
_NUMBER = re.compile(r"\btool_name_(\d+)\b")
AHEAD_AFTER = 0.05  # seconds for which a tool has worked when something is sent ahead


@dataclass(frozen=True, slots=True)
class Step:
    """An agent's answer, and what its prompt was made of. found: what the tool before gave."""

    formatted: Formatted
    answer: Mapping[str, Any]
    found: Any = None

    @property
    def tool(self) -> Any:
        """The name of the tool that it wants."""
        return self.answer.get(NAME)

    def next_chats(self) -> tuple[Chat | None, Chat | None]:
        """The beginnings of its next prompt, and of the last one, which extracts the result; None
        for what is not known. Calls DSPy's adapters."""
        so_far, agent = self.formatted.inputs.get(_SO_FAR), self.formatted.agent
        if not isinstance(so_far, str) or agent is None or self.tool in (None, "finish"):
            return None, None
        with dspy.context(callbacks=[]):
            trajectory = self._trajectory(so_far)
            following = self._chat(self.formatted.signature, self.formatted.demos, trajectory)
            last = agent.extract.predict
            return following, self._chat(last.signature, last.demos, trajectory)

    def _chat(self, signature: Any, demos: Any, trajectory: str) -> Chat | None:
        """A prompt up to the end of its trajectory; None where it is more than texts."""
        inputs = {**self.formatted.inputs, _SO_FAR: trajectory}
        messages = self.formatted.adapter.format(signature, demos, inputs)
        contents = [message["content"] for message in messages]
        if not all(isinstance(it, str) for it in contents) or trajectory not in contents[-1]:
            return None
        contents[-1] = contents[-1][: contents[-1].rindex(trajectory) + len(trajectory)]
        pairs = zip(messages, contents, strict=True)
        turns = tuple(Message(message["role"], (Text(content),)) for message, content in pairs)
        return Chat(turns, open_last=True)

    def _trajectory(self, so_far: str) -> str:
        """With this step. What a trajectory ends in loses its blanks, until more follows."""
        number = 1 + max((int(number_text) for number_text in _NUMBER.findall(so_far)), default=-1)
        fields = {
            f"thought_{number}": self.answer.get(_THOUGHT),
            f"tool_name_{number}": self.tool,
            f"tool_args_{number}": self.answer.get(ARGUMENTS),
        }
        if not so_far:
            return _render(fields)
        before = {f"observation_{number - 1}": self.found}
        ending = _render(before)
        if so_far.endswith(ending):
            return so_far.removesuffix(ending) + _render(before | fields)
        return f"{so_far}\n\n{_render(fields)}"


@dataclass(frozen=True, slots=True)
class _PinnedPrompt:
    """A prompt that is pinned, where there is room, and surely until a second of the clock. text:
    behind its root."""

    prefixes: Prefixes
    text: str
    until: float


class Run:
    """One run of a program. call_id: DSPy's name of it. course: its calls. step: what its agent
    wants done next."""

    def __init__(self, call_id: str, course: Course) -> None:
        self.call_id = call_id
        self.course = course
        self.step: Step | None = None
        self._found: Any = None
        self._latest: tuple[str, str] | None = None
        self._timers: dict[str, threading.Timer] = {}
        self._last: dict[tuple[str, str], str] = {}
        self._pinned: dict[tuple[str, str], _PinnedPrompt] = {}

    def comes_back(self, call: Call) -> bool:
        """Whether the run's call before this one, of the same root, went on behind the root as this
        one does."""
        key, text = _key(call), _rest(call)
        before = self._last.get(key, "")
        self._last[key] = text
        return common_len(before, text) >= LEAST

    def keep(self, reply: Reply, prefixes: Prefixes) -> None:
        """Pin a call's prompt until the run ends, or a later one of the same root is kept."""
        key, text, now = _key(reply.call), _rest(reply.call), time.monotonic()
        pinned = self._pinned.get(key)
        if pinned is not None and pinned.text == text and now < pinned.until:
            return
        is_pinned = prefixes.keep(reply, self._name(key[1]))
        self._pinned[key] = _PinnedPrompt(prefixes, text, now + PINNED_FOR if is_pinned else now)
        self._latest = key if is_pinned else None

    def tool_begins(self, call_id: str, name: str) -> None:
        """A tool is called; if it takes its time and the agent's last prompt is kept, the next one
        is computed meanwhile, as far as it is known."""
        step, self.step = self.step, None
        if step is None or step.tool != name or self._latest is None:
            return
        action = self._send_ahead, replace(step, found=self._found), self._latest
        timer = threading.Timer(AHEAD_AFTER, copy_context().run, action)
        timer.daemon = True
        self._timers[call_id] = timer
        timer.start()

    def tool_ends(self, call_id: str, found: Any) -> None:
        """Its work is done: what comes next is all known."""
        self._found = found
        timer = self._timers.pop(call_id, None)
        if timer is not None:
            timer.cancel()

    def _send_ahead(self, step: Step, key: tuple[str, str]) -> None:
        with hint_errors.suppress(_log, "computing an agent's next prompt"):
            (namespace, root), prefixes = key, self._pinned[key].prefixes
            following, final = step.next_chats()
            if following is not None:
                prefixes.send_on(following, self._name(root), namespace=namespace)
            name, beside = self._name(FINAL), self._name(root)
            if final is not None and prefixes.send_on(final, name, beside, namespace):
                self._pinned[namespace, FINAL] = _PinnedPrompt(prefixes, "", 0.0)

    def end(self) -> None:
        """Unpin all that is kept."""
        for (namespace, root), pinned in [*self._pinned.items()]:
            pinned.prefixes.release(ForkHint(self._name(root)), namespace)
        self._pinned.clear()
        self.course.end()

    def _name(self, root: str) -> str:
        return f"{root}-{self.call_id}"


_run: ContextVar[Run | None] = ContextVar("forkroot_dspy_run", default=None)


def current_run() -> Run | None:
    """The run that goes on here."""
    return _run.get()


def run_begins(call_id: str, courses: Courses, module: object, *, is_outermost: bool) -> None:
    """A module is called; inside a run that goes on here it is part of that."""
    if is_outermost or _run.get() is None:
        kind = type(module).__module__, type(module).__qualname__
        _run.set(Run(call_id, courses.begin(kind)))


def run_ends(call_id: str) -> None:
    """A module has ended; if the run began with it, that has, too."""
    run = _run.get()
    if run is not None and run.call_id == call_id:
        _run.set(None)
        run.end()


def _key(call: Call) -> tuple[str, str]:
    assert call.hint is not None
    return call.namespace, call.hint.root


def _rest(call: Call) -> str:
    """The texts behind the root."""
    if not isinstance(call.prompt, Chat) or call.hint is None:
        return ""
    messages: tuple[Message, ...] = call.prompt.messages[call.hint.prefix_end or 0 :]
    return "".join(
        part.text for message in messages for part in message.content if isinstance(part, Text)
    )


def _render(fields: Mapping[str, Any]) -> str:
    """As `dspy.ReAct` writes a trajectory."""
    adapter = dspy.settings.adapter or dspy.ChatAdapter()
    signature = dspy.Signature(f"{', '.join(fields)} -> x")
    text: str = adapter.format_user_message_content(signature, fields)
    return text
