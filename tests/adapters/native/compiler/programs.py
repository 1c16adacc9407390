"""Programs that are compiled in tests: each word of the language, alone and together."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import forkroot
import forkroot.sglang as sgl
from forkroot import (
    assistant,
    function,
    gen,
    gen_int,
    gen_string,
    image,
    select,
    system,
    user,
    video,
)
from forkroot.adapters.testing import ScriptedBackend, prompt_text
from forkroot.core.api.protocol import Call
from forkroot.examples.essay_judge import essay_judge
from forkroot.examples.picture_judge import clip_judge, frame_judge, picture_judge

from .odd_programs import ODD

PNG = bytes.fromhex("89504e470d0a1a0a") + b"picture"
SCHEMA = {"type": "object", "properties": {"b": {"type": "integer"}, "a": {"type": "string"}}}


@dataclass(frozen=True)
class Case:
    """A program, what it is compiled for, and what each run gives."""

    program: Any
    arguments: Mapping[str, Any] = field(default_factory=dict)
    fixed: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        settings = "".join(f" {key}" for key in self.settings)
        return (
            f"{self.program.name}{''.join(f' {v}' for v in self.arguments.values())}"[:40]
            + settings
        )


def answer(call: Call) -> Any:
    """An answer that depends on all that was asked, and on nothing else."""
    seen = repr((prompt_text(call.prompt), call.constraint, call.sampling.seed, call.options))
    digest = hashlib.sha256(seen.encode()).hexdigest()
    if call.options:
        return call.options[int(digest[:4], 16) % len(call.options)]
    texts = [f" {digest[4 * n : 4 * n + 6]}." for n in range(call.sampling.n)]
    return texts if call.sampling.n > 1 else texts[0]


def backend() -> ScriptedBackend:
    return ScriptedBackend(answer)


@function
def constants(s: Any) -> None:
    s += "One. " + "Two. "
    s += "Three."
    s += gen("a", max_tokens=4)


@function
def arguments(s: Any, text: str, number: Any) -> str:
    s += f"[{text}] [{number:>5}] [{number!r}] [{text:.3}] [{text!s}]" + str(number) + text
    s += text
    s += gen("a") + ", " + text + gen("b")
    return f"{text}: {s['a']}"


@function
def defaults(s: Any, question: str, style: str = "brief", num: int = 2, extra: Any = None) -> None:
    s += f"{question} in {style} style. "
    if extra is not None:
        s += extra
    for index in range(num):
        s += f"{index}: " + gen(f"answer {index}", stop="\n")


@function
def settings(s: Any, text: str) -> None:
    s += text + gen(
        "a", 5, temperature=0.5, top_p=0.9, stop=["x", "y"], seed=3, logit_bias={7: 1.5}
    )
    s += gen("b", regex="[a-z]+", min_tokens=1) + gen(
        "c", json_schema=SCHEMA, frequency_penalty=0.5
    )
    s += gen_int("d") + gen_string("e", 7) + gen("f", dtype=bool) + gen()
    s += gen("g", grammar='start: "x"', n=2) + gen("h", choices=["yes", "no"], return_logprob=False)


@function
def scored(s: Any, text: str) -> None:
    s += text + gen("a", return_logprob=True, top_logprobs_num=2, scored_from=0)
    s += select("b", ["u", "v"], choices_method="unconditional_likelihood_normalized")
    s += select("c", ["u", "v"], choices_method="greedy_token_selection")


@function
def chat(s: Any, question: str) -> None:
    s += system("You are brief.")
    with s.user():
        s += f"Question: {question}"
    s.assistant(gen("first", max_tokens=8))
    s += user("And?") + assistant("Well, " + gen("second"))
    s += forkroot.role("tool", "found") + assistant(gen("third"))


@function
def scopes(s: Any, text: str) -> str:
    with s.var_scope("outer"):
        s += "a" + text
        with s.var_scope("inner"):
            s += "b" + gen("x")
    s += " / " + s["inner"] + " / " + s["outer"]
    return s["outer"]


@function
def forks(s: Any, topic: str) -> list[str]:
    s += f"Tips on {topic}.\n"
    group = s.fork(3)
    group += lambda index: f"Tip {index}: "
    group += gen("tip", max_tokens=9)
    group.join()
    s += "Summary of " + str(s["tip"]) + gen("summary")
    return list(s["tip"])


@function
def appended(s: Any, topic: str) -> None:
    s += topic
    group = s.fork(2)
    group += ["left ", "right "]
    group += gen("side")
    group.join("concate_and_append")
    s += gen("end")


@function
def nested(s: Any, topic: str) -> None:
    s += topic
    for branch in s.fork(2):
        branch += "outer" + gen("plan")
        inner = branch.fork(2)
        inner += gen("detail")
        inner.join()
        branch += "both: " + f"{branch['detail'][1]} {branch['plan']}" + gen("done")
        s += branch["done"] + gen("last")


@function
def uneven(s: Any, topic: str) -> None:
    s += topic
    group = s.fork(3)
    group[0] += gen("x") + gen("y")
    group[1] += "nothing"
    group[2] += gen("x")
    group.join()
    s += str([value is None for value in s["x"]]) + str(s["y"]) + gen("end")


@function
def crossing(s: Any, topic: str) -> None:
    s += topic
    group = s.fork(3)
    for number, branch in enumerate(group):
        if number:
            branch += "before me: " + group[number - 1]["view"] + "\n"
        branch += gen("view")
    s += "last: " + group[2]["view"] + gen("end")


@function
def copied(s: Any, topic: str) -> None:
    s += topic
    with s.copy() as trial:
        trial += "try: " + gen("draft")
        s += "draft was " + trial["draft"]
    s += gen("final")


@function
def rewritten(s: Any, topic: str) -> tuple[str, str]:
    s += topic + gen("answer")
    first = s["answer"]
    s += " again" + gen("answer")
    s += " compare " + first + s["answer"] + gen("end")
    return first, s["answer"]


@function
def several(s: Any, topic: str) -> dict[str, Any]:
    s += topic + gen("votes", n=3, temperature=1.0)
    s += "first " + s["votes"][0] + " last " + s["votes"][-1] + gen("end")
    return {"votes": s["votes"], "end": s["end"], "num": len(s["votes"])}


@function
def branching(s: Any, text: str) -> str:
    s += text + select("mood", ["good", "bad", "neither", "both"])
    if s["mood"] == "good":
        s += " why good" + gen("why")
    elif s["mood"] in ("bad", "both"):
        s += f" why {s['mood']}" + gen("why")
    else:
        return "nothing to say"
    s += select("sure", [" yes", " no"])
    if s["sure"].strip().upper() == "YES":
        s += "!"
    s += " so " + s["mood"] + gen("end")
    return s["why"] + s["sure"]


@function
def looked_up(s: Any, text: str) -> None:
    s += text + select("tool", ["search", "add"])
    s += {"search": "Searching: ", "add": "Adding: "}[s["tool"]] + gen("call")
    match s["tool"]:
        case "search":
            s += " found"
        case _:
            s += " sum"


@function
def unread(s: Any, text: str) -> None:
    s += text + select("a", ["1", "2"])
    if s["a"] == "1":
        s += " same"
    else:
        s += " same"
    s += gen("b")


@function
def part(s: Any, text: str) -> str:
    s += "part " + text + gen("inner")
    return s["inner"]


@function
def whole(s: Any, text: str) -> str:
    s += "whole "
    found = part(s, text)
    s += " took " + found + gen("outer")
    return found


@function
def shown(s: Any, picture: bytes, frames: bytes) -> None:
    s += "Look: " + image(PNG) + image(picture) + video(frames, 2) + gen("seen")


@function
def looped(s: Any, items: list[str], question: str) -> None:
    for number, item in enumerate(items):
        s += f"{number}. {item}\n"
    s += question + gen("answer")


@function
def with_backends(s: Any, text: str) -> None:
    s += text + gen("a") + gen("b", backend="other") + select("c", ["x", "y"], backend="other")


@function
def template(s: Any, text: str) -> None:
    s += text + '{"a": "' + gen("a", 8, stop='"') + '", "b": "' + gen("b", 8, stop='"') + '"}'
    s += " / " + s["a"] + gen("c", 8, stop=".")


@function
def returned(s: Any, text: str) -> Any:
    s += text + gen("a")
    return s


@function
def judge(s: Any, root: str, questions: list[str], length: int) -> None:
    s += root
    branches = s.fork(len(questions))
    for branch, question in zip(branches, questions, strict=True):
        branch += question + gen("answer", max_tokens=length, temperature=0.0, ignore_eos=True)
    branches.join()


@function
def read(s: Any, name: str, age: int, passage: str) -> None:
    s += f'{passage}\nJSON: {{"name": "{name}", "age": {age}, "job": "'
    s += gen("job", 12, stop='"') + '", "city": "' + gen("city", 24, stop='"')
    s += '", "house": "' + gen("house", 12, stop='"') + '"}'


@sgl.function
def sgl_chat(s: Any, question: str) -> None:
    s += sgl.system("Brief.")
    s += sgl.user(question)
    s += sgl.assistant(sgl.gen("answer", max_tokens=6, stop="\n"))
    forks = s.fork(2)
    forks += sgl.user("Again.")
    forks += sgl.assistant(sgl.gen("more"))
    s += sgl.user(" ".join(f"{text}" for text in forks["more"])) + sgl.assistant(sgl.gen("end"))


@sgl.function
def sgl_part(s: Any, text: str) -> None:
    s += text + sgl.gen("found", max_tokens=5)


@sgl.function
def sgl_whole(s: Any, text: str) -> None:
    s += "whole "
    first, second = sgl_part(text), sgl_part(text + "!")
    s += first["found"] + second["found"] + sgl.gen("end")
    with s.copy() as trial:
        trial += sgl.gen("draft")
    s += str(s["draft"])


_TEXT = {"text": "Some text."}
_FRAMES = {"frames": [PNG, PNG + b"2"], "question": "What?"}
CASES = [
    Case(constants),
    Case(arguments, {**_TEXT, "number": 12}),
    Case(arguments, {"text": "ü{}\n %s", "number": "n"}),
    Case(defaults, {"question": "Why?"}),
    Case(defaults, {"question": "Why?", "style": "long"}, {"num": 3, "extra": "More. "}),
    Case(settings, _TEXT),
    Case(settings, _TEXT, settings={"temperature": 0.1, "max_tokens": 3, "priority": 2}),
    Case(scored, _TEXT),
    Case(chat, {"question": "Why?"}),
    Case(scopes, _TEXT),
    Case(forks, {"topic": "tea"}),
    Case(appended, {"topic": "tea"}),
    Case(nested, {"topic": "tea"}),
    Case(uneven, {"topic": "tea"}),
    Case(crossing, {"topic": "tea"}),
    Case(copied, {"topic": "tea"}),
    Case(rewritten, {"topic": "tea"}),
    Case(several, {"topic": "tea"}),
    *(Case(branching, {"text": text}) for text in ("a", "b", "c", "d", "e", "f")),
    *(Case(looked_up, {"text": text}) for text in ("a", "b", "c")),
    Case(unread, _TEXT),
    Case(whole, _TEXT),
    Case(shown, {"picture": PNG + b"1", "frames": PNG + b"2"}),
    Case(looped, {"question": "Which?"}, {"items": ["one", "two", "three"]}),
    Case(with_backends, _TEXT, settings={"backends": ["first", "other"]}),
    Case(template, _TEXT),
    Case(template, _TEXT, settings={"speculate": True}),
    Case(returned, _TEXT),
    Case(sgl_chat, {"question": "Why?"}),
    Case(sgl_whole, _TEXT),
    *(Case(essay_judge, {"topic": "tea", "essay": text}) for text in ("Long.", "Short.", "None.")),
    *(Case(picture_judge, {"picture": PNG, "thing": text}) for text in ("star", "dot", "line")),
    Case(clip_judge, {"clip": PNG}, {"num_frames": 2, "questions": ["Who?", "Where?"]}),
    Case(frame_judge, {}, _FRAMES),
    Case(judge, {"root": "Root."}, {"questions": ["a", "b", "c"], "length": 4}),
    Case(read, {"name": "Ann", "age": 3, "passage": "Ann is 3."}),
    Case(read, {"name": "Ann", "age": 3, "passage": "Ann is 3."}, settings={"speculate": 40}),
    *(Case(*odd) for odd in ODD),
]


def run(runner: Callable[..., Any], case: Case, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """All that can be read of one run."""
    given = dict(case.settings)
    if "backends" in given:
        given["backends"] = {name: backend() for name in given["backends"]}
    else:
        given["backend"] = backend()
    return seen(runner(**arguments, **given))


def seen(state: Any) -> dict[str, Any]:
    """All that can be read of an ended state."""
    names = sorted(state._interpreter.variables.values)
    value = state.ret_value
    return {
        "text": state.text(),
        "messages": state.messages(),
        "variables": {name: state[name] for name in names},
        "meta": {name: _plain(state.get_meta_info(name)) for name in names},
        "totals": state.get_meta_info(),
        "value": value.text() if isinstance(value, forkroot.ProgramState) else value,
        "pieces": "".join(state.text_iter()),
    }


def _plain(value: Any) -> Any:
    """As JSON has it."""
    return json.loads(json.dumps(value, default=asdict))
