"""Speculative execution: three fields of a record by one call in place of three.

Programs read 80 short passages with the embedded model, as an API model behind our own server: a
passage, and a template of JSON in which fields are each a `gen` with a stop. They run as they are
and with `speculate=True`, greedily. Calls and tokens are what the server reports, and
`engine_overrun` is of the tokens that its engine has sampled, also after a stream was left. Prices
are examples: an output token costs four input tokens.

"record" has three values of one to seven tokens, and the row's own figures. The others have longer
values ("people"), stops of several characters ("stops"), known fields between the gens ("gaps"), no
text behind the last field ("open"), an object that ends before the model's own would ("early"), and
a message of a chat ("chat"). `least_overrun` is what the constants cost: without the tokens that
were wasted.

Prints one JSON row.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from queue import Queue
from time import perf_counter, sleep
from typing import Any

import forkroot
from forkroot import function, gen, user
from forkroot.adapters.http.serve import server_of
from forkroot.adapters.http.server.runtime import Runtime
from forkroot.adapters.http.server.settings import Settings
from forkroot.benchmarks.common.report import parser, report
from forkroot.core.local import LocalBackend

NUM_ITEMS = 80
FIELDS = ("name", "job", "city", "house")
NAMES = (
    *("Alexander", "Bartholomew", "Christopher", "Dominique", "Evangeline"),
    *("Florentina", "Gwendolyn", "Konstantin", "Maximilian", "Sebastian"),
)
JOBS = ("pilot", "baker", "doctor", "farmer", "painter", "singer", "teacher", "writer")
CITIES = (
    *("San Sebastian", "Saint Petersburg", "Port Elizabeth", "New Brunswick"),
    *("Santa Barbara", "Mount Pleasant", "Fort Lauderdale", "Castle Douglas"),
)
HOUSES = ("Ember", "Tide", "Gale", "Stone", "Thorn", "Frost")
PRICES = {"input": 1.0, "output": 4.0}
EXAMPLE = (
    "Anna lives in Lyon. Anna is 31 years old and works as a pilot. Anna belongs to the house of"
    ' Frost.\nJSON: {"name": "Anna", "age": 31, "job": "pilot", "city": "Lyon",'
    ' "house": "Frost"}\n\n'
)


@function
def people(s: Any, passage: str, **other: Any) -> None:
    """Three values of some tokens each."""
    s += f'{passage}\nFields: name, city, house\nJSON: {{"name": "' + gen("name", 16, stop='"')
    s += '", "city": "' + gen("city", 24, stop='"')
    s += '", "house": "' + gen("house", 12, stop='"') + '"}'


@function
def record(s: Any, name: str, age: int, passage: str, **other: Any) -> None:
    """Three of the five fields of a record."""
    s += f'{EXAMPLE}{passage}\nJSON: {{"name": "{name}", "age": {age}, "job": "'
    s += gen("job", 12, stop='"') + '", "city": "' + gen("city", 24, stop='"')
    s += '", "house": "' + gen("house", 12, stop='"') + '"}'


@function
def stops(s: Any, name: str, age: int, passage: str, **other: Any) -> None:
    """The same with stops of several characters."""
    s += f'{EXAMPLE}{passage}\nJSON: {{"name": "{name}", "age": {age}, "job": "'
    s += gen("job", 12, stop='", "') + '", "city": "' + gen("city", 24, stop='", "')
    s += '", "house": "' + gen("house", 12, stop='"}') + '"}'


@function
def gaps(s: Any, age: int, city: str, passage: str, **other: Any) -> None:
    """Known fields between the gens: constants that are longer than the values."""
    s += f'{EXAMPLE}{passage}\nJSON: {{"name": "' + gen("name", 16, stop='"')
    s += f'", "age": {age}, "job": "' + gen("job", 12, stop='"')
    s += f'", "city": "{city}", "house": "' + gen("house", 12, stop='"') + '"}'


@function
def open_end(s: Any, name: str, age: int, passage: str, **other: Any) -> None:
    """The fields of a record, with nothing behind the last one."""
    s += f'{EXAMPLE}{passage}\nJSON: {{"name": "{name}", "age": {age}, "job": "'
    s += gen("job", 12, stop='"') + '", "city": "' + gen("city", 24, stop='"')
    s += '", "house": "' + gen("house", 12, stop='"')


@function
def early(s: Any, name: str, age: int, passage: str, **other: Any) -> None:
    """All fields but the last, in an object that ends sooner than the model's own."""
    s += f'{EXAMPLE}{passage}\nJSON: {{"name": "{name}", "age": {age}, "job": "'
    s += gen("job", 12, stop='"') + '", "city": "' + gen("city", 24, stop='"') + '"}'


@function
def chat(s: Any, passage: str, **other: Any) -> None:
    """One message of the assistant with three fields."""
    s += user(f"{passage}\nFields: name, city, house\nJSON:")
    with s.assistant():
        s += '{"name": "' + gen("name", 16, stop='"') + '", "city": "' + gen("city", 24, stop='"')
        s += '", "house": "' + gen("house", 12, stop='"') + '"}'


OTHERS = (people, stops, gaps, open_end, early, chat)


def passages(seed: int) -> list[dict[str, Any]]:
    """The arguments of all runs."""
    source = random.Random(seed)
    found = []
    for _ in range(NUM_ITEMS):
        name, job = source.choice(NAMES), source.choice(JOBS)
        city, age = source.choice(CITIES), source.randint(18, 80)
        text = f"{name} lives in {city}. {name} is {age} years old and works as a {job}."
        text += f" {name} belongs to the house of {source.choice(HOUSES)}."
        found.append({"name": name, "age": age, "city": city, "passage": text})
    return found


@contextmanager
def api_of_tiny() -> Iterator[Any]:
    """The embedded model behind a server in this process, as an API model."""
    announced = Queue[str]()
    with LocalBackend.from_folder("tiny", dtype="float32") as engine:
        runtime = Runtime(engine, engine.tokenizer, ("tiny",))
        server = server_of(runtime, Settings(), "127.0.0.1", 0, announced.put)
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        url = announced.get(timeout=60)
        try:
            with forkroot.connect(
                "openai:tiny", base_url=f"{url}/v1", api_key="none", prices=PRICES
            ) as backend:
                yield engine, backend
        finally:
            server.should_exit = True
            thread.join(30)


def totals(states: list[Any]) -> dict[str, float]:
    """What all runs used together."""
    found: dict[str, float] = {}
    for state in states:
        for name, number in state.get_meta_info().items():
            found[name] = found.get(name, 0) + number
    return found


def compared(
    engine: LocalBackend, backend: Any, program: Any, items: list[dict[str, Any]]
) -> dict[str, Any]:
    """Figures of a program's runs without and with speculation."""
    seconds, found, sampled = [], [], [_sampled(engine)]
    for speculate in (False, True):
        start = perf_counter()
        states = program.run_batch(
            items, backend=backend, temperature=0, speculate=speculate, raise_errors=True
        )
        seconds.append(round(perf_counter() - start, 2))
        found.append(states)
        sampled.append(_sampled(engine))
    before, middle, after = sampled
    plain, ahead = map(totals, found)
    fields = [name for name in FIELDS if name in found[0][0]]
    pairs = [(one[name], two[name]) for one, two in zip(*found, strict=True) for name in fields]
    names = ("calls", "prompt_tokens", "completion_tokens", "cost")
    return {
        "plain": {name: round(plain[name], 6) for name in names},
        "speculative": {name: round(ahead[name], 6) for name in names},
        "wasted_tokens": ahead["wasted_tokens"],
        "reused_gens": ahead["reused"],
        "fewer_calls": round(plain["calls"] / ahead["calls"], 2),
        "fewer_prompt_tokens": round(plain["prompt_tokens"] / ahead["prompt_tokens"], 2),
        "output_overrun": round(ahead["completion_tokens"] / plain["completion_tokens"], 2),
        "least_overrun": round(
            (ahead["completion_tokens"] - ahead["wasted_tokens"]) / plain["completion_tokens"], 2
        ),
        "engine_overrun": round((after - middle) / (middle - before), 2),
        "lower_cost": round(plain["cost"] / ahead["cost"], 2),
        "equal_values": round(sum(one == two for one, two in pairs) / len(pairs), 4),
        "example": {name: found[1][0][name] for name in fields},
        "seconds": seconds,
    }


def _sampled(engine: LocalBackend) -> float:
    """Tokens that the engine has sampled, once nothing runs."""
    while engine.info().load.get("running", 0):
        sleep(0.05)
    return engine.info().counters["sampled_tokens"]


def measure(seed: int) -> dict[str, Any]:
    """The figures of a row."""
    items = passages(seed)
    with api_of_tiny() as (engine, backend):
        record.run_batch(items[:2], backend=backend, temperature=0, raise_errors=True)
        found = {it.name: compared(engine, backend, it, items) for it in (record, *OTHERS)}
    return {**found.pop("record"), "others": found}


def main() -> None:
    """Print the row."""
    options = parser(__doc__).parse_args()
    figures = measure(options.seed)
    report("speculation", figures, options.out, model="tiny", items=NUM_ITEMS, seed=options.seed)


if __name__ == "__main__":
    main()
