"""Calls of functions with made-up names: requests in many shapes, the right function among several,
its arguments copied as JSON, and the function's answer told in words.
"""

from collections.abc import Sequence
from typing import NamedTuple

from ..world.data import table_of
from ..world.document import END_TURN, SYSTEM, TURN, Document, Pen
from ..world.functions import Function, Parameter, Value, function, object_schema, parameter, value
from .chat import exchange, offer_of, small_talk, turn

FORMS: dict[str, list[str]] = table_of(__file__)


class Asked(NamedTuple):
    """A function, the words that ask for it, and its arguments in order."""

    function: Function
    request: str
    arguments: tuple[Value, ...]


def function_calls(pen: Pen) -> Document:
    """Functions of numbers and words, asked for as f(3), by their name, or as one would say it."""
    return conversation(pen, "function_calls", [function_asked(pen) for _ in range(offers(pen))])


def offers(pen: Pen) -> int:
    """How many of the functions that are offered are asked for."""
    return pen.rng.choice((1, 1, 1, 2))


def conversation(pen: Pen, task: str, asked: list[Asked]) -> Document:
    """The functions offered among others, then each request with its call."""
    doc, asked = Document(task), list({it.function.name: it for it in asked}.values())
    turn(doc, "system", offer(pen, [it.function for it in asked]))
    if pen.chance(0.15):
        turn(doc, "system", pen.one(SYSTEM, "Answer in few words.", "You are kind.", "Be brief."))
    if pen.chance(0.12):
        exchange(doc, *small_talk(pen))
    for it in asked:
        turn(doc, "user", it.request)
        put_call(doc, it)
        if pen.chance(0.3):
            put_result(pen, doc)
    return doc


def offer(pen: Pen, needed: list[Function]) -> str:
    """The system turn that offers these functions and up to two others, as the chat template
    writes it.
    """
    others = [function(pen) for _ in range(pen.rng.choice((0, 0, 1, 2)))]
    every = {f.name: f for f in (*others, *needed)}
    names = pen.rng.sample(list(every), len(every))
    return offer_of({"name": name, "parameters": every[name].schema} for name in names)


def put_call(doc: Document, asked: Asked) -> None:
    """Append the assistant's turn: the call, in which the name and each value are decisions."""
    doc.say(f"{TURN}assistant\n").answer('<tool_call>{"name": "').decide(asked.function.name)
    doc.answer('", "arguments": {')
    for i, (p, v) in enumerate(zip(asked.function.parameters, asked.arguments, strict=True)):
        doc.answer(f'{", " if i else ""}"{p.key}": ').decide(v.written)
    doc.answer(f"}}}}</tool_call>{END_TURN}").say("\n")


def put_result(pen: Pen, doc: Document) -> None:
    """Append the function's answer, bare or as JSON, and the assistant's telling of it."""
    key = pen.one("result", "result", "output", "value")
    result = value(pen, parameter(pen, key, pen.one("integer", "number", "string")))
    bare = pen.chance(0.4)
    turn(doc, "tool", result.said if bare else f'{{"{key}": {result.written}}}')
    turn(doc, "assistant", f"The result is {result.said}.")


def function_asked(pen: Pen) -> Asked:
    """A request for a function of zero to three arguments."""
    f = function(pen)
    if pen.chance(0.04):
        f = Function(f.name, (), object_schema(pen, ()))
    arguments = tuple(value(pen, p) for p in f.parameters)
    if not arguments or pen.chance(0.5):
        request = pen.one(*FORMS["called"]).format(called(pen, f, arguments))
    else:
        form = pen.one(*FORMS["named"], *FORMS["spoken"])
        listed = listing(pen, f.parameters, arguments)
        head, _, tail = f.words.partition(" ")
        request = form.format(f=f.name, w=f.words, v=listed, head=head, tail=tail)
    return Asked(f, request + pen.one(*FORMS["endings"]), arguments)


def called(pen: Pen, f: Function, arguments: Sequence[Value]) -> str:
    """The call as a program writes it, such as score(3) or score(n=3)."""
    quote, named = pen.one("'", '"', ""), pen.chance(0.25)
    said = [
        (f"{p.key}=" if named else "")
        + (f"{quote}{v.said}{quote}" if p.kind == "string" else v.said)
        for p, v in zip(f.parameters, arguments, strict=True)
    ]
    return f"{f.name}({', '.join(said)})"


def listing(pen: Pen, parameters: Sequence[Parameter], arguments: Sequence[Value]) -> str:
    """The values, with or without their keys."""
    quote = pen.one("{}", "{}", "{}", "'{}'", '"{}"')
    said = [
        quote.format(v.said) if p.kind == "string" else v.said
        for p, v in zip(parameters, arguments, strict=True)
    ]
    if pen.chance(0.35):
        link = pen.one(" = ", " ", "=", ": ", " set to ")
        said = [f"{p.key}{link}{text}" for p, text in zip(parameters, said, strict=True)]
    return pen.one(" and ", ", ").join(said)
