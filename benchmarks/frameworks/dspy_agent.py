"""An agent as DSPy's users write it: `dspy.ReAct`, unchanged, with four tools that have types,
descriptions and results of a search's size.

What the model's randomness would spoil is given, the same in all modes: how long a thought is (40
words, as models write), which tool is called with arguments of its schema's types, and that six
look-ups are enough. The words are the model's own, one token each, and are decoded one by one.
With demonstrations, as optimizers leave them in each predictor, its calls begin with about as many
tokens as those of the paper's agent do (1,900, see `workloads.react`).
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any, Literal

import dspy

WORDS = "the room was clean and staff were kind but breakfast came late while music played"
NUM_PASSAGES, PASSAGE_LEN = 3, 70
STEPS = (
    *("look_up_guest", "search_reviews", "search_policies", "find_rooms", "search_policies"),
    *("search_reviews", "finish"),
)
_THOUGHT_WORDS = (
    "the a is was not be to of for with from this that it will should when which value name time"
    " first last check list call room noise quiet late early clean before after other find search"
    " look rules policy ask know need what who where again more less only all none any some they we"
)
_WORD = f"(?: (?:{'|'.join(_THOUGHT_WORDS.split())}))"
_ARGUMENTS = {
    "search_reviews": rf'\{{"query": "guest{_WORD}{{5}}", "num_passages": 3\}}',
    "look_up_guest": rf'\{{"name": "Mrs{_WORD}{{2}}"\}}',
    "search_policies": rf'\{{"topic": "(refunds|noise|pets)", "question": "may{_WORD}{{5}}"\}}',
    "find_rooms": r'\{"floor": [1-9], "nights": [1-9], "is_quiet": (true|false)\}',
    "finish": r"\{\}",
}


class Complaint(dspy.Signature):
    """Decide what a hotel does about a guest's complaint. Look up what the guest wrote before, what
    other guests say of the same thing, and what the house's rules allow; promise nothing that the
    rules do not allow, and no room that is not free."""

    complaint: str = dspy.InputField(desc="What the guest wrote, word by word.")
    remedy: Literal["none", "voucher", "refund", "room"] = dspy.OutputField()
    letter: str = dspy.OutputField(desc="What the hotel writes to the guest.")


def passage(rng: random.Random, num_words: int = PASSAGE_LEN) -> str:
    """Some words."""
    return " ".join(rng.choice(WORDS.split()) for _ in range(num_words)) + "."


def tools(pause: Callable[[], None]) -> list[Callable[..., Any]]:
    """The four. What they find depends on the question only. pause: done while they look."""

    def found(*questions: Any) -> list[str]:
        pause()
        rng = random.Random(repr(questions))
        return [passage(rng) for _ in range(NUM_PASSAGES)]

    def search_reviews(query: str, num_passages: int = 3) -> list[str]:
        """Search all reviews that guests have left, by meaning. Gives the passages that fit best,
        the best first, each with the text of a review as it was written."""
        return found("reviews", query, num_passages)

    def look_up_guest(name: str) -> list[str]:
        """Look up a guest by name, in full or in part. Gives the notes of earlier stays: rooms,
        complaints, and what was done about them."""
        return found("guest", name)

    def search_policies(topic: Literal["refunds", "noise", "pets"], question: str) -> list[str]:
        """Search the rules of the house under one topic. Gives the paragraphs that answer the
        question, word by word; what they do not allow must not be promised."""
        return found("policies", topic, question)

    def find_rooms(floor: int, nights: int, is_quiet: bool = False) -> list[str]:
        """Find rooms that are free from tonight on, for so many nights, on one floor. Gives each
        room's description, its price for a night, and when it was last renovated."""
        return found("rooms", floor, nights, is_quiet)

    return [search_reviews, look_up_guest, search_policies, find_rooms]


class Paced(dspy.Predict):  # type: ignore[misc]
    """A predictor whose answers are as long as a trained model's, on a model that is random."""

    def forward(self, **inputs: Any) -> Any:
        """As `dspy.Predict`."""
        step = inputs["trajectory"].count("## observation_")
        sections = _step(step) if "next_thought" in self.signature.fields else _end()
        return super().forward(**inputs, config={"regex": _answer(sections)})


def agent(pause: Callable[[], None] = lambda: None) -> Any:
    """The agent. pause: what others do while a tool works."""
    react = dspy.ReAct(Complaint, tools=tools(pause), max_iters=len(STEPS))
    react.react = Paced(react.react.signature)
    react.extract.predict = Paced(react.extract.predict.signature)
    return react


def with_demos(react: Any, rng: random.Random) -> Any:
    """The agent with two demonstrations for each predictor: a first step and a second one, and two
    ends after one look-up."""
    (one, first), (two, second) = (_taken(react, rng) for _ in range(2))
    later = {"topic": "noise", "question": "may we"}
    second |= {"next_tool_name": "search_policies", "next_tool_args": later}
    react.react.demos = [{**one, "trajectory": "", **first}, {**two, **second}]
    react.extract.predict.demos = [
        {**it, "remedy": "voucher", "reasoning": _filler(rng), "letter": _filler(rng)}
        for it in (one, two)
    ]
    return react


def _taken(react: Any, rng: random.Random) -> tuple[dict[str, Any], dict[str, Any]]:
    """A complaint with what was looked up first, and that first step."""
    query = {"query": f"guest {rng.choice(WORDS.split())}", "num_passages": NUM_PASSAGES}
    thought, name = _filler(rng), "search_reviews"
    trajectory = {"thought_0": thought, "tool_name_0": name, "tool_args_0": query}
    trajectory["observation_0"] = [passage(rng) for _ in range(NUM_PASSAGES)]
    seen = {"complaint": passage(rng, 40), "trajectory": react._format_trajectory(trajectory)}
    return seen, {"next_thought": thought, "next_tool_name": name, "next_tool_args": query}


def _filler(rng: random.Random) -> str:
    """As long as the agent's own thoughts."""
    return "So " + " ".join(rng.choices(_THOUGHT_WORDS.split(), k=40)) + "."


def _step(number: int) -> dict[str, str]:
    name = STEPS[number]
    return {
        "next_thought": _words(40),
        "next_tool_name": name,
        "next_tool_args": _ARGUMENTS[name],
    }


def _end() -> dict[str, str]:
    return {
        "reasoning": _words(40),
        "remedy": "(none|voucher|refund|room)",
        "letter": _words(40),
    }


def _words(count: int) -> str:
    return rf"So{_WORD}{{{count}}}\."


def _answer(sections: dict[str, str]) -> str:
    """What DSPy's ChatAdapter reads."""
    headed = [rf"{re.escape(f'[[ ## {name} ## ]]')}\n{text}\n\n" for name, text in sections.items()]
    return "".join(headed) + re.escape("[[ ## completed ## ]]")
