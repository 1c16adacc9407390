"""What a graph cannot say is refused, with the line and what to write instead."""

from __future__ import annotations

import html
import json
import random
import re
import textwrap
from typing import Any

import pytest

from forkroot import NotTraceable, function, gen, image, select
from forkroot.adapters.native.compiler import recorder
from forkroot.adapters.native.compiler.graph.nodes import ConstantText, Gen
from forkroot.adapters.testing import ScriptedBackend
from forkroot.core.api.protocol import InvalidCall

from .programs import answer, part

pytestmark = pytest.mark.timeout(180)
LIVE = ScriptedBackend("x")


def if_argument(s, x):
    if x:
        s += "a"


def length(s, x):
    s += "a" * len(x)


def iteration(s, x):
    for item in x:
        s += item


def equality(s, x):
    s += "a" if x == "b" else "c"


def index(s, x):
    s += x["name"]


def method(s, x):
    s += x.upper()


def key(s, x):
    s += {"a": "b"}[x]


def number(s, x):
    s += "a" * int(x)


def membership(s, x):
    s += "a" if "b" in x else "c"


def if_answer(s, x):
    s += x + gen("a")
    s += "b" if s["a"] == "yes" else "c"


def searched(s, x):
    s += x + gen("a")
    s += str(re.search(r"\d", s["a"]))


def swallowed(s, x):
    try:
        s += "a" if x else "b"
    except Exception:
        s += "c"


def stripped(s, x):
    s += f"{x}".strip()


def stripped_newlines(s, x):
    s += f"{x}".strip("\n")


def lowered(s, x):
    s += f"{x}".lower()


def sliced(s, x):
    s += f"{x}"[:1]


def replaced(s, x):
    s += f"{x}".replace(" ", "_")


def escaped(s, x):
    s += html.escape(f"{x}")


def dumped(s, x):
    s += json.dumps({"x": f"{x}"})


def dedented(s, x):
    s += textwrap.dedent(f"""
        {x}
        """)


def formatted_twice(s, x):
    s += f"{x} {{}}".format(1)


def joined(s, x):
    s += ", ".join([x, x])


def text_length(s, x):
    s += f"{x}" + str(len(f"{x}"))


def chance(s, x):
    s += x + str(random.random())


def setting(s, x):
    s += gen("a", max_tokens=x)


def setting_in_text(s, x):
    s += gen("a", stop=f"{x}")


def schema(s, x):
    s += gen("a", json_schema={"enum": [f"{x}"]})


def options(s, x):
    s += select("a", ["b", f"{x}"])


def named(s, x):
    s += gen(f"{x}")


def width(s, x):
    s += f"{1:>{x}}"


def fork_number(s, x):
    s.fork(x)


def live_backend(s, x):
    s += gen("a", backend=LIVE)


def read_text(s, x):
    s += x
    s += s.text()


def read_meta(s, x):
    s += gen("a")
    s += str(s.get_meta_info("a"))


def other_run(s, x):
    part.run(text=x)


def shown_answer(s, x):
    s += gen("a")
    s += image(s["a"])


def object_returned(s, x):
    return object()


def unset(s, x):
    s += s["nothing"]


@pytest.mark.parametrize(
    "body",
    [
        *(if_argument, length, iteration, equality, index, method, key, number, membership),
        *(if_answer, searched, swallowed, stripped, stripped_newlines, lowered, sliced, replaced),
        *(escaped, dumped, dedented, formatted_twice, joined, text_length, chance, setting),
        *(setting_in_text, schema, options, named, width, fork_number, live_backend, read_text),
        *(read_meta, other_run, shown_answer, object_returned, unset),
    ],
    ids=lambda it: it.__name__,
)
def test_what_depends_on_an_unknown_value_is_refused_with_its_line(body: Any) -> None:
    with pytest.raises(NotTraceable) as caught:
        function(body).compile()
    code = body.__code__
    lines = {line for *_, line in code.co_lines() if line is not None}
    assert caught.value.file == __file__
    assert caught.value.line in lines
    assert caught.value.instead


def test_a_setting_is_named_as_one() -> None:
    with pytest.raises(NotTraceable, match=r"gen\(\.\.\.\) has a setting .* argument 'x'"):
        function(setting).compile()


def test_arguments_given_to_compile_are_known() -> None:
    compiled = function(iteration).compile(x=["a", "b"])
    assert [node.text for node in compiled.graph.nodes] == ["a", "b"]
    compiled.run(x=["a", "b"], backend=ScriptedBackend(answer))
    with pytest.raises(InvalidCall, match="compiled for it"):
        compiled.run(x=["c"], backend=ScriptedBackend(answer))


def test_an_argument_without_a_text_as_default_is_fixed_unless_it_is_unknown() -> None:
    @function
    def body(s: Any, num: int = 2, style: str = "s") -> None:
        s += f"{num} {style}"

    backend = ScriptedBackend(answer)
    assert body.compile().run(style="t", backend=backend).text() == "2 t"
    assert body.compile(unknown=["num"]).run(num=5, backend=backend).text() == "5 s"
    with pytest.raises(InvalidCall, match="num"):
        body.compile().run(num=5, backend=backend)


def test_branches_on_selects_have_a_block_each_and_equal_ones_one() -> None:
    @function
    def body(s: Any) -> None:
        s += select("a", ["1", "2", "3"])
        s += "one" if s["a"] == "1" else "more"

    blocks = body.compile().graph.blocks
    assert [case.options for case in blocks[0].switch.cases] == [("1",), ("2", "3")]


def test_more_than_64_paths_are_refused() -> None:
    @function
    def body(s: Any) -> None:
        for index in range(7):
            s += select(f"a{index}", ["0", "1"])
            s += "x" if s[f"a{index}"] == "0" else "y"

    with pytest.raises(NotTraceable, match="64 paths"):
        body.compile()


def test_a_loop_that_a_select_ends_is_refused_whatever_its_first_option() -> None:
    @function
    def body(s: Any) -> None:
        while True:
            s += gen("thought", stop="\n") + select("next", ["act", "finish"])
            if s["next"] == "finish":
                break

    with pytest.raises(NotTraceable, match="64 paths"):
        body.compile()


def test_a_loop_that_never_ends_is_refused_with_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "MAX_NODES", 1000)

    @function
    def body(s: Any) -> None:
        while "done" not in s:
            s += "k" + gen("w", 3)

    with pytest.raises(NotTraceable, match="more than 1000") as caught:
        body.compile()
    assert caught.value.file == __file__
    assert caught.value.line == body.__wrapped__.__code__.co_firstlineno + 3


def test_settings_are_those_of_the_language() -> None:
    @function
    def body(s: Any) -> None:
        s += gen("a", dtype=int, stop="x", n=2)

    (node,) = body.compile().graph.nodes
    assert isinstance(node, Gen)
    assert node.sampling == {"stop": ("x",), "n": 2}


def test_tracing_calls_no_backend() -> None:
    @function
    def body(s: Any, x: str) -> None:
        s += f"a{x}b" + gen("c")

    graph = body.compile().graph
    texts = [node.text for node in graph.nodes if isinstance(node, ConstantText)]
    assert texts == ["a", "b"]


def padded(s: Any, t: str) -> None:
    s += str(t).ljust(10) + "|"


def padded_by_a_template(s: Any, t: str) -> None:
    template = "%4s".replace("4", "6")
    s += template % t


def compared(s: Any, t: str) -> None:
    if f"{t}" == "yes":
        s += "!"


def asked(s: Any, t: str) -> None:
    s += "!" if str(t) else "?"


def joined_texts(s: Any, t: str) -> None:
    s += t + gen("a", n=2)
    s += ", ".join(s["a"])


def missing(s: Any, t: str) -> None:
    s += {"a": "b"}[f"{t}!"]


def missing_option(s: Any, t: str) -> None:
    s += t + select("k", ["a", "b"])
    s += {"a!": "A", "b!": "B"}[f"{s['k']}!"]


@pytest.mark.parametrize(
    ("body", "operation"),
    [
        (padded, "does something else for another value"),
        (padded_by_a_template, "does something else for another value"),
        (compared, "== of argument 't'"),
        (asked, "bool(...), as in `if` and `and` of argument 't'"),
        (joined_texts, "gives a value that is not known to what takes text only"),
        (missing, "raises KeyError for a text with unknown parts, '{t}!'"),
        (missing_option, "raises KeyError for a text with unknown parts, '{k}!'"),
    ],
    ids=lambda it: getattr(it, "__name__", ""),
)
def test_a_text_of_an_unknown_value_is_not_taken_for_a_known_one(body: Any, operation: str) -> None:
    with pytest.raises(NotTraceable) as caught:
        function(body).compile()
    assert caught.value.operation.startswith(operation)
    assert caught.value.file == __file__
    assert 0 <= caught.value.line - body.__code__.co_firstlineno <= 2
    assert caught.value.instead
