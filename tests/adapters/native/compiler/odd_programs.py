"""Programs that use Python as people do: loops, helpers, recursion, early returns, format specs."""

from __future__ import annotations

from typing import Any

from forkroot import assistant, function, gen, image, select, system, user

PNG = bytes.fromhex("89504e470d0a1a0a") + b"picture"
OPTIONS = ["a", "b", "c"]


@function
def constant_loop(s: Any, t: str) -> None:
    for number, word in enumerate(("one", "two", "three"), 1):
        s += f"{number:02d}. {word.upper()!r:>10} {t}" + gen(f"g{number}", max_tokens=number)
    s += " ".join([s[f"g{number}"] + "!" for number in range(1, 4)]) + gen("end")


@function
def nested_functions(s: Any, t: str) -> dict[str, Any]:
    def ask(question: str, name: str) -> Any:
        nonlocal s
        s += f"Q: {question} A:"
        s += gen(name, max_tokens=4)
        return s[name]

    first = ask(t, "one")
    second = ask(f"why {first}?", "two")
    s += f"{first:>20}|{second!s:.3}|{second!r}"
    return {"a": first, "b": [second, (first, second)]}


def _grown(branch: Any, number: int) -> Any:
    branch += f"view {number}" + gen("v", stop="\n")
    return branch


@function
def comprehension(s: Any, t: str) -> None:
    s += t
    views = [it["v"] for it in [_grown(it, number) for number, it in enumerate(s.fork(3))]]
    s += "".join(f"\n- {view:<8}" for view in views) + gen("end")


@function
def three_deep(s: Any, t: str) -> str:
    s += t + select("k1", OPTIONS)
    if s["k1"] == "a":
        s += "1a" + select("k2", OPTIONS)
        if s["k2"] in ("a", "b"):
            s += "2ab" + select("k3", OPTIONS)
            if s["k3"] != "c":
                s += "3" + gen("g")
            else:
                return "deep c"
        elif s["k2"] == "c":
            s += "2c"
    elif s["k1"] == "b":
        s += {"a": "AA", "b": "BB"}[f"{s['k1']}"]
    else:
        s += gen("other")
        return str(s["other"])
    s += " end " + s["k1"] + gen("last")
    return str(s["last"])


@function
def handled(s: Any, t: str) -> None:
    try:
        s += t + gen("a")
        raise ValueError("no")
    except ValueError as error:
        s += f" ({error}) "
    finally:
        s += gen("b")


@function
def early(s: Any, t: str) -> Any:
    s += t
    number = 0
    while number < 5:
        s += gen("a", max_tokens=2)
        if number == 2:
            return s["a"]
        number += 1
    s += "never"


@function
def adding(s: Any, t: str) -> None:
    one, other = gen("a"), " and " + gen("b")
    s += one + other
    s += t + (s["a"] + s["b"]) + gen("c")
    s += s["a"] + "x" + s["b"] + "{} {:>6} {x!r:>9}".format(t, t, x=t) + "%s|%8s" % (t, s["a"])  # noqa: UP031, UP032


@function
def roles(s: Any, t: str) -> None:
    s += system("Be " + t)
    s += user("one " + t) + assistant("ok " + gen("a"))
    s.user(f"{s['a']} again")
    s.assistant(gen("b") + "!")
    with s.user():
        s += "more"
        s += t
    with s.assistant():
        s += gen("c")
        s += select("d", OPTIONS)


@function
def forks_of_forks(s: Any, t: str) -> None:
    s += t
    found = []
    for number, branch in enumerate(s.fork(2)):
        branch += f"b{number}"
        parts = branch.fork(2)
        for index, part in enumerate(parts):
            part += f"c{index}"
            deep = part.fork(2)
            deep += gen("x", max_tokens=2)
            deep.join("concate_and_append")
            part += gen("y")
        found.append([part["y"] for part in parts])
        parts.join()
        branch += str(branch["y"]) + gen("z")
    s += str([it[0] + it[1] for it in found][-1]) + gen("end")


@function
def filtered(s: Any, t: str) -> tuple[list[Any], Any]:
    s += t
    group = s.fork(4)
    group += [gen("v"), "nothing", "w" + gen("v"), gen("other")]
    group.join()
    good = [value for value in s["v"] if value is not None]
    s += " / ".join(map(str, good)) + gen("end")
    return good, s["other"]


@function
def recursive(s: Any, depth: int, t: str) -> None:
    s += f"<{depth}:{t}>"
    if depth:
        s += gen(f"g{depth}")
        recursive(s, depth - 1, s[f"g{depth}"])
        for branch in s.fork(2):
            recursive(branch, 0, t)
            branch += gen("leaf")


@function
def variadic(s: Any, *args: Any, **kwargs: Any) -> None:
    s += str(args) + str(sorted(kwargs)) + gen("a")


@function
def keywords(s: Any, t: str, *, style: str = "brief", n: int = 2, flag: bool = True) -> None:
    s += t + style
    if flag:
        s += "".join(str(number) for number in range(n)) + gen("a")


@function
def lambdas(s: Any, t: str) -> None:
    ask = lambda question: question + ": " + gen(question, max_tokens=3)  # noqa: E731
    for question in sorted(("z", "y"), key=lambda it: it):
        s += ask(question)
    group = s.fork(2)
    group += lambda index: f"{index}" + t
    group += lambda index: ask(f"k{index}")
    s += (lambda one, other: f"{one}{other}")(group[0]["k0"], group[1]["k1"])


@function
def pictures(s: Any, p: bytes, t: str) -> None:
    s += user("look " + image(p) + t)
    s += assistant(gen("a"))
    group = s.fork(2)
    group += user("one" + image(PNG)) + assistant(gen("b"))
    s += user(group[0]["b"] + group[1]["b"]) + assistant(gen("c"))


@function
def scopes_in_scopes(s: Any, t: str) -> tuple[Any, Any]:
    with s.var_scope("whole"):
        s += t + gen("a")
        with s.var_scope("in"):
            s += "q" + gen("b")
    s += f"[{s['whole']:^30}] [{s['in']}]" + gen("c")
    return s["whole"], s["in"]


@function
def matched(s: Any, t: str) -> None:
    s += t + select("k", OPTIONS)
    match s["k"]:
        case "a" | "b":
            s += "ab"
        case other:
            s += other
    s += select("k", ["x", "y"])
    s += f"{s['k']!r:>8}" + gen("end")
    if str(s["k"]) == "x":
        s += "x again"


@function
def voted(s: Any, t: str) -> int:
    s += t + gen("v", n=3)
    for value in s["v"]:
        s += f"- {value}"
    first, *rest = s["v"]
    s += first + rest[-1] + gen("end")
    return len(s["v"])


@function
def copies(s: Any, t: str) -> None:
    s += t
    with s.copy() as one:
        one += gen("x")
        with one.copy() as other:
            other += gen("y")
            one += other["y"]
    s += one["x"] + gen("end")


@function
def keyed(s: Any, t: str, u: str) -> None:
    table = {f"{t}": "one", f"{t}-{u}": "two", f"{u!r:>4}": "three"}
    s += table[f"{t}"] + table[f"{t}-{u}"] + table[f"{u!r:>4}"] + gen("a")


TEXT = {"t": "x"}
ODD: list[tuple[Any, dict[str, Any], dict[str, Any]]] = [
    *((it, TEXT, {}) for it in (constant_loop, nested_functions, comprehension, handled, early)),
    *((it, TEXT, {}) for it in (adding, roles, forks_of_forks, filtered, keywords, lambdas)),
    *((it, TEXT, {}) for it in (scopes_in_scopes, voted, copies)),
    *((three_deep, {"t": text}, {}) for text in "mnopqrs"),
    *((matched, {"t": text}, {}) for text in "mno"),
    (recursive, TEXT, {"depth": 3}),
    (variadic, {}, {}),
    (keywords, {"t": "x", "style": "long"}, {"n": 4, "flag": False}),
    (pictures, {"p": PNG, "t": "x"}, {}),
    (keyed, {"t": "x", "u": "y"}, {}),
]
