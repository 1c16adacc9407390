"""A day of chat traffic for two models, drawn from a seed: system messages, example pictures that
many send, and conversations of several turns. Its hit rate is near what the paper reports."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

DAY = 86_400.0
Ids = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Traffic:
    """Who calls. system, picture, turn, answer: lengths in tokens, pictures as what stands for
    them. reused: how many of the pictures are of a few examples. turns: of a conversation, on
    average. hit_rate: as the paper reports it."""

    name: str
    hit_rate: float
    system: int
    turn: int
    answer: int
    turns: float
    picture: int = 0
    reused: float = 0.0


@dataclass(frozen=True, slots=True)
class Request:
    """A call of the trace: when it comes, its prompt, and how many tokens it is answered with."""

    time: float
    prompt: Ids
    answer: int
    conversation: int


VICUNA = Traffic("Vicuna-33B", 0.741, system=40, turn=60, answer=90, turns=2.0)
LLAVA = Traffic(
    "LLaVA-Next-34B", 0.524, system=30, turn=30, answer=50, turns=1.6, picture=288, reused=0.2
)


def conversations(
    traffic: Traffic, count: int, seed: int, vocabulary: int = 3_000
) -> Iterator[tuple[float, Ids, list[Ids]]]:
    """When each begins, how its first prompt begins, and what its user writes in each turn."""
    rng = random.Random(seed)

    def ids(length: int) -> Ids:
        spread = max(1, round(rng.lognormvariate(0.0, 0.5) * length))
        return tuple(rng.choices(range(300, vocabulary), k=spread))

    system = tuple(rng.choices(range(300, vocabulary), k=traffic.system))
    examples = [tuple(rng.choices(range(300, vocabulary), k=traffic.picture)) for _ in range(8)]
    for _ in range(count):
        start, num = rng.uniform(0.0, DAY), 1
        while rng.random() < 1 - 1 / traffic.turns:
            num += 1
        picture: Ids = ()
        if traffic.picture and rng.random() < traffic.reused:
            picture = rng.choice(examples)
        elif traffic.picture:
            picture = tuple(rng.choices(range(300, vocabulary), k=traffic.picture))
        yield start, system + picture, [ids(traffic.turn) for _ in range(num)]


def requests(traffic: Traffic, count: int, seed: int, longest: int) -> list[Request]:
    """The calls of a day in their order. Answers are unknown before they are written: a prompt
    holds the user's turns, and `-1` in place of each token that an earlier turn was answered with.
    """
    rng, found = random.Random(seed + 1), list[Request]()
    for index, (start, before, turns) in enumerate(conversations(traffic, count, seed)):
        prompt, time = before, start
        for turn in turns:
            prompt += turn
            answer = max(1, round(rng.lognormvariate(0.0, 0.5) * traffic.answer))
            if len(prompt) + answer >= longest:
                break
            found.append(Request(time, prompt, answer, index))
            prompt += (-1,) * answer
            time += rng.expovariate(1 / 60.0) + 5.0
    return sorted(found, key=lambda it: it.time)
