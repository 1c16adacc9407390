"""Agents: ReAct, replayed, and the calls of generative agents."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from forkroot.models.training.tasks.react import react as react_task
from forkroot.models.training.world.people import reading_json

from . import native, sources
from .texts import Texts
from .workload import Workload, is_equal

_STEP = re.compile(r"\nThought \d+:( [^\n]*\nAction \d+: [^\n]*)(\nObservation \d+: [^\n]*)?")
TEMPLATES: Mapping[str, tuple[str, int]] = MappingProxyType(
    {  # the text, with its fields, and tokens of an answer
        "poignancy_event": (
            "Here is a brief description of {persona_name}.\n{persona_iss}\n\nOn a scale"
            " of 1 to 10,"
            " where 1 is mundane, such as brushing teeth, and 10 is moving, such as a wedding, rate"
            " how this event moves {persona_name}.\nEvent: {event}\nRate, a number from 1 to 10:",
            2,
        ),
        "generate_event_triple": (
            "Turn each input into a subject, a predicate and an object.\n\n"
            "Input: Sam Johnson is eating breakfast.\nOutput: (Sam Johnson, eat, breakfast)\n"
            "Input: Joon Park is brewing coffee.\nOutput: (Joon Park, brew, coffee)\n"
            "Input: Jane Cook is sleeping.\nOutput: (Jane Cook, is, sleeping)\n"
            "Input: {persona_name} is {action}.\nOutput: ({persona_name},",
            20,
        ),
        "generate_pronunciatio": (
            "Convert an action to two signs that show it. Choose signs that are easy to tell"
            " apart.\nAction: {action}\nSigns:",
            6,
        ),
        "action_location_sector": (
            "Choose where in the town an action happens. Stay where you are if that is possible; do"
            " not enter a home that is not one's own.\nAreas: the cafe, the market, the school, the"
            " park, the library, the home of {persona_name}.\n{persona_iss}\n{persona_name} is"
            " {action}. Area: the",
            10,
        ),
        "action_location_object": (
            "Choose the object that an action needs.\nAction: baking bread. Objects: table, oven,"
            " chair. Best: oven\nAction: {action}. Objects: bed, desk, stove, shelf. Best:",
            5,
        ),
    }
)
ACTIONS = (
    *("painting a fence", "reading a letter", "cooking soup", "feeding the cat"),
    *("planting beans", "writing a song", "repairing a bicycle", "teaching a class"),
)


def react(texts: Texts) -> Workload:
    """Traces of an agent that looks things up."""
    found = sources.lines(texts.settings.data, "hotpotqa_100.jsonl")
    count, length = texts.num(1, 6, 30), 80
    if found:
        source = f"traces in {texts.settings.data}/hotpotqa_100.jsonl"
        traces = [_published(item) for item in found[:count]]
        shots = ""
    else:
        source = sources.SYNTHETIC
        questions = [
            f"Question:{part}" for it in texts.documents(react_task, 4 * count + 12)
            for part in f"\n\n{it.text}".split("\n\nQuestion:")[1:] if "Thought" in part
        ]  # fmt: skip
        shots = "".join(text.strip() + "\n\n" for text in questions[:10])
        traces = [_trace(text) for text in questions[10 : 10 + count]]
    longest = max(texts.size(_whole(trace)) for trace in traces) + 8
    before = texts.fit([it + "\n\n" for it in shots.split("\n\n")[:-1]], length + longest)
    items = [{"shots": before, "length": length, **trace} for trace in traces]
    truths = ["\n".join(step["written"] for step in trace["steps"]) for trace in traces]
    return Workload(
        "react",
        "ReAct agent, replayed",
        native.react,
        items,
        lambda state: "\n".join(state.ret_value),
        source,
        truths,
        is_equal,
        width=8,
    )


def _trace(text: str) -> dict[str, Any]:
    question = text.partition("\nThought")[0]
    steps = [{"written": it[1], "observed": it[2] or ""} for it in _STEP.finditer(text)]
    return {"question": question, "steps": steps}


def _published(item: Mapping[str, Any]) -> dict[str, Any]:
    """A line of the published traces: a question, and steps of thought, action, observation."""
    ((question, steps),) = item.items()
    shown = [
        {
            "written": f" {step['thought']}\nAction {number}: {step['action']}",
            "observed": f"\nObservation {number}: {step['observation']}",
        }
        for number, step in enumerate(steps, 1)
    ]
    return {"question": f"Question: {question}", "steps": shown}


def _whole(trace: Mapping[str, Any]) -> str:
    return trace["question"] + "".join(it["written"] + it["observed"] for it in trace["steps"])


def generative_agents(texts: Texts) -> Workload:
    """Events of a town."""
    data = list(sources.agent_calls(texts.settings.data))
    source = f"calls in {texts.settings.data}/agent_calls.jsonl" if data else sources.SYNTHETIC
    calls = data or list(_events(texts))
    items = []
    for name, fields in calls[: texts.num(2, 40, 400)]:
        text, length = TEMPLATES.get(name, TEMPLATES["poignancy_event"])
        known = _Fields(fields)
        items.append({"template": text.format_map(known), "length": length})
    return Workload(
        "generative agents",
        "Generative agents",
        native.town_event,
        items,
        lambda state: str(state["answer"]),
        source,
        width=32,
    )


class _Fields(dict[str, str]):
    """A field that a call lacks is empty."""

    def __missing__(self, name: str) -> str:
        return ""


def _events(texts: Texts) -> Any:
    people = [document.text.split("\n")[0] for document in texts.documents(reading_json, 12)]
    for _ in range(texts.num(2, 40, 400)):
        person, action = texts.rng.choice(people), texts.rng.choice(ACTIONS)
        name = next((word for word in person.split() if word[0].isupper() and word != "The"), "Ann")
        fields = {"persona_name": name, "persona_iss": person, "action": action}
        fields["event"] = f"{name} sees somebody {action}"
        yield texts.rng.choice(list(TEMPLATES)), fields
