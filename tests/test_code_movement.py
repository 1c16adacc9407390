"""The templates of the benchmark of code movement: what moves in them, and what must not."""

from __future__ import annotations

import random

import pytest

from forkroot.adapters.native.movement.checks import Checks
from forkroot.adapters.native.movement.parts import shown
from forkroot.adapters.native.movement.rules import Rules
from forkroot.adapters.testing import ScriptedBackend, prompt_text
from forkroot.benchmarks.programs.proposals import illegal, stretches
from forkroot.benchmarks.programs.templates.template import Message, Template, load

SHIPPED, HELD_OUT = load("shipped"), load("held_out")
TEMPLATES = (*SHIPPED, *HELD_OUT)


def moved(template: Template) -> bool:
    return any(Rules().propose(it) != it.parts for _, it in stretches(template))


def test_at_least_fifteen_of_twenty_templates_move_and_seven_of_those_held_out() -> None:
    assert len(SHIPPED) == 20
    assert len(HELD_OUT) == 12
    assert sum(map(moved, SHIPPED)) == 17
    assert sum(map(moved, HELD_OUT)) == 7


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda it: it.name)
def test_what_the_rules_move_is_legal_by_hand(template: Template) -> None:
    for message, stretch in stretches(template):
        assert message.is_legal(shown(stretch.pieces(Rules().propose(stretch))))
        assert message.is_legal(message.text)


def test_no_illegal_order_is_accepted() -> None:
    source = random.Random(0)
    proposals = list(illegal(source.sample(TEMPLATES, 2), 0))
    chosen = sorted(source.sample(range(len(proposals)), 500))
    found, checks, stretch = [], None, None
    for proposal in (proposals[index] for index in chosen):
        if proposal.stretch is not stretch or checks is None:
            stretch, checks = proposal.stretch, Checks(proposal.stretch)
        if checks.refusal(proposal.order) is None:
            found.append((proposal.template, proposal.kind))
    assert found == []
    assert {"anaphora", "permutation"} <= {proposal.kind for proposal in proposals}


@pytest.mark.parametrize("template", SHIPPED[:4], ids=lambda it: it.name)
def test_a_moved_template_runs_with_the_same_words(template: Template) -> None:
    prompts = []
    for move in (False, True):
        backend = ScriptedBackend("end")
        template.program().compile(move=move).run(backend=backend, **template.sample)
        prompts.append(prompt_text(backend.calls[0].prompt))
    assert prompts[0] != prompts[1]
    assert sorted(prompts[0].split()) == sorted(prompts[1].split())


MESSAGE = Message(
    ("Text: {text}\n\n", "Use French. ", "Labels:\n", "- one\n\n", "Answer:"),
    ("stay", "move", "move", "with", "stay"),
)


@pytest.mark.parametrize(
    ("text", "is_legal"),
    [
        ("Use French.\nLabels:\n- one\nText: {text}\n\nAnswer:", True),
        ("Use French.\n\nText: {text}\n\nLabels:\n- one\n\nAnswer:", True),
        ("Labels:\n- one\nUse French.\nText: {text}\n\nAnswer:", False),
        ("Labels:\nUse French.\n- one\nText: {text}\n\nAnswer:", False),
        ("Use French.\nLabels:\n- one\nAnswer:\nText: {text}", False),
        ("Text: {text}\n\nLabels:\n- one\n\nAnswer:\nUse French.", False),
        ("Use French.\nText: {text}\n\nAnswer:", False),
        ("Use French.\nUse French.\nLabels:\n- one\nText: {text}\n\nAnswer:", False),
        ("Use German.\nLabels:\n- one\nText: {text}\n\nAnswer:", False),
    ],
)
def test_the_judgment_by_hand_allows_the_marked_moves_only(text: str, is_legal: bool) -> None:
    assert MESSAGE.is_legal(text) is is_legal
