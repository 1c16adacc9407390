"""Chat turns in ChatML: small talk, tool calls, and DSPy's chat format."""

import json
from collections.abc import Iterable
from dataclasses import dataclass

from ..world.data import table_of
from ..world.document import END_TURN, SYSTEM, TURN, Document, Pen
from ..world.facts import TIPS
from ..world.functions import name_of_any_script
from ..world.judging import attitude, review
from ..world.knowledge import addition, closed_question, translation
from ..world.people import inquiry, story


def turn(doc: Document, role: str, text: str) -> None:
    """Append a turn; an assistant's text and end of turn are an answer."""
    if role == "assistant":
        doc.say(f"{TURN}{role}\n").answer(f"{text}{END_TURN}").say("\n")
    else:
        doc.say(f"{TURN}{role}\n").noise(text).say(f"{END_TURN}\n")


def exchange(doc: Document, said: str, reply: str) -> Document:
    """Append a turn of the user and the assistant's reply."""
    turn(doc, "user", said)
    turn(doc, "assistant", reply)
    return doc


def small_talk(pen: Pen) -> tuple[str, str]:
    """A user's message and the assistant's reply."""
    values: dict[str, object] = {"word": pen.words.any()}
    values["topic"] = topic = pen.rng.choice(tuple(TIPS))
    values["tips"] = TIPS[topic]
    values["problem"], values["value"] = addition(pen)
    values["question"], values["answer"], _ = closed_question(pen)
    values["foreign"], values["translated"], _ = translation(pen)
    values["passage"], people = story(pen)
    values["asked"], values["found"], _, _ = inquiry(pen, people)
    turns = [
        (pen.one(*said) if said[1:] else said[0], reply) for said, reply in _DATA["small_talk"]
    ]
    said, reply = pen.rng.choice(turns)
    return said.format(**values), reply.format(**values)


def chat(pen: Pen) -> Document:
    """One to four turns of small talk; sometimes the name is asked for at the end."""
    doc = Document("chat")
    if pen.chance(0.4):
        turn(doc, "system", SYSTEM)
    name = pen.words.name() if pen.chance(0.25) else None
    if name:
        exchange(doc, f"Hello, my name is {name}.", f"Hello, {name}! How can I help you?")
    for _ in range(pen.rng.choice((1, 1, 2, 3))):
        exchange(doc, *small_talk(pen))
    if name:
        exchange(doc, "What is my name?", f"Your name is {name}.")
    return doc


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool of one argument, and ways to ask for it."""

    name: str
    argument: str
    number: bool
    requests: tuple[str, ...]


_DATA = table_of(__file__)
TOOLS = [Tool(**tool) for tool in _DATA["tools"]]


def offer_of(functions: Iterable[dict[str, object]]) -> str:
    """The system turn that offers functions of these names and parameters."""
    lines = "\n".join(json.dumps(function, ensure_ascii=False) for function in functions)
    return f"{SYSTEM}\nTools:\n{lines}\nTo use a tool, answer with <tool_call>{{...}}</tool_call>."


def tool_prompt(tools: list[Tool]) -> str:
    """The system turn that offers tools, as the chat template writes it."""
    return offer_of([tool_schema(tool) for tool in tools])


def tool_schema(tool: Tool) -> dict[str, object]:
    """The tool in the form of an OpenAI function."""
    kind = "integer" if tool.number else "string"
    parameters = {
        "type": "object",
        "properties": {tool.argument: {"type": kind}},
        "required": [tool.argument],
    }
    return {"name": tool.name, "parameters": parameters}


def tool_call(tool: Tool, value: str) -> str:
    """The text of a call, as the chat template writes it."""
    arguments = {tool.argument: int(value) if tool.number else value}
    call = json.dumps({"name": tool.name, "arguments": arguments}, ensure_ascii=False)
    return f"<tool_call>{call}</tool_call>"


def tools(pen: Pen) -> Document:
    """A request that needs a tool, the call with its copied argument, and sometimes the tool's
    answer told.
    """
    doc = Document("tools")
    offered = pen.rng.sample(TOOLS, pen.rng.randint(1, 3))
    turn(doc, "system", tool_prompt(offered))
    for _ in range(pen.rng.choice((1, 1, 2))):
        tool = pen.rng.choice(offered)
        value = str(pen.rng.randint(2, 999)) if tool.number else pen.words.any()
        exchange(doc, pen.rng.choice(tool.requests).format(value), tool_call(tool, value))
        if pen.chance(0.4):
            result = pen.words.name()
            turn(doc, "tool", f'{{"result": "{result}"}}')
            turn(doc, "assistant", f"The result is {result}.")
    return doc


def copying(pen: Pen) -> Document:
    """Words to copy, most of them not Latin, in one form throughout."""
    doc, (ask, reply) = Document("copying"), pen.rng.choice(_DATA["copy_forms"])
    for _ in range(pen.rng.randint(1, 6)):
        kinds = (name_of_any_script(pen), pen.words.foreign(), pen.words.any())
        word = pen.rng.choices(kinds, (6, 3, 1))[0]
        doc.noise(ask.format(word)).answer(reply.format(word)).say("\n")
    return doc


def dspy(pen: Pen) -> Document:
    """A signature of one or two inputs and one output, in the format of DSPy's chat adapter."""
    inputs, (output, answer) = dspy_task(pen)
    return put_signature(Document("dspy"), inputs, {output: answer})


def put_signature(
    doc: Document, inputs: dict[str, str], outputs: dict[str, str], brief: str = ""
) -> Document:
    """Append a signature with its values, as DSPy's chat adapter writes both."""
    names = [*inputs, *outputs]
    listed = "\n".join(
        f"Your {kind} fields are:\n"
        + "\n".join(f"{i}. `{n}` (str):" for i, n in enumerate(keys, 1))
        for kind, keys in (("input", list(inputs)), ("output", list(outputs)))
    )
    slots_ = "\n\n".join(f"[[ ## {name} ## ]]\n{{{name}}}" for name in names)
    given, made = (", ".join(f"`{n}`" for n in keys) for keys in (inputs, outputs))
    brief = brief or f"Given the fields {given}, produce the fields {made}."
    turn(doc, "system", _DATA["signature"].format(fields=listed, slots=slots_, objective=brief))
    order = ", then ".join(f"`[[ ## {name} ## ]]`" for name in outputs)
    values = "\n\n".join(f"[[ ## {k} ## ]]\n{v}" for k, v in inputs.items())
    turn(doc, "user", _DATA["inputs"].format(values=values, order=order))
    said = "".join(f"[[ ## {name} ## ]]\n{answer}\n\n" for name, answer in outputs.items())
    turn(doc, "assistant", f"{said}[[ ## completed ## ]]")
    return doc


def dspy_task(pen: Pen) -> tuple[dict[str, str], tuple[str, str]]:
    """Input fields and the output field with its value."""
    passage, people = story(pen)
    question, answer, _, _ = inquiry(pen, people)
    fact, truth, _ = closed_question(pen)
    text, kind = review(pen)
    return pen.rng.choice((
        ({"context": passage, "question": question}, ("answer", answer)),
        ({"question": fact}, ("answer", truth)),
        ({"review": text}, ("sentiment", attitude(kind))),
    ))  # fmt: skip
