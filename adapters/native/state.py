"""What a program holds in its hands: a state, and the group of states that a fork makes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NoReturn, Self

from ...core.api.owner import not_picklable
from ...core.api.protocol import InvalidCall
from .interpreter.forks import Branch, JoinMode, fork, join
from .interpreter.interpreter import Interpreter
from .interpreter.reader import Reader
from .language.expressions import (
    Expression,
    RoleBegin,
    RoleEnd,
    ScopeBegin,
    ScopeEnd,
    as_expression,
)
from .primitives import role


class ProgramState(Reader):
    """A prompt that grows by `state += ...`, which never waits; `state[name]` does.

    An error of a primitive skips all later ones of the state, and is raised wherever the state is
    read, forked into branches that are read, or joined; nothing waits for what will not come.
    """

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise not_picklable(self, "its text(), its messages(), and the values of its variables")

    def __iadd__(self, value: Expression | str) -> Self:
        self._interpreter.submit(as_expression(value))
        return self

    def extend(self, value: Expression | str) -> Self:
        """As `state += value`."""
        return self.__iadd__(value)

    def fork(self, num: int = 1) -> ForkGroup:
        """Branches that go on from here, each by itself; does not wait."""
        return ForkGroup(self._interpreter, fork(self._interpreter, num), type(self))

    @contextmanager
    def copy(self) -> Iterator[Self]:
        """A state to try something out: what happens to it does not come back."""
        (branch,) = fork(self._interpreter, 1)
        try:
            yield type(self)(branch.interpreter)
        finally:
            branch.interpreter.stream.close()

    @contextmanager
    def var_scope(self, name: str) -> Iterator[None]:
        """All text that is appended inside becomes variable `name`."""
        self._interpreter.submit(ScopeBegin(name))
        try:
            yield
        finally:
            self._interpreter.submit(ScopeEnd(name))

    def role(
        self, name: str, content: Expression | str | None = None
    ) -> AbstractContextManager[None]:
        """Append a message of any role: `content`, or what is appended inside `with`."""
        if content is None:
            return self._role(name)
        self._interpreter.submit(role(name, content))
        return nullcontext()

    def system(self, content: Expression | str | None = None) -> AbstractContextManager[None]:
        """As `role("system", ...)`."""
        return self.role("system", content)

    def user(self, content: Expression | str | None = None) -> AbstractContextManager[None]:
        """As `role("user", ...)`."""
        return self.role("user", content)

    def assistant(self, content: Expression | str | None = None) -> AbstractContextManager[None]:
        """As `role("assistant", ...)`."""
        return self.role("assistant", content)

    @contextmanager
    def _role(self, name: str) -> Iterator[None]:
        self._interpreter.submit(RoleBegin(name))
        try:
            yield
        finally:
            self._interpreter.submit(RoleEnd())


class ForkGroup:
    """The branches of one fork. `group += x` appends to each: one expression or text for all, a
    list of one for each, or a function that is called with each branch's index."""

    def __init__(
        self,
        parent: Interpreter,
        branches: Sequence[Branch],
        state_type: type[ProgramState] = ProgramState,
    ) -> None:
        self._parent = parent
        self._branches = tuple(branches)
        self._states = tuple(state_type(branch.interpreter) for branch in branches)

    def __len__(self) -> int:
        return len(self._states)

    def __iter__(self) -> Iterator[ProgramState]:
        return iter(self._states)

    def __getitem__(self, index: int) -> ProgramState:
        return self._states[index]

    def __setitem__(self, index: int, state: ProgramState) -> None:
        """For `group[i] += x`, which ends in an assignment; no other state may be put there."""
        if state is not self._states[index]:
            raise InvalidCall(f"group[{index}]", state, "the branch that is already there")

    def __iadd__(
        self,
        value: Expression | str | Sequence[Expression | str] | Callable[[int], Expression | str],
    ) -> ForkGroup:
        for state, part in zip(self._states, self._parts(value), strict=True):
            state += part
        return self

    def join(self, mode: JoinMode = "gather_variable") -> None:
        """End the branches and take over what they did; does not wait.

        gather_variable: each variable set in a branch becomes a list in branch order, None where a
        branch did not set it. concate_and_append: what the branches wrote is appended in order.
        """
        join(self._parent, self._branches, mode)

    def _parts(self, value: Any) -> list[Expression | str]:
        if isinstance(value, Expression | str):
            return [value] * len(self)
        if callable(value):
            return [value(index) for index in range(len(self))]
        if not isinstance(value, list | tuple) or len(value) != len(self):
            raise InvalidCall("group", value, f"an expression, a list of {len(self)}, a function")
        return list(value)
