"""Watches DSPy's modules, so that a program needs no change: who writes which prompt, and what is
about to be evaluated on many examples.

DSPy keeps callbacks in its settings; `watch` puts this one there.
"""

from __future__ import annotations

import functools
import logging
from collections import Counter
from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

import dspy
from dspy.utils.callback import BaseCallback

from ...core.api.protocol import Chat, Message, Text
from ...core.common.harmless import hint_errors
from ..hints.courses import Courses
from .engine import Engine
from .hints.returning import Step, current_run, run_begins, run_ends
from .hints.running import Formatted, format_begins, format_ends, last_formatted
from .patterns.agents import agent_in, chosen, tools_in

_log = logging.getLogger(__name__)
_choice: ContextVar[Any] = ContextVar("forkroot_dspy_tool_choice", default=None)


class Watcher(BaseCallback):  # type: ignore[misc]
    """Sees every prompt that an adapter writes, every `Evaluate` before its threads start, when a
    program's run begins and ends, and when its agents wait for their tools."""

    def __init__(self) -> None:
        super().__init__()
        self.courses = Courses()

    def on_module_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        """A run begins with its outermost module, unless that calls the model only once."""
        if isinstance(instance, dspy.Predict):  # DSPy drops it where tools are called in text
            keywords = {**instance.config, **((inputs.get("kwargs") or {}).get("config") or {})}
            _choice.set(keywords.get("tool_choice"))
        else:
            is_outermost = not dspy.settings.caller_modules
            run_begins(call_id, self.courses, instance, is_outermost=is_outermost)

    def on_module_end(self, call_id: str, outputs: Any, exception: Any = None) -> None:
        """What was kept for the run is kept no more."""
        run_ends(call_id)

    def on_adapter_format_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        """Remember who writes the prompt that the LM gets next."""
        signature = _argument(inputs, "signature")
        agent = agent_in(signature, dspy.settings.caller_modules or ())
        given = _argument(inputs, "inputs", 2) or {}
        tools, is_demanded = chosen(tools_in(signature, given), _choice.get())
        opened = Formatted(call_id, instance, signature, tools=tools, is_demanded=is_demanded)
        if agent is not None:
            demos = _argument(inputs, "demos", 1) or ()
            opened = replace(opened, agent=agent, demos=demos, inputs=given)
        format_begins(opened)

    def on_adapter_format_end(self, call_id: str, outputs: Any, exception: Any = None) -> None:
        """Remember the prompt itself, by which the call is known again."""
        format_ends(call_id, outputs)

    def on_adapter_parse_end(self, call_id: str, outputs: Any, exception: Any = None) -> None:
        """Remember what an agent wants done next."""
        run, formatted = current_run(), last_formatted()
        if run is not None and formatted is not None and formatted.agent and outputs is not None:
            run.step = Step(formatted, outputs)

    def on_tool_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        """An agent waits for a tool."""
        run = current_run()
        if run is not None:
            run.tool_begins(call_id, instance.name)

    def on_tool_end(self, call_id: str, outputs: Any, exception: Any = None) -> None:
        """It waits no more."""
        run = current_run()
        if run is not None:
            run.tool_ends(call_id, outputs)

    def on_evaluate_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        """Send ahead what the calls of each predictor will begin with."""
        devset = inputs.get("devset") or instance.devset
        program = _argument(inputs, "program")
        if isinstance(program, dspy.Module):
            plant(program, len(devset))


def watch() -> None:
    """Let a watcher see what is done under the present settings."""
    _watch_threads()
    callbacks = dspy.settings.callbacks
    if not any(isinstance(callback, Watcher) for callback in callbacks):
        callbacks.append(Watcher())


def _watch_threads() -> None:
    """Send ahead the prompts of `dspy.Parallel`, and with it of `batch`: DSPy calls no callback
    before their threads start. Their results are not changed."""
    theirs = dspy.Parallel.forward
    if hasattr(theirs, "is_watched"):
        return

    @functools.wraps(theirs)
    def forward(self: Any, exec_pairs: Any, *args: Any, **keywords: Any) -> Any:
        if any(isinstance(callback, Watcher) for callback in dspy.settings.callbacks):
            with hint_errors.suppress(_log, "planting the prompts of dspy.Parallel"):
                plant_all([pair[0] for pair in exec_pairs])
        return theirs(self, exec_pairs, *args, **keywords)

    forward.is_watched = True  # type: ignore[attr-defined]
    dspy.Parallel.forward = forward


def plant_all(modules: Sequence[Any]) -> None:
    """`plant` each program that several of these runs are of."""
    counts = Counter(map(id, modules))
    for program in {id(module): module for module in modules}.values():
        if counts[id(program)] > 1 and isinstance(program, dspy.Module):
            plant(program, counts[id(program)])


def plant(program: dspy.Module, num_examples: int | None = None) -> None:
    """Send ahead the prompts of a program's predictors as far as they are known without an input:
    the task and its demonstrations. `Evaluate` does so by itself. num_examples: runs to come, for
    which the prefixes stay pinned.
    """
    for predictor in program.predictors():
        lm = predictor.lm or dspy.settings.lm
        engine = getattr(lm, "engine", None)
        if isinstance(engine, Engine):
            adapter = dspy.settings.adapter or dspy.ChatAdapter()
            chat = _beginning(adapter, predictor)
            if chat is not None:
                engine.runtime.plant(chat, num_examples, getattr(lm, "namespace", ""))


def _argument(inputs: dict[str, Any], name: str, index: int = 0) -> Any:
    """An argument of a call, None where it has none such; for a method that a subclass
    inherits DSPy reports `args` and `kwargs`."""
    if name in inputs:
        return inputs[name]
    args = inputs.get("args", ())
    return args[index] if len(args) > index else inputs.get("kwargs", {}).get(name)


def _beginning(adapter: dspy.Adapter, predictor: dspy.Predict) -> Chat | None:
    """The messages before the one with the inputs; None where they are more than texts."""
    messages = adapter.format(predictor.signature, predictor.demos, {})[:-1]
    if not messages or not all(isinstance(message["content"], str) for message in messages):
        return None
    return Chat(tuple(Message(it["role"], (Text(it["content"]),)) for it in messages))
