"""Records filled in by an API model: one call for each field, then one for all of them.

    python -m forkroot.examples.record_api openai:MODEL

Without a model, the embedded one runs here. The second run goes on past each stop (`speculate`),
and what it wrote is matched against the template; calls, tokens and cost of both are printed.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any

from rich.console import Console
from rich.table import Table

from .. import connect, function, gen

TEXTS = (
    "Anna lives in Lyon. Anna is 31 years old and works as a pilot. Anna belongs to the house of"
    " Frost.",
    "Hugo lives in Porto. Hugo is 79 years old and works as a teacher. Hugo belongs to the house of"
    " Stone.",
    "Irene lives in Oslo. Irene is 44 years old and works as a baker. Irene belongs to the house of"
    " Tide.",
)
EXAMPLE = (
    "Clara lives in Bern. Clara is 52 years old and works as a nurse. Clara belongs to the house of"
    ' Gale.\nJSON: {"name": "Clara", "age": 52, "job": "nurse", "city": "Bern",'
    ' "house": "Gale"}\n\n'
)
COUNTERS = ("calls", "prompt_tokens", "completion_tokens", "wasted_tokens", "cost")


@function
def fill(s: Any, text: str) -> None:
    """The fields of a text, in a template that ends as the model ends it."""
    s += f'{EXAMPLE}{text}\nJSON: {{"name": "' + gen("name", 16, stop='"')
    s += '", "age": ' + gen("age", 8, stop=",")
    s += ', "job": "' + gen("job", 16, stop='"')
    s += '", "city": "' + gen("city", 16, stop='"')
    s += '", "house": "' + gen("house", 16, stop='"') + '"}'


def totals(states: Sequence[Any]) -> dict[str, float]:
    """What the runs used together."""
    metas: list[Mapping[str, float]] = [state.get_meta_info() for state in states]
    return {name: sum(meta.get(name, 0) for meta in metas) for name in COUNTERS}


def main(argv: Sequence[str] | None = None) -> None:
    """Fill in all records twice, and print them and what they took."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model", nargs="?", default="tiny", help="as openai:MODEL; default: tiny")
    parser.add_argument("--base-url", help="of a compatible server")
    options = parser.parse_args(argv)
    settings: dict[str, Any] = {} if options.base_url is None else {"base_url": options.base_url}
    out, items = Console(highlight=False), [{"text": text} for text in TEXTS]
    table = Table("fields", *(name.removesuffix("_tokens") for name in COUNTERS))
    with closing(connect(options.model, **settings)) as backend:
        for label, speculate in (("apart", False), ("together", True)):
            settings = {"backend": backend, "temperature": 0, "speculate": speculate}
            states = fill.run_batch(items, raise_errors=True, **settings)
            table.add_row(label, *(f"{number:g}" for number in totals(states).values()))
    for state in states:
        out.print(", ".join(state[name] for name in ("name", "age", "job", "city", "house")))
    out.print(table)


if __name__ == "__main__":
    main()
