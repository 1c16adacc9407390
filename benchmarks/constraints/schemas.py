"""Which JSON Schemas are taken, what is refused and why, and whether answers are ever invalid.

`schemas.py FOLDER` compiles each `*.json` below a folder and, for each schema that is accepted,
samples answers: tokens uniform over those allowed (`--walks` of them, each with a budget), which
must be JSON that the package jsonschema finds valid. `--suite FOLDER` reads groups of the official
JSON-Schema-Test-Suite (a folder of one draft, or several): a group is taken if its schema is; then
every invalid instance must be rejected, and every valid one accepted in the spelling that answers
have (properties in the order of the schema). Prints a row of figures; `--show N` the refusals by
frequency, `--list` one line for each schema. Times are of the process. Schemas are compiled in
`--processes` processes, each of which is given `--limit` seconds of processor time for one.
"""

from __future__ import annotations

import json
import logging
import re
import signal
import sys
import warnings
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from itertools import islice, permutations
from pathlib import Path
from random import Random
from statistics import median
from time import process_time
from typing import Any, NamedTuple

import numpy as np

from forkroot.benchmarks.common import vocabularies
from forkroot.benchmarks.common.packages import needs
from forkroot.benchmarks.common.report import parser, report
from forkroot.core.api.protocol import CallFailed, ForkrootError, InvalidCall, JsonSchema
from forkroot.core.fsm.constraints import Constraints
from forkroot.core.fsm.guide import Guide

with needs("jsonschema"):
    import referencing.exceptions
    from jsonschema import Draft202012Validator, validators
    from jsonschema_specifications import REGISTRY

SPACED = (", ", ": ")
BUDGETS = (16, 60, 200, 600)
MAX_ORDERS = 24


class Outcome(NamedTuple):
    """What became of one schema. refusal: "" if it was taken. invalid: answers that are not valid.

    num_cut: walks that could not end in their budget. num_failed: that ended in a typed error.
    wrong: instances accepted that are invalid. missed: valid ones that are not accepted.
    """

    name: str
    refusal: str = ""
    pointer: str = ""
    seconds: float = 0.0
    num_answers: int = 0
    num_cut: int = 0
    num_failed: int = 0
    invalid: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()
    missed: tuple[str, ...] = ()


class Late(Exception):
    """A schema that took more time than it was given."""


def main() -> None:
    options = parser(__doc__)
    options.add_argument("folder", nargs="?", type=Path)
    options.add_argument("--suite", type=Path)
    options.add_argument("--only", default="", help="a part of the names that are wanted")
    options.add_argument("--every", type=int, default=1, help="take each so-manieth schema")
    options.add_argument("--walks", type=int, default=4)
    options.add_argument("--limit", type=int, default=60)
    options.add_argument("--processes", type=int, default=1)
    options.add_argument("--show", type=int, default=25)
    options.add_argument("--list", action="store_true")
    args = options.parse_args()
    if args.suite is not None:
        _measure(
            args,
            list(_groups(args.suite, args.only)),
            _group_outcome,
            "schema_suite",
        )
    if args.folder is not None:
        paths = [p for p in sorted(args.folder.rglob("*.json")) if args.only in str(p)]
        paths = paths[:: args.every]
        names = [str(path.relative_to(args.folder)) for path in paths]
        work = partial(_schema_outcome, num_walks=args.walks, seed=args.seed)
        _measure(args, list(zip(names, paths, strict=True)), work, "schemas")


def _measure(args: Namespace, cases: list[Any], work: Any, benchmark: str) -> None:
    run = partial(_limited, work=work, limit=args.limit)
    outcomes: list[Outcome] = []
    with ProcessPoolExecutor(args.processes) as pool:
        found = pool.map(run, cases) if args.processes > 1 else map(run, cases)
        for outcome in found:
            outcomes.append(outcome)
            if args.list:
                _list(outcome)
    _show(outcomes, args)
    report(benchmark, figures(outcomes), args.out, seed=args.seed, walks=args.walks)


def figures(outcomes: list[Outcome]) -> dict[str, Any]:
    """Counts and times of a run."""
    taken = [o for o in outcomes if not o.refusal]
    seconds = sorted(o.seconds for o in outcomes) or [0.0]
    right = [o for o in taken if not (o.invalid or o.wrong or o.missed)]
    return {
        "schemas": len(outcomes),
        "accepted": len(taken),
        "share": round(len(taken) / max(1, len(outcomes)), 4),
        "right": len(right),
        "answers": sum(o.num_answers for o in taken),
        "cut": sum(o.num_cut for o in taken),
        "failed": sum(o.num_failed for o in taken),
        "invalid": sum(len(o.invalid) for o in taken),
        "false_accepts": sum(len(o.wrong) for o in taken),
        "false_rejects": sum(len(o.missed) for o in taken),
        "seconds_median": round(median(seconds), 4),
        "seconds_p95": round(seconds[int(0.95 * (len(seconds) - 1))], 3),
        "seconds_max": round(seconds[-1], 3),
    }


def _list(o: Outcome) -> None:
    line = f"{o.name}\t{o.seconds:.2f}\t{o.pointer}\t{o.refusal[:150]}"
    print(line, file=sys.stderr, flush=True)


def _show(outcomes: list[Outcome], args: Namespace) -> None:
    for o in outcomes:
        for kind, texts in (("INVALID", o.invalid), ("WRONG", o.wrong), ("MISSED", o.missed)):
            for text in texts:
                print(f"{kind} {o.name}: {text[:300]}", file=sys.stderr)
    reasons = Counter((_keyword(o.pointer), o.refusal[:90]) for o in outcomes if o.refusal)
    for (word, reason), count in reasons.most_common(args.show):
        print(f"{count:5} {word}: {reason}", file=sys.stderr)
    for o in sorted(outcomes, key=lambda o: -o.seconds)[:5]:
        print(f"slow  {o.name}: {o.seconds:.2f} s", file=sys.stderr)


def _keyword(pointer: str) -> str:
    return pointer.rpartition("/")[2]


def _limited(case: Any, work: Any, limit: int) -> Outcome:
    """The outcome of a case, or that it was late."""

    def stop(*_: object) -> None:
        raise Late

    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, limit)
    try:
        return work(case)
    except Late:
        return Outcome(case[0], "late", seconds=float(limit))
    except RecursionError:
        return Outcome(case[0], "RecursionError")
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _schema_outcome(case: tuple[str, Path], num_walks: int, seed: int) -> Outcome:
    name, path = case
    schema = json.loads(path.read_text(encoding="utf-8"))
    start = process_time()
    try:
        guide = constraints().guide(JsonSchema(schema, separators=SPACED))
    except InvalidCall as error:
        seconds = process_time() - start
        return Outcome(name, _reason(error), str(error.value)[:200], seconds)
    seconds = process_time() - start
    validator = _validator(schema)
    rng = Random(f"{seed} {name}")
    invalid, num_cut, num_failed = [], 0, 0
    for i in range(num_walks):
        try:
            text = walk(guide, rng, BUDGETS[i % len(BUDGETS)])
        except CallFailed as error:
            print(f"FAILED {name}: {error}", file=sys.stderr)
            num_failed += 1
            continue
        if text is None:
            num_cut += 1
        elif (why := fault_of(validator, text)) is not None:
            invalid.append(f"{why} in {text}")
    return Outcome(
        name,
        seconds=seconds,
        num_answers=num_walks - num_failed,
        num_cut=num_cut,
        num_failed=num_failed,
        invalid=(*invalid,),
    )


def _reason(error: InvalidCall) -> str:
    return str(getattr(error, "allowed", None) or getattr(error, "expected", "") or error)


@cache
def constraints() -> Constraints:
    """For the embedded tokenizer."""
    words = vocabularies.embedded()
    return Constraints(words.tokenizer.token_bytes, words.end_ids, words.tokenizer.encode)


def walk(guide: Guide, rng: Random, budget: int) -> str | None:
    """An answer of random tokens, of those after which it can end in time; None if it was cut."""
    cursor, data = guide.cursor(), b""
    token_bytes, ends = constraints()._token_bytes, set(constraints()._end_ids)
    for left in range(budget, 0, -1):
        if cursor.is_finished:
            return data.decode()
        bits = np.unpackbits(cursor.mask_within(left).view(np.uint8), bitorder="little")
        allowed = np.flatnonzero(bits).tolist()
        while allowed:
            token = allowed.pop(rng.randrange(len(allowed)))
            if token in ends or cursor.fits(token, left):
                break
        else:
            return None
        if token in ends:
            return data.decode()
        cursor.advance(token)
        data += token_bytes[token]
    return data.decode() if cursor.is_accepting else None


def fault_of(validator: Any, text: str) -> str | None:
    """Why a text is not a valid answer; None: it is one."""
    try:
        value = json.loads(text)
    except ValueError as error:
        return f"no JSON ({error})"
    try:
        error = next(validator.iter_errors(value), None)
    except (referencing.exceptions.Unresolvable, re.error):
        return None  # this validator cannot decide it
    return None if error is None else error.message[:100]


def _validator(schema: Any) -> Any:
    found = validators.validator_for(schema, Draft202012Validator)
    return found(schema, format_checker=found.FORMAT_CHECKER, registry=REGISTRY)


def _groups(folder: Path, only: str) -> Iterator[tuple[str, Any]]:
    """Groups of the suite below a folder, optional ones aside."""
    for path in sorted(folder.rglob("*.json")):
        if "optional" in path.parts or only not in str(path):
            continue
        for group in json.loads(path.read_text(encoding="utf-8")):
            name = f"{path.relative_to(folder)}: {group['description']}"
            yield name, (group, _dialect(path))


def _dialect(path: Path) -> str:
    drafts = {
        "draft3": "http://json-schema.org/draft-03/schema#",
        "draft4": "http://json-schema.org/draft-04/schema#",
        "draft6": "http://json-schema.org/draft-06/schema#",
        "draft7": "http://json-schema.org/draft-07/schema#",
        "draft2019-09": "https://json-schema.org/draft/2019-09/schema",
    }
    found = [drafts[part] for part in path.resolve().parts if part in drafts]
    return found[-1] if found else "https://json-schema.org/draft/2020-12/schema"


def _group_outcome(case: tuple[str, tuple[dict[str, Any], str]]) -> Outcome:
    name, (group, dialect) = case
    schema = group["schema"]
    if isinstance(schema, dict) and "$schema" not in schema:
        schema = {"$schema": dialect, **schema}
    start = process_time()
    tests = group["tests"]
    try:
        guide = constraints().guide(JsonSchema(schema, separators=SPACED))
    except InvalidCall as error:
        seconds = process_time() - start
        if not any(test["valid"] for test in tests) and _reason(error).endswith("value satisfies"):
            return Outcome(name, seconds=seconds)  # nothing is valid, as expected
        return Outcome(name, _reason(error), str(error.value)[:200], seconds)
    seconds = process_time() - start
    wrong = [t for t in tests if not t["valid"] and _is_accepted(guide, t["data"])]
    missed = [t for t in tests if t["valid"] and not _is_accepted(guide, t["data"])]
    return Outcome(
        name,
        seconds=seconds,
        wrong=tuple(f"{t['description']} {t['data']!r}" for t in wrong),
        missed=tuple(f"{t['description']} {t['data']!r}" for t in missed),
    )


def _is_accepted(guide: Guide, value: Any) -> bool:
    """Whether a value is accepted with its properties in some order."""
    for ordered in islice(_orders(value), MAX_ORDERS):
        text = json.dumps(ordered, ensure_ascii=False, separators=SPACED)
        try:
            if guide.cursor(text.encode()).is_accepting:
                return True
        except (ForkrootError, CallFailed, UnicodeEncodeError):
            continue
    return False


def _orders(value: Any) -> Iterator[Any]:
    """A value with its properties in any order; parts keep theirs."""
    if isinstance(value, dict):
        for names in permutations(value):
            yield {name: value[name] for name in names}
    else:
        yield value


if __name__ == "__main__":
    main()
