"""Fork and join: branches that share what their parent wrote (paper, sections 2 and 3).

Both are steps of the parent's stream: a branch may be used at once, and starts when its parent has
come to the fork.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

from ....core.api.protocol import ForkHint, InvalidCall, Sampling
from ....core.common.harmless import hint_errors
from .hints import root_of
from .interpreter import Feed, Interpreter
from .stream import countdown

_log = logging.getLogger(__name__)
JoinMode: TypeAlias = Literal["gather_variable", "concate_and_append"]


class Branch:
    """One branch: an interpreter, and where in its transcript it left its parent's."""

    def __init__(self, parent: Interpreter, hint: ForkHint | None) -> None:
        self.interpreter = Interpreter(parent.context, hint, is_born=False)
        self.start = 0
        with parent.stream.lock:
            self._awaited = self.interpreter.variables.await_from(parent.variables)

    def begin(self, parent: Interpreter) -> None:
        """Take over what the parent has written and set, and run."""
        branch = self.interpreter
        parent.context.spend(parent.transcript.num_chars())
        self.start = len(parent.transcript)
        branch.transcript.extend(parent.transcript.since(0))
        branch.feeds.append(Feed(parent.transcript.text()))
        with branch.stream.lock:
            branch.variables.inherit(self._awaited, parent.variables)
        branch.stream.notify()
        branch.stream.resume()


def fork(
    parent: Interpreter, num: int, num_calls: int | None = None, root: ForkHint | None = None
) -> list[Branch]:
    """`num` branches that go on where `parent` is once it has run what was submitted so far. What
    stands for an interpreter while a program is traced forks by itself.

    The shared prefix is sent first, as a call that only plants it; each branch's first call names
    the same root. num_calls: branches that make a call; None: all may. root: the hint of the shared
    prefix, where the calls that name it are known by themselves. Raises InvalidCall unless
    num >= 1.
    """
    if not isinstance(parent, Interpreter):
        return parent.fork(num)
    if type(num) is not int or num < 1:
        raise InvalidCall("fork", num, "an integer >= 1")
    parent.stream.check_open()
    num_expected = num if num_calls is None else num_calls
    is_shared = num_expected > 1 and parent.context.settings.hints
    own = root_of(num_expected, parent.context) if is_shared and root is None else None
    branches = [Branch(parent, own) for _ in range(num)]
    hint = own if root is None else root

    def begin() -> bool:
        if hint is not None:
            plant(parent, hint)
        for branch in branches:
            branch.begin(parent)
        return True

    def skip(error: BaseException) -> None:
        for branch in branches:
            branch.interpreter.stream.fail(error)

    parent.submit_step(begin, skip=skip)
    return branches


def plant(parent: Interpreter, hint: ForkHint) -> None:
    """Send the prefix ahead of the branches, where the backend can use it.

    An error is logged and counted, not raised: a hint changes no answer.
    """
    with hint_errors.suppress(_log, "planting the prefix of a fork"):
        backend = parent.context.settings.find()
        prompt = parent.prompt(backend)
        if len(parent.transcript) and "hints" in parent.context.info(backend).features:
            backend.submit(parent.context.call(prompt, Sampling(max_tokens=0), hint=hint))


def join(parent: Interpreter, branches: Sequence[Branch], mode: JoinMode) -> None:
    """Let `parent` wait, in its stream, for all branches, and take over what they did, as
    `ForkGroup.join` says. A branch takes nothing more from here on; the first one's error becomes
    the parent's."""
    if not isinstance(parent, Interpreter):
        parent.join(branches, mode)
        return
    if mode not in ("gather_variable", "concate_and_append"):
        raise InvalidCall("mode", mode, "gather_variable | concate_and_append")
    names = _own_names(branches) if mode == "gather_variable" else []
    take = gather if mode == "gather_variable" else append
    for branch in branches:
        branch.interpreter.stream.close()

    def settle() -> None:
        streams = [branch.interpreter.stream for branch in branches]
        for stream in streams:
            stream.is_error_seen = True
        error = next((stream.error for stream in streams if stream.error is not None), None)
        try:
            if error is None:
                with parent.stream.lock:
                    take(parent, branches)
        except Exception as failure:
            error = failure
        parent.stream.resume() if error is None else parent.stream.fail(error)

    def wait() -> bool:
        arrive = countdown(len(branches), settle)
        for branch in branches:
            branch.interpreter.stream.when_idle(lambda: arrive(None))
        return False

    parent.submit_step(wait, names)


def gather(parent: Interpreter, branches: Sequence[Branch]) -> None:
    """Set the parent's variables to the lists of the branches'."""
    for name in _own_names(branches):
        owners = [branch.interpreter.variables for branch in branches]
        values = [own.values.get(name) if name in own.own else None for own in owners]
        meta = [own.meta.get(name) if name in own.own else None for own in owners]
        parent.variables.put(name, values, meta)


def append(parent: Interpreter, branches: Sequence[Branch]) -> None:
    """Append what the branches wrote."""
    for branch in branches:
        start, written = branch.start, branch.interpreter.transcript
        parent.context.spend(written.num_chars(start))
        parent.transcript.extend(written.since(start))
        parent.feeds.append(Feed(written.text(start)))


def _own_names(branches: Sequence[Branch]) -> dict[str, Any]:
    return {name: None for branch in branches for name in branch.interpreter.variables.own}
