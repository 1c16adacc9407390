"""Exams on the held-out side of the world: prompts, the text that should follow, and scores.

Scores take what the model said and the right answer, and give the share that is right.
"""

import itertools
import json
import re
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from .tasks import calls, chat, extraction, general, react, records
from .tasks.world import documents
from .world import judging, knowledge, people
from .world.document import BOS, END_TURN, Document, Pen
from .world.turns import TOPICS

Task: TypeAlias = Callable[[Pen], Document]

REACT_STEP = re.compile(r" [^\n]+\nAction \d+: (Search|Finish)\[[^\]\n]+\]")


class Exam(NamedTuple):
    """A prompt, with its beginning-of-text token, and the text that should follow."""

    prompt: str
    answer: str


def last_exam(doc: Document) -> list[Exam]:
    return every_exam(doc)[-1:]


def every_exam(doc: Document) -> list[Exam]:
    """Each answer of the document, after all text before it."""
    return [Exam(BOS + prompt, answer) for prompt, answer in doc.exams]


def exact(text: str, answer: str) -> float:
    """Whether the text is the answer, up to what cannot belong to it any more."""
    goes_on = answer[-1].isalnum() and text[len(answer) :][:1].isalnum()
    return float(text.startswith(answer) and not goes_on)


def json_fields(text: str, answer: str) -> float:
    """The share of the answer's JSON fields that the text has exactly."""
    expected: dict[str, object] = json.loads(answer)
    try:
        found, _ = json.JSONDecoder().raw_decode(text.strip())
    except json.JSONDecodeError:
        return 0.0
    if not isinstance(found, dict):
        return 0.0
    right = sum(bool(found.get(key) == value) for key, value in expected.items())
    return right / len(expected)


def json_record(text: str, answer: str) -> float:
    return float(json_fields(text, answer) == 1)


def react_format(text: str, _answer: str) -> float:
    return float(REACT_STEP.match(text) is not None)


def ends_by_itself(text: str, _answer: str) -> float:
    return float(END_TURN in text)


def argument(text: str, answer: str) -> float:
    """Whether the tool call of the text is the call of the answer."""
    return float(text.split("</tool_call>")[0] == answer.split("</tool_call>")[0])


def integer(text: str, answer: str) -> float:
    """Whether the text begins with the integer that the answer begins with; what else may follow
    is for the schema, which allows integers only.
    """
    found, wanted = (re.match(r"-?\d+", it) for it in (text, answer))
    return float(found is not None and wanted is not None and found[0] == wanted[0])


def no_call(text: str, _answer: str) -> float:
    """Whether the turn ends by itself and calls no tool."""
    return float(END_TURN in text and "<tool_call>" not in text.split(END_TURN)[0])


def sensible(text: str, _answer: str) -> float:
    """Whether the turn is a whole reply of the world's, of whichever topic, and so no tool call."""
    reply, end, _ = text.partition(END_TURN)
    return float(bool(end) and reply in REPLIES)


REPLIES = frozenset(topic.reply for topic in TOPICS)


class Question(NamedTuple):
    """What to ask and how to score it; `keep` chooses among the exams of a task."""

    title: str
    task: Task
    score: Callable[[str, str], float] = exact
    bar: float | None = None
    exams: Callable[[Document], list[Exam]] = last_exam
    keep: Callable[[Exam], bool] = lambda exam: True


def is_call(exam: Exam) -> bool:
    return exam.answer.startswith("<tool_call>")


def is_foreign_call(exam: Exam) -> bool:
    return is_call(exam) and not exam.answer.isascii()


def has_integer(exam: Exam) -> bool:
    """Whether it is a call with an argument that is a JSON integer."""
    return is_call(exam) and any(isinstance(value, int) for value in arguments_of(exam))


def is_only_call(exam: Exam) -> bool:
    """Whether it is a call where no other function is offered."""
    return is_call(exam) and exam.prompt.count('\n{"name": ') == 1


def is_integer_call(exam: Exam) -> bool:
    """Whether it is the call of the only function, with one integer and nothing else."""
    return is_only_call(exam) and has_integer(exam) and len(arguments_of(exam)) == 1


def arguments_of(exam: Exam) -> list[object]:
    call = json.loads(exam.answer.removeprefix("<tool_call>").split("</tool_call>")[0])
    return list(call["arguments"].values())


def is_judgment(exam: Exam) -> bool:
    return exam.answer[:6] in (" good,", " poor,")


def names_nobody(exam: Exam) -> bool:
    """Whether the last passage needs no `Person:` line, because it is about one person."""
    return "Person:" not in exam.prompt.split("\n\n")[-1]


def begun_calls(doc: Document) -> list[Exam]:
    """The one integer of a call of the only function: what stands before it is written already, as
    a runtime does that holds a call to its schema.
    """
    calls = [exam for exam in every_exam(doc) if is_integer_call(exam)]
    halves = [(exam.prompt, *exam.answer.rpartition('": ')) for exam in calls]
    return [Exam(prompt + begun + link, rest) for prompt, begun, link, rest in halves]


def exams_of(question: Question, count: int, seed: int) -> list[Exam]:
    """`count` distinct held-out exams, shortest prompt first."""
    found: dict[str, Exam] = {}
    for doc in itertools.islice(documents(seed, True, {question.task: 1.0}), 50 * count):
        found.update((exam.prompt, exam) for exam in question.exams(doc) if question.keep(exam))
        if len(found) >= count:
            break
    return sorted(itertools.islice(found.values(), count), key=lambda exam: len(exam.prompt))


def _calls(
    title: str, task: Task, keep: Callable[[Exam], bool], bar: float | None = None
) -> Question:
    """Calls of a task, to be made exactly."""
    return Question(title, task, argument, bar, every_exam, keep)


QUESTIONS = (
    Question("Reading: JSON, fields exact", people.reading_json, json_fields, 0.90),
    Question("Reading: JSON, all fields exact", people.reading_json, json_record),
    Question("Reading: JSON, one person", people.reading_json, json_fields, keep=names_nobody),
    Question("Reading: question and answer", people.reading_question),
    Question("Reading: one of several people", people.reading_several),
    Question("Multiple choice, answer in context", people.choice_reading, bar=0.95),
    Question("Multiple choice, known facts", knowledge.choice_facts),
    Question("Capitals", knowledge.capitals, bar=0.95),
    Question("ReAct: format of a step", react.react, react_format, 0.95, every_exam),
    Question("ReAct: step exact", react.react, exams=every_exam),
    Question("Chat: turn ends by itself", chat.chat, ends_by_itself, 0.99),
    Question("Chat: reply exact", chat.chat),
    _calls("Tool call: argument copied", chat.tools, is_call, 0.90),
    _calls("Tool call: argument copied, not Latin", chat.tools, is_foreign_call),
    Question(
        "Call of a new function, begun: the integer copied",
        calls.function_calls,
        integer,
        0.90,
        begun_calls,
    ),
    _calls(
        "Call of a new function, the only one, of one integer",
        calls.function_calls,
        is_integer_call,
    ),
    _calls(
        "Call of a new function, of up to three, with integers", calls.function_calls, has_integer
    ),
    _calls("Call of the only function, a name in any script", records.record_calls, is_only_call),
    _calls("Call of one of several functions, a name in any script", records.record_calls, is_call),
    Question("Colours, sounds, translations", knowledge.facts),
    Question("Arithmetic", knowledge.arithmetic),
    Question("Word problems with reasoning", knowledge.word_problem),
    Question("Sentiment and grades of reviews", judging.sentiment),
    Question("Essay judge: judgments", judging.essay_judge, exams=every_exam, keep=is_judgment),
    Question("Essay judge: everything", judging.essay_judge, exams=every_exam),
    Question("Tips and their expansion", knowledge.tips),
    Question("DSPy chat format", chat.dspy),
    Question("General chat: a sensible reply, no tool call", general.general_talk, sensible, 0.90),
    Question("General chat: the reply of the topic", general.general_talk),
    Question("General questions: reply exact", general.general_question),
    Question(
        "General chat where tools are offered: no call",
        general.general_tools,
        no_call,
        0.90,
        every_exam,
        lambda exam: not is_call(exam),
    ),
    Question("Free-form records: fields exact", extraction.prose_json, json_fields, 0.80),
    Question("Free-form records: lines exact", extraction.prose_lines, exams=every_exam),
    Question("Free-form records: question and answer", extraction.prose_questions),
    Question("Free-form records: in chat", extraction.prose_chat),
    Question("Free-form records: DSPy", extraction.prose_dspy),
    Question("Invented names copied", extraction.names, exams=every_exam, bar=0.90),
)
