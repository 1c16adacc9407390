"""Speculative execution: three fields of a record by one call in place of three.

A program reads 80 short passages with the embedded model, as an API model behind our own server: a
worked example, the passage, and a JSON template of which name and age are known and three fields
are each a `gen` with a stop. It runs as it is and with `speculate=True`, greedily. Calls and tokens
are what the server reports; they do not depend on the machine. Prices are examples: an output token
costs four input tokens.

"other_template" is the same program with a template that ends before the model would end it: what
it writes beyond is wasted, as far as the limits of the gens allow. Prints one JSON row.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from queue import Queue
from time import perf_counter
from typing import Any

import forkroot
from forkroot import function, gen
from forkroot.adapters.http.serve import server_of
from forkroot.adapters.http.server.runtime import Runtime
from forkroot.adapters.http.server.settings import Settings
from forkroot.benchmarks.common.report import parser, report
from forkroot.core.local import LocalBackend

NUM_ITEMS = 80
FIELDS = ("job", "city", "house")
NAMES = ("Anna", "Bruno", "Clara", "David", "Elena", "Felix", "Greta", "Hugo", "Irene", "Jonas")
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
def read(s: Any, name: str, age: int, passage: str) -> None:
    """Three fields of a passage."""
    s += f'{EXAMPLE}{passage}\nJSON: {{"name": "{name}", "age": {age}, "job": "'
    s += gen("job", 12, stop='"') + '", "city": "' + gen("city", 24, stop='"')
    s += '", "house": "' + gen("house", 12, stop='"') + '"}'


@function
def read_early(s: Any, name: str, age: int, passage: str) -> None:
    """The same fields but the last, in an object that ends sooner than the model's own."""
    s += f'{EXAMPLE}{passage}\nJSON: {{"name": "{name}", "age": {age}, "job": "'
    s += gen("job", 12, stop='"') + '", "city": "' + gen("city", 24, stop='"') + '"}'


def passages(seed: int) -> list[dict[str, Any]]:
    """The arguments of all runs."""
    source = random.Random(seed)
    found = []
    for _ in range(NUM_ITEMS):
        name, job = source.choice(NAMES), source.choice(JOBS)
        city, age = source.choice(CITIES), source.randint(18, 80)
        text = f"{name} lives in {city}. {name} is {age} years old and works as a {job}."
        text += f" {name} belongs to the house of {source.choice(HOUSES)}."
        found.append({"name": name, "age": age, "passage": text})
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
                yield backend
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


def compared(backend: Any, program: Any, items: list[dict[str, Any]]) -> dict[str, Any]:
    """Figures of a program's runs without and with speculation."""
    seconds, found = [], []
    for speculate in (False, True):
        start = perf_counter()
        states = program.run_batch(
            items, backend=backend, temperature=0, speculate=speculate, raise_errors=True
        )
        seconds.append(round(perf_counter() - start, 2))
        found.append(states)
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
        "lower_cost": round(plain["cost"] / ahead["cost"], 2),
        "equal_values": round(sum(one == two for one, two in pairs) / len(pairs), 4),
        "example": {name: found[1][0][name] for name in fields},
        "seconds": seconds,
    }


def measure(seed: int) -> dict[str, Any]:
    """The figures of a row."""
    items = passages(seed)
    with api_of_tiny() as backend:
        read.run_batch(items[:2], backend=backend, temperature=0, raise_errors=True)
        figures = compared(backend, read, items)
        return {**figures, "other_template": compared(backend, read_early, items)}


def main() -> None:
    """Print the row."""
    options = parser(__doc__).parse_args()
    figures = measure(options.seed)
    report("speculation", figures, options.out, model="tiny", items=NUM_ITEMS, seed=options.seed)


if __name__ == "__main__":
    main()
