"""`function` of SGLang's frontend: native programs with SGLang's settings and ways to run."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter, signature
from typing import Any, Literal, overload

from ...core.api.protocol import InvalidCall, UnsupportedCall
from ..native.program import Program
from ..native.run import run_part
from ..native.state import ProgramState
from .backends import as_backend, global_config
from .endpoints import Endpoint
from .primitives import check_no_stop_regex, scored_from
from .probe import common_prefix
from .state import State

_log = logging.getLogger(__name__)
_RENAMED = {"max_new_tokens": "max_tokens", "min_new_tokens": "min_tokens"}
_WITHOUT_EFFECT = ("use_thread", "return_text_in_logprobs")
_SHORTEST_PREFIX = 64  # characters; a shorter one is not worth a call of its own


class SglFunction(Program):
    """A program. Keywords of `run` and similar methods that its function does not declare are
    SGLang's settings (`max_new_tokens`, `temperature`, ...) or those of the native language."""

    _state_type = State
    num_api_spec_tokens: int | None = None

    @property
    def func(self) -> Callable[..., Any]:
        """The function of the program."""
        return self.body

    @property
    def bind_arguments(self) -> dict[str, Any]:
        """The arguments that were given by `bind`."""
        return self.bound

    @property
    def arg_names(self) -> list[str]:
        """The names of the function's arguments behind the state."""
        return [entry.name for entry in self._entries()]

    @property
    def arg_defaults(self) -> list[Any]:
        """The defaults of the last of these arguments."""
        defaults = [entry.default for entry in self._entries()]
        return [value for value in defaults if value is not Parameter.empty]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program and return its state.

        Inside another program it runs as a part of it: its calls go on while the other one does, on
        the backend of the other one unless one is given. With a state as its first argument it runs
        on that state, as native programs do.
        """
        if args and issubclass(type(args[0]), ProgramState):  # unknown values have no class
            return super().__call__(*args, **kwargs)
        settings, arguments = self._split(self._translated(kwargs))
        if not settings.stream:
            state = run_part(self.body, settings, args, arguments, self._state_type)
            if state is not None:
                return state
        return self.run(*args, **kwargs)

    def run(self, *args: Any, **kwargs: Any) -> State:
        """Run to the end and return the state; with stream=True at once. Raises what the program
        raised, or the error of a state that was not read."""
        state = super().run(*args, **self._translated(kwargs))
        assert isinstance(state, State)
        if global_config.verbosity >= 2 and not kwargs.get("stream"):
            print(state.text())
        return state

    async def arun(self, *args: Any, **kwargs: Any) -> ProgramState:
        """As `run`, for asyncio. A cancelled task cancels the run."""
        return await super().arun(*args, **self._translated(kwargs))

    def run_batch(  # type: ignore[override]
        self,
        batch_kwargs: Sequence[Mapping[str, Any] | Sequence[Any]],
        *,
        num_threads: int | Literal["auto"] = "auto",
        progress_bar: bool | None = False,
        generator_style: bool = False,
        **settings: Any,
    ) -> Any:
        """Run once for each item: a mapping of arguments by name, or a sequence of positional ones.

        The ended states in the order of the items; with generator_style an iterator of them, each
        as soon as it has ended. An error stays with its item and is raised where its state is read.
        """
        if not isinstance(batch_kwargs, list | tuple):
            raise InvalidCall("batch_kwargs", batch_kwargs, "a list of mappings, or of sequences")
        items = [it if isinstance(it, Mapping) else self._named(it) for it in batch_kwargs]
        own = self._translated(settings)
        raise_errors = bool(own.pop("raise_errors", False))
        if not items:
            return iter(()) if generator_style else []
        batch = self._batch(items, num_threads, own)
        if generator_style:
            return (state for state in batch.iterate(progress_bar))
        return batch.execute(progress_bar, raise_errors)

    def cache(self, backend: Any = None) -> str:
        """Compute the text that every run begins with ahead of the runs, and return it; it is not
        computed where it is short. Raises InvalidCall if no backend is known."""
        prefix = common_prefix(self)
        settings, _ = self._split({} if backend is None else {"backend": as_backend(backend)})
        found = settings.find()
        if len(prefix) > _SHORTEST_PREFIX:
            Endpoint(found).cache_prefix(prefix)
        return prefix

    def trace(self, *, backend: Any = None, **kwargs: Any) -> Any:
        """Raises UnsupportedCall: programs are interpreted, not traced."""
        allowed = "run, run_batch, and cache() for the prefix that all runs have in common"
        raise UnsupportedCall("trace", self.name, allowed)

    def _entries(self) -> list[Parameter]:
        named = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
        entries = list(signature(self.body).parameters.values())[1:]
        return [entry for entry in entries if entry.kind in named]

    def _named(self, values: Any) -> Mapping[str, Any]:
        names = self.arg_names
        num_needed = len(names) - len(self.arg_defaults)
        if not isinstance(values, list | tuple) or not num_needed <= len(values) <= len(names):
            allowed = f"a mapping, or {num_needed} to {len(names)} values of {', '.join(names)}"
            raise InvalidCall("batch_kwargs", values, allowed)
        return dict(zip(names, values, strict=False))

    def _translated(self, keywords: Mapping[str, Any]) -> dict[str, Any]:
        """SGLang's settings by our names; the program's own arguments as they are."""
        found: dict[str, Any] = {}
        for name, value in keywords.items():
            if name in self._parameters.names:
                found[name] = value
            elif name == "backend":
                found[name] = as_backend(value)
            elif value is not None and name not in _WITHOUT_EFFECT:
                found |= _setting(name, value)
        if found.pop("return_logprob", False) or found.get("top_logprobs_num"):
            found.setdefault("logprobs", found.get("top_logprobs_num", 0))
        if "top_logprobs_num" not in self._parameters.names:
            found.pop("top_logprobs_num", None)
        return found


def _setting(name: str, value: Any) -> dict[str, Any]:
    if name == "stop_regex":
        check_no_stop_regex(value)
        return {}
    if name == "logprob_start_len":
        return {"scored_from": scored_from(value)}
    return {_RENAMED.get(name, name): value}


@overload
def function(func: Callable[..., Any], num_api_spec_tokens: int | None = None) -> SglFunction: ...


@overload
def function(
    func: None = None, num_api_spec_tokens: int | None = None
) -> Callable[[Callable[..., Any]], SglFunction]: ...


def function(
    func: Callable[..., Any] | None = None, num_api_spec_tokens: int | None = None
) -> SglFunction | Callable[[Callable[..., Any]], SglFunction]:
    """Make a program of a function whose first argument is a state.

    num_api_spec_tokens: how far ahead calls to an API model shall be speculated. It saves calls
    that are paid for, and changes no answer; models that run here have none, so that it only logs
    that it has no effect.
    """
    number = num_api_spec_tokens
    if number is not None:
        if type(number) is not int or number < 1:
            raise InvalidCall("num_api_spec_tokens", number, "an integer >= 1, or None")
        _log.warning("num_api_spec_tokens=%d has no effect on models that run here", number)

    def decorate(body: Callable[..., Any]) -> SglFunction:
        program = SglFunction(body)
        program.num_api_spec_tokens = number
        return program

    return decorate if func is None else decorate(func)
