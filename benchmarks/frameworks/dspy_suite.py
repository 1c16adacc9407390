"""DSPy's own tests with our LM in place of its dummy.

    python benchmarks/frameworks/dspy_suite.py FOLDER [pytest options]

FOLDER: DSPy's `tests/` or a part of it, from a checkout of the version that is installed. Wherever
a test makes a `DummyLM`, it gets our LM on the embedded model, which knows nothing of the answers
that the dummy was given. Each test ends in one of: passed; "scripted": a check of the test itself
failed, which wants the dummy's answers; "typed": an error of DSPy's that names what was not
allowed; "fault": any other error, or one that ran out of time. Prints a line for each that did not
pass, and one JSON row. Tests without a `DummyLM` are not counted.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

from forkroot.benchmarks.common.packages import needs
from forkroot.benchmarks.common.report import report

with needs("dspy-ai pytest"):
    import dspy
    import dspy.utils.dummies
    import pytest

    from forkroot.adapters.dspy import LM

WORDS = {"passed": 0, "scripted": 1, "typed": 2, "fault": 3}


class Swapped(LM):  # type: ignore[misc]
    """Our LM, made with the arguments of DSPy's `DummyLM`."""

    num_made = 0

    def __init__(
        self,
        answers: Any = None,
        follow_examples: bool = False,
        reasoning: bool = False,
        adapter: Any = None,
        **keywords: Any,
    ) -> None:
        type(self).num_made += 1
        super().__init__(keywords.pop("where", "tiny"), max_tokens=64, cache=False, **keywords)
        self.answers = answers

    def get_convo(self, index: int) -> tuple[Any, Any]:
        """The prompt and the answer of a call, as the dummy has it."""
        return self.history[index]["messages"], self.history[index]["outputs"]


class Outcomes:
    """How each test that made an LM of ours has ended; a plugin of pytest."""

    def __init__(self) -> None:
        self.found: dict[str, tuple[str, str]] = {}
        self._num_before = 0

    def pytest_runtest_setup(self) -> None:
        """Count the LMs that were made before."""
        self._num_before = Swapped.num_made

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: Any, call: Any) -> Any:
        """Note the end of a test."""
        outcome = yield
        is_ours = Swapped.num_made > self._num_before
        if call.when == "call" and is_ours and not outcome.skipped:
            self.found[item.nodeid] = _ending(call.excinfo, Path(str(item.path)))
        return outcome


def _ending(info: Any, path: Path) -> tuple[str, str]:
    if info is None:
        return "passed", ""
    outcome = f"{info.typename}: {str(info.value).strip()[:160]!r}"
    if isinstance(info.value, dspy.LMError):
        return "typed", outcome
    is_tests = Path(str(info.traceback[-1].path)) == path
    is_check = isinstance(info.value, AssertionError | KeyError | IndexError | AttributeError)
    return ("scripted" if is_tests and is_check else "fault"), outcome


def main() -> None:
    folder, *options = sys.argv[1:]
    for module in (dspy.utils, dspy.utils.dummies):
        module.DummyLM = Swapped
    outcomes = Outcomes()
    quiet = ["-q", "--no-header", "--tb=no", "-p", "no:cacheprovider", "--timeout=60"]
    pytest.main([folder, *quiet, *options], plugins=[outcomes])
    for name, (ending, outcome) in sorted(outcomes.found.items(), key=lambda it: WORDS[it[1][0]]):
        if ending != "passed":
            print(f"{ending:9} {name}  {outcome}")
    counts = Counter(ending for ending, _ in outcomes.found.values())
    figures = {"tests": len(outcomes.found), **{word: counts[word] for word in WORDS}}
    report("dspy_suite", figures, False, dspy=dspy.__version__, model="tiny")


if __name__ == "__main__":
    main()
