"""What a program holds in its hands: a state, and the group of states that a fork makes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
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


class ProgramState:
    """A prompt that grows by `state += ...`, which never waits; `state[name]` does.

    An error of a primitive skips all later ones of the state, and is raised wherever the state is
    read, forked into branches that are read, or joined; nothing waits for what will not come.
    """

    def __init__(self, interpreter: Interpreter, is_outside: bool = False) -> None:
        self._interpreter = interpreter
        self._reader = Reader(interpreter, is_outside)

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise not_picklable(self, "its text(), its messages(), and the values of its variables")

    @property
    def ret_value(self) -> Any:
        """What the program returned, once it has."""
        self._reader.settle()
        return self._interpreter.ret_value

    def __iadd__(self, value: Expression | str) -> Self:
        self._interpreter.submit(as_expression(value))
        return self

    def extend(self, value: Expression | str) -> Self:
        """As `state += value`."""
        return self.__iadd__(value)

    def __getitem__(self, name: str) -> Any:
        return self._reader.fetch(name)[0]

    def __contains__(self, name: str) -> bool:
        return self._reader.has(name)

    def get_var(self, name: str) -> Any:
        """As `state[name]`: waits for the variable. Raises UnsetVariable, which is a KeyError, or
        the error that kept it from being set."""
        return self._reader.fetch(name)[0]

    async def aget_var(self, name: str) -> Any:
        """As `get_var`, for asyncio."""
        return (await self._reader.fetch_async(name))[0]

    def get_meta_info(self, name: str) -> Any:
        """Tokens used, reason of the end, log-probabilities: see `meta.py`. Waits as `get_var`."""
        return self._reader.fetch(name)[1]

    def text(self) -> str:
        """All text so far, without marks of a chat template. Waits for what was submitted."""
        return self._reader.text()

    def messages(self) -> list[dict[str, Any]]:
        """The chat so far, as dictionaries of role and content. Waits for what was submitted."""
        return self._reader.messages()

    def text_iter(self, name: str | None = None) -> Iterator[str]:
        """The text, or a variable's, piece by piece while it comes in."""
        return self._reader.text_iter(name)

    def text_async_iter(self, name: str | None = None) -> AsyncIterator[str]:
        """As `text_iter`, for asyncio."""
        return self._reader.text_async_iter(name)

    def sync(self) -> None:
        """Wait for all that was submitted. Raises the error of the state."""
        self._reader.sync()

    def error(self) -> BaseException | None:
        """Wait for all that was submitted; the error that ended the state, or None."""
        return self._reader.error()

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
