"""States and groups of branches with the methods that they have in SGLang's frontend."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from operator import index as as_index
from typing import Any

from ...core.api.protocol import InvalidCall, ProgramError
from ..native.interpreter.forks import fork
from ..native.state import ForkGroup, ProgramState
from .meta import Text, as_sglang, chunk_meta, texts_of


class State(ProgramState):
    """As the native state, with SGLang's spellings; meta information is in SGLang's form."""

    def __repr__(self) -> str:
        """The text, or the error that ended the state; waits for what was submitted."""
        error = self.error()
        return f"ProgramState({self.text() if error is None else repr(error)})"

    @property
    def stream_executor(self) -> State:
        """This state: it has the methods that programs call on SGLang's executor."""
        return self

    def get_meta_info(self, name: str | None = None) -> Any:
        """Tokens used, reason of the end, log-probabilities: see `meta.py`. Waits as `get_var`.
        Without a name: what the calls of the whole run used together."""
        if name is None:
            return super().get_meta_info()
        return as_sglang(super().get_meta_info(name), self._texts())

    def set_var(self, name: str, value: Any) -> None:
        """Set a variable at once, also when the program has ended."""
        interpreter = self._interpreter
        with interpreter.stream.lock:
            interpreter.variables.assign(name, value)
        interpreter.stream.notify()

    def __setitem__(self, name: str, value: Any) -> None:
        self.set_var(name, value)

    def fork(self, size: int = 1, position_ids_offset: Sequence[int] | None = None) -> Group:
        """Branches that go on from here, each by itself; does not wait.

        position_ids_offset: accepted and without effect, as in SGLang: keys and values of a prompt
        are computed at the positions that its tokens have.
        """
        offsets: Any = position_ids_offset
        is_list = isinstance(offsets, Sequence) and all(isinstance(it, int) for it in offsets)
        if offsets is not None and not is_list:
            raise InvalidCall("position_ids_offset", offsets, "a list of integers, or None")
        try:
            number = as_index(size)
        except TypeError:
            number = size  # the native fork raises the error
        branches = fork(self._interpreter, number)
        group = Group(self._interpreter, branches, type(self))
        group.src_state = self
        return group

    @contextmanager
    def copy(self, position_ids_offset: Sequence[int] | None = None) -> Iterator[State]:
        """A state to try something out; position_ids_offset as in `fork`. Its variables that this
        state does not have are there afterwards, as after `join`."""
        group = self.fork(1, position_ids_offset)
        try:
            yield group[0]
        finally:
            group.join()

    def text_iter(self, var_name: str | None = None) -> Iterator[str]:
        """The text, or a variable's, piece by piece while it comes in."""
        return super().text_iter(var_name)

    def text_async_iter(
        self, var_name: str | None = None, return_meta_data: bool = False
    ) -> AsyncIterator[Any]:
        """As `text_iter`, for asyncio. return_meta_data: pairs of a piece and its meta information
        so far: number of tokens, and the log-probabilities of the new ones."""
        if not return_meta_data:
            return super().text_async_iter(var_name)
        if var_name is None:
            raise InvalidCall("return_meta_data", True, "False without var_name")
        return self._with_meta(var_name)

    async def _with_meta(self, name: str) -> AsyncIterator[tuple[str, Any]]:
        reply = await self._reply_async(name)
        if reply is None:
            raise ProgramError(f"variable {name!r} is not generated: it has no stream")
        texts = self._texts()
        ids = length = 0
        held: list[Any] = []
        async for chunk in reply:
            if chunk.index != 0:
                continue
            ids, length = ids + len(chunk.ids), length + len(chunk.logprobs)
            held += chunk.logprobs
            if chunk.text:
                yield chunk.text, chunk_meta(ids, held, length, texts)
                held = []

    def _texts(self) -> Text:
        return texts_of(self._interpreter.context.settings.find())


class Group(ForkGroup):
    """As the native group. `group["name"]` is the list of the branches' variables of that name."""

    src_state: State

    @property
    def states(self) -> list[ProgramState]:
        """The branches."""
        return list(self)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, str):
            return [state[index] for state in self]
        return super().__getitem__(index)
