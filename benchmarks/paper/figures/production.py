"""A day of production traffic, replayed (paper, section 6.2)."""

from __future__ import annotations

from statistics import mean

from forkroot.core.api.protocol import Call, Sampling, Tokens

from ..engines import OURS, Engine, Engines
from ..figure import Chart, Figure, Settings, Step
from ..metered import Metered
from ..rows import Row
from ..traces import LLAVA, VICUNA, Request, Traffic, requests

NAME = "production"
RATE, FIRST, TIMES = "hit rate", "first token", "first token, times lower"
PAPERS = {VICUNA.name: "1.7×", LLAVA.name: ""}


def steps(settings: Settings) -> list[Step]:
    """A model's traffic, with the cache and without."""
    return [
        Step(it.name, lambda engines, it=it: _replay(it, engines), settings.pick(2, 10, 60))
        for it in (VICUNA, LLAVA)
    ]


def _replay(traffic: Traffic, engines: Engines) -> list[Row]:
    settings = engines.settings
    context = engines.ours().backend.info().context_len
    trace = requests(traffic, settings.num(4, 10, 300), settings.seed, min(2048, context))
    found = {OURS: _run(trace, engines.ours()), "no cache": _run(trace, engines.ours("no cache"))}
    note = f"synthetic day of {len(trace)} calls, one at a time"
    title = traffic.name
    rows = [
        Row(NAME, RATE, title, OURS, found[OURS][0], paper=f"{traffic.hit_rate:.1%}", note=note)
    ]
    for series, (_, first) in found.items():
        rows.append(Row(NAME, FIRST, title, series, first * 1e3, "ms", note=note))
    ratio = found["no cache"][1] / found[OURS][1]
    bar = 1.7 if PAPERS[title] else None
    cells = title, OURS, ratio, "×"
    return [*rows, Row(NAME, TIMES, *cells, bar=bar, paper=PAPERS[title], note=note)]


def _run(trace: list[Request], engine: Engine) -> tuple[float, float]:
    """The hit rate, and the mean of the first tokens, in seconds. Traffic is low: calls come one at
    a time, and what lies between them takes no time here."""
    with engine.awake():
        metered, answers = Metered(engine.backend), dict[int, list[int]]()
        prompt_tokens = cached_tokens = 0
        for request in trace:
            before = iter(answers.setdefault(request.conversation, []))
            ids = tuple(next(before) if token < 0 else token for token in request.prompt)
            sampling = Sampling(max_tokens=request.answer, temperature=0.0, ignore_eos=True)
            completion = metered.submit(Call((Tokens(ids),), sampling)).result()
            answers[request.conversation] += completion.outputs[0].ids
            prompt_tokens += completion.usage.prompt_tokens
            cached_tokens += completion.usage.cached_tokens
        metered.end()
    return cached_tokens / prompt_tokens, mean(metered.firsts)


FIGURE = Figure(
    NAME,
    "Production traffic",
    "Section 6.2: after a month in Chatbot Arena a hit rate of 52.4 % for LLaVA-Next-34B and of"
    " 74.1 % for Vicuna-33B, whose first tokens come 1.7× earlier.",
    "A day of calls in the shapes of the two models: common system messages, example pictures that"
    " recur (as the tokens that stand for them), conversations of several turns; lengths are drawn"
    " so that the possible hit rate is near the published one. First tokens are means.",
    steps,
    (Chart(TIMES, unit="×", is_ratio=True), Chart(RATE), Chart(FIRST, unit="ms", better="lower")),
)
