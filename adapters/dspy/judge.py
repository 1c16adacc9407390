"""`Judge`: decisions with their distributions, in place of an LM that writes text.

DSPy sends such a client one question for each output of a signature, all over one state; each is a
`select` over the shared state. For programs whose outputs are all decisions: booleans, Literals,
`dspy.experimental.Noul`, `Choice` and `Score`.
"""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import dspy
from dspy.clients.base_lm import record_history
from dspy.utils.callback import with_callbacks

from ...core.api.protocol import Backend, Call, Chat, Completion, ForkHint, Message, Text, Usage
from .errors import raise_as_dspy
from .judgment import shares
from .runtime import Runtime

_TASK = "Decide the question about the following, and answer with one of the given options only."
Answers = dict[str, dict[str, Any]]


class Judge:
    """A client for decision requests on our runtime: `dspy.configure(lm=Judge("tiny"))`.

    where, hints, timeout, settings, api_key: as in `LM`. cache: whether DSPy's cache keeps the
      answers. Raises LMConfigurationError for what is not a model, LMInvalidRequestError for a
      setting.
    """

    supports_decision_requests = True

    def __init__(
        self,
        where: Backend | str | Path = "tiny",
        *,
        hints: bool = True,
        timeout: float | None = None,
        settings: Mapping[str, Any] | None = None,
        api_key: str | None = None,
        cache: bool = True,
        callbacks: Sequence[Any] | None = None,
    ) -> None:
        with raise_as_dspy(str(where) if isinstance(where, str | Path) else "forkroot"):
            self.runtime = Runtime(
                where, hints=hints, timeout=timeout, settings=settings, api_key=api_key
            )
        self.model = self.runtime.name()
        self.cache = cache
        self.callbacks = list(callbacks or [])
        self.history: list[dict[str, Any]] = []

    @with_callbacks  # type: ignore[untyped-decorator]
    def __call__(self, state: Mapping[str, Any], questions: Mapping[str, Any]) -> Answers:
        """The distribution of each question, in DSPy's terms. Raises DSPy's errors."""
        request = {"model": self.model, "state": state, "questions": questions, "by": "forkroot"}
        kept = dspy.cache.get(request) if self.cache else None
        if kept is not None:
            return self._finished(request, kept, is_kept=True)
        with raise_as_dspy(self.model):
            answers = self._answers(state, questions)
        if self.cache:
            dspy.cache.put(request, answers)
        return self._finished(request, answers, is_kept=False)

    @with_callbacks  # type: ignore[untyped-decorator]
    async def acall(self, state: Mapping[str, Any], questions: Mapping[str, Any]) -> Answers:
        """The same, without holding up the event loop."""
        return await asyncio.to_thread(self.__call__.__wrapped__, self, state, questions)

    def copy(self, **changes: Any) -> Judge:
        """A client over the same runtime, with an empty history."""
        copied = copy.copy(self)
        copied.history, copied.callbacks = [], list(self.callbacks)
        for name, value in changes.items():
            setattr(copied, name, value)
        return copied

    def _answers(self, state: Mapping[str, Any], questions: Mapping[str, Any]) -> dict[str, Any]:
        head = Message("system", (Text(f"{_TASK}\n\n{_shown(state)}"),))
        calls = [self._call(head, question, len(questions)) for question in questions.values()]
        replies = [self.runtime.submit(call) for call in calls]
        try:
            completions = [reply.result() for reply in replies]
        finally:
            for reply in replies:
                reply.cancel()
        usage = sum((completion.usage for completion in completions), Usage())
        pairs = zip(questions.items(), completions, strict=True)
        return {
            "answers": {name: _answer(question, done) for (name, question), done in pairs},
            "usage": {
                "prompt_tokens": usage.prompt_tokens,
                "completion_tokens": usage.completion_tokens,
                "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
            },
        }

    def _call(self, head: Message, question: Mapping[str, Any], num_questions: int) -> Call:
        options = _options(question)
        question_text = f"{_shown(question['instructions'])}\n\nOptions:\n"
        question_text += "\n".join(f"{label}: {_shown(about)}" if about else label
                           for label, about in options.items())  # fmt: skip
        chat = Chat((head, Message("user", (Text(question_text),))))
        hint = ForkHint(f"judge-{hash(head)}", num_questions, 1, kind="dspy.Judge")
        return Call(
            chat,
            options=tuple(options),
            scoring="exact",
            hint=hint if self.runtime.hints else None,
            deadline=self.runtime.timeout,
        )

    def _finished(self, request: dict[str, Any], found: dict[str, Any], is_kept: bool) -> Answers:
        usage = {} if is_kept else found["usage"]
        if dspy.settings.usage_tracker and usage:
            dspy.settings.usage_tracker.add_usage(self.model, dict(usage))
        if not dspy.settings.disable_history:
            shown = {"state": request["state"], "questions": request["questions"]}
            entry = {"request": copy.deepcopy(request), "response": found, "usage": usage}
            entry |= {"cache_hit": is_kept, "messages": None, "prompt": _shown(shown)}
            record_history(self, entry | {"outputs": [_shown(found["answers"])]})
        return copy.deepcopy(_keyed(found["answers"], request["questions"]))


def _options(question: Mapping[str, Any]) -> dict[str, Any]:
    """The answers of a question, and the description of each."""
    criteria = question.get("criteria") or {}
    match question["type"]:
        case "noul":
            return {"true": criteria.get("true"), "false": criteria.get("false")}
        case "score":
            return {str(level): about for level, about in enumerate(criteria)}
    return dict(criteria)


def _answer(question: Mapping[str, Any], completion: Completion) -> dict[str, Any]:
    """A question's distribution, in the terms of its type."""
    scores = {score.text: score.logprob for score in completion.scores}
    found = shares(scores)
    if question["type"] == "noul":
        return {"noul": found["true"]}
    best = max(found, key=lambda label: found[label])
    return {"probabilities": found, "confidence": found[best], question["type"]: best}


def _keyed(answers: Mapping[str, Any], questions: Mapping[str, Any]) -> Answers:
    """The answers with the levels of scores as numbers, as DSPy has them."""
    keyed = Answers()
    for name, answer in answers.items():
        keyed[name] = dict(answer)
        if questions[name]["type"] == "score":
            levels = answer["probabilities"]
            keyed[name]["probabilities"] = {int(level): p for level, p in levels.items()}
            keyed[name]["score"] = sum(int(level) * p for level, p in levels.items())
    return keyed


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
