"""A backend is asked for the order of a prompt, among those that move constants to the front."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from forkroot.adapters.native.movement.checks import Checks
from forkroot.adapters.native.movement.model_reorderer import MAX_ORDERS, ModelReorderer
from forkroot.adapters.native.movement.parts import Stretch, shown
from forkroot.adapters.testing import ScriptedBackend
from forkroot.core.api.protocol import CallFailed, Choices, InvalidCall

Prompt = Callable[..., Stretch]
TEXT = "Text: {t}\n\nLabels:\n- one\n- two\n\nPlace: Paris.\n\nAnswer:"


def options(backend: ScriptedBackend) -> tuple[str, ...]:
    (call,) = backend.calls
    assert isinstance(call.constraint, Choices)
    call.check()
    return call.constraint.options


def test_the_blocks_are_numbered_and_the_answer_is_one_of_the_orders(prompt: Prompt) -> None:
    backend, stretch = ScriptedBackend("2 1 3 4"), prompt(TEXT)
    order = ModelReorderer(backend).propose(stretch)
    assert shown(stretch.pieces(order)).startswith("Labels:\n- one\n- two\n\nText: {t}")
    assert len(options(backend)) == 8
    (segment,) = backend.calls[0].prompt
    asked = getattr(segment, "text", "")
    assert asked.endswith("2: Labels: - one - two\n3: Place: Paris.\n4: Answer:\nOrder: ")
    assert asked.count("Order:") == 6


def test_what_a_model_chooses_is_checked_like_any_proposal(prompt: Prompt) -> None:
    stretch = prompt(TEXT)
    order = ModelReorderer(ScriptedBackend("2 3 1 4"), examples=0).propose(stretch)
    refusal = Checks(stretch).refusal(order)
    assert refusal is not None
    assert refusal.check == "subject"


def test_nothing_is_asked_where_there_is_nothing_to_choose(prompt: Prompt) -> None:
    backend, stretch = ScriptedBackend(), prompt("Answer {q}")
    assert ModelReorderer(backend).propose(stretch) == stretch.parts
    assert backend.calls == []


def test_the_number_of_orders_is_bounded(prompt: Prompt) -> None:
    backend = ScriptedBackend(lambda call: call.constraint.options[1])
    stretch = prompt("Text: {t}\n\n" + "\n\n".join(f"Use word {n}." for n in range(12)))
    order = ModelReorderer(backend).propose(stretch)
    assert len(options(backend)) == MAX_ORDERS
    assert order[-1].place == 0


def test_an_error_of_the_backend_is_raised(prompt: Prompt) -> None:
    with pytest.raises(CallFailed, match="no answer"):
        ModelReorderer(ScriptedBackend([CallFailed("no answer")])).propose(prompt(TEXT))


def test_a_backend_and_a_number_of_examples_are_checked() -> None:
    with pytest.raises(InvalidCall, match="backend='tiny'"):
        ModelReorderer("tiny")  # type: ignore[arg-type]
    with pytest.raises(InvalidCall, match="examples=6"):
        ModelReorderer(ScriptedBackend(), examples=6)
