"""Lines of code of each program in five languages (paper, section 2)."""

from __future__ import annotations

from statistics import mean

from ..engines import Engines
from ..figure import Chart, Figure, Settings, Step
from ..listings.counting import SYSTEMS, WHY_NOT, definitions, lines, text_of
from ..rows import Row, missing

NAME = "lines of code"
LINES, TIMES = "lines of code", "times ours"
TITLES = {"forkroot": "ours", "openai": "OpenAI API", "guidance": "Guidance", "dspy": "DSPy"}
TITLES["lmql"] = "LMQL"
JUDGE = "essay_judge"


def steps(settings: Settings) -> list[Step]:
    """All counted at once."""
    return [Step("listings", _count, 1.0)]


def _count(engines: Engines) -> list[Row]:
    rows, ratios = list[Row](), dict[str, list[float]]()
    for program in definitions(text_of("openai")):
        own = lines("forkroot", program)
        assert own is not None, "each program is one of ours"
        for system in SYSTEMS:
            count, title = lines(system, program), program.replace("_", " ")
            if count is None:
                reason = WHY_NOT[system][program]
                rows.append(missing(NAME, LINES, title, TITLES[system], reason))
                continue
            rows.append(Row(NAME, LINES, title, TITLES[system], float(count)))
            ratios.setdefault(system, []).append(count / own)
            if program == JUDGE and system != "forkroot":
                paper = "2.1×" if system == "openai" else ""
                bar = 2.1 if system == "openai" else None
                cells = "the paper’s example, the essay judge", TITLES[system], count / own, "×"
                rows.append(Row(NAME, TIMES, *cells, bar=bar, paper=paper))
    for system in SYSTEMS[1:]:
        cells = "mean of all programs", TITLES[system], mean(ratios[system]), "×"
        rows.append(Row(NAME, TIMES, *cells))
    return rows


FIGURE = Figure(
    NAME,
    "Lines of code",
    "Section 2: the essay judge takes 2.1 times as many lines over an API like OpenAI’s. Table 1:"
    " fork, join, image and video are primitives of SGLang’s language alone.",
    "Every program as a function of its inputs, formatted alike, without annotations,"
    " docstrings and"
    " blank lines; helpers of a listing count where they are used. Guidance runs branches one after"
    " another; DSPy writes its own prompts, so its programs only have the same steps. The texts are"
    " in `benchmarks/paper/listings/`.",
    steps,
    (Chart(TIMES, unit="×", better=""), Chart(LINES, better="lower")),
)
