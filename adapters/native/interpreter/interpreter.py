"""Gives the nodes of the language their meaning on one stream (paper, section 2).

A primitive is submitted without waiting; its calls go to a backend when those before it have
ended, and their answers become variables and prompt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ....core.api.prompts import check_media
from ....core.api.protocol import (
    Backend,
    Call,
    CallFailed,
    Choices,
    Completion,
    ForkHint,
    Output,
    Overloaded,
    ProgramError,
    Prompt,
    Reply,
    Sampling,
    Usage,
)
from ..language.choices import find_method, is_unscored, unscored
from ..language.constraints import error_of
from ..language.expressions import (
    Constant,
    Expression,
    Gen,
    Media,
    RoleBegin,
    RoleEnd,
    ScopeBegin,
    ScopeEnd,
    Select,
    flatten,
    variables_of,
)
from .context import Context
from .hints import with_outlook
from .meta import choice_meta, gen_meta, select_meta
from .resampling import resampled
from .speculation import (
    Reused,
    Speculation,
    is_speculative,
    is_unopened,
    leave_when,
    without_opening,
)
from .stream import Step, countdown
from .template import Follower
from .transcript import Transcript
from .waiting import Waiting


@dataclass(frozen=True, slots=True)
class Feed:
    """Text on its way to readers: a settled text, or a reply that still delivers it."""

    text: str
    name: str | None = None
    reply: Reply | None = None


class Interpreter(Waiting):
    """One state: a stream, the prompt it has written so far, and its variables.

    hint: goes with the first call of this state.
    ret_value: what the program returned, once it has.
    num_retries: as `Reader.num_retries`.
    feeds: all text in order, for those who read along.
    """

    def __init__(
        self, context: Context, hint: ForkHint | None = None, is_born: bool = True
    ) -> None:
        super().__init__(context, is_born)
        self.transcript = Transcript()
        self.feeds: list[Feed] = []
        self.ret_value: Any = None
        self.num_retries = 0
        self._hint = hint
        self._scopes: dict[str, int] = {}
        self._speculation = Speculation(context.settings.speculate)

    def submit(self, expression: Expression) -> None:
        """Run an expression after all that was submitted before."""
        for node in flatten(expression):
            if isinstance(node, Constant):
                self.context.spend(len(node.text))
            self.submit_step(
                lambda node=node: self._run(node),  # type: ignore[misc]
                variables_of(node),
                item=node,
            )

    def _run(self, node: Expression) -> bool:
        if isinstance(node, Gen):
            is_alone = not self.context.settings.speculate or not is_speculative(node)
            return self._generate(node) if is_alone else self._speculate(node)
        if not isinstance(node, Constant | ScopeBegin | ScopeEnd):
            self._drop()
        if isinstance(node, Select):
            return self._select(node)
        with self.stream.lock:
            match node:
                case Constant(text=text):
                    self.transcript.add_text(text)
                    self._speculation.fill(text)
                    self.feeds.append(Feed(text))
                case Media(segment=segment):
                    self.transcript.add_media(segment)
                case RoleBegin() | RoleEnd():
                    self.transcript.extend((node,))
                case ScopeBegin(name=name):
                    self._scopes[name] = len(self.transcript)
                case ScopeEnd(name=name):
                    start = self._scopes.pop(name)
                    self.context.spend(self.transcript.num_chars(start))
                    self.variables.put(name, self.transcript.text(start), {})
        self.stream.notify()
        return True

    def _generate(self, node: Gen) -> bool:
        settings = self.context.settings
        sampling = Sampling(**{**settings.sampling, **node.sampling})
        backend = self.context.settings.find(node.backend)
        is_changed = node.resample or node.split is not None  # readers get what comes of it
        scored_from = settings.scored_from if node.scored_from is None else node.scored_from
        call = self.context.call(
            self.prompt(backend),
            sampling,
            constraint=node.constraint,
            hint=self._hint_of(node),
            stream=(settings.stream or node.stream) and not is_changed,
            scored_from=scored_from,
            extra_priority=node.extra_priority,
        )
        call = self._with_rest(call, node)

        def settle(completions: Sequence[Completion]) -> None:
            completion, resampling_meta = completions[0], dict[str, Any]()
            if node.resample:
                completion, resampling_meta = resampled(completion, sampling.seed)
            meta = {
                **gen_meta(completion, sampling.n > 1, scored_from is not None),
                **resampling_meta,
            }
            text = self._keep(node, completion, meta, sampling.n > 1)
            if is_changed:
                self.feeds.append(Feed(text, node.name))

        replies = self._send(backend, [call])
        if not is_changed:
            with self.stream.lock:
                self.feeds.append(Feed("", node.name, replies[0]))
            self.stream.notify()
        return self._await(replies, settle, f"in gen({node.name!r})")

    def _speculate(self, node: Gen) -> bool:
        """As `_generate`: with the text that the call before wrote already, or by a call for this
        gen and those queued behind it."""
        sampling = Sampling(**{**self.context.settings.sampling, **node.sampling})
        reused = self._speculation.take(sampling) if node.backend is None else None
        if reused is not None:
            self._speculation.count_reused()
            self._settle_part(node, reused, Usage(), is_reused=True)
            return True
        self._drop()
        if node.backend is not None or not sampling.stop:
            return self._generate(node)

        def begin() -> None:
            try:
                if self.stream.error is None and self._send_planned(node, sampling):
                    self.stream.resume()
            except Exception as error:
                self.stream.fail(error)

        self.stream.defer(begin)
        return False

    def _send_planned(self, node: Gen, sampling: Sampling) -> bool:
        """Send the call for a gen and those behind it, or for it alone where none can be."""
        settings, queued = self.context.settings, self.stream.queued()
        plan = self._speculation.plan(sampling, queued, settings.sampling)
        if plan is None:
            return self._generate(node)
        backend, hint = settings.find(), self._hint_of(node)
        call = self.context.call(self.prompt(backend), plan.sampling, hint, stream=True)
        call = self.context.with_rest(call, node.name or "")
        replies, lead = self._send(backend, [call]), ""
        if is_unopened(replies[0]):
            prompt, lead = without_opening(call.prompt)
            replies = self._send(backend, [replace(call, prompt=prompt)])
        follower = Follower(plan.template, lead)
        leave_when(follower, replies[0])

        def settle(completions: Sequence[Completion]) -> None:
            self._speculation.keep(plan, completions[0], lead)
            found = self._speculation.take(sampling)
            if found is not None:
                self._settle_part(node, found, completions[0].usage)
            else:  # its part of the answer is of no use: a call for it alone
                self._speculation.refuse()
                ask_alone()

        def ask_alone() -> None:
            self.stream.submit_next(Step(lambda: self._generate(node), item=node))

        def retry(error: BaseException) -> bool:
            """A stream that broke is not begun again by its backend; a call for a gen alone is."""
            if not (follower.has_text and isinstance(error, CallFailed | Overloaded)):
                return False
            ask_alone()
            return True

        return self._await(replies, settle, f"in gen({node.name!r})", retry)

    def _settle_part(self, node: Gen, part: Reused, usage: Usage, is_reused: bool = False) -> None:
        output = Output(part.text, finish_reason="stop", matched=part.matched)
        meta = gen_meta(Completion((output,), usage), is_list=False)
        with self.stream.lock:
            self._keep(node, Completion((output,)), {**meta, "speculated": is_reused}, False)
            self.feeds.append(Feed(part.text, node.name))
        self.context.totals.count(**self._speculation.taken())
        self.stream.notify()

    def _drop(self) -> None:
        """Forget what the model wrote beyond the last gen."""
        if self.context.settings.speculate:
            self._speculation.drop()
            self.context.totals.count(**self._speculation.taken())

    def _keep(self, node: Gen, completion: Completion, meta: dict[str, Any], is_list: bool) -> str:
        """Append the first answer, set the variables of `node`; returns what was appended."""
        first = completion.outputs[0]
        divide = node.split.divide if node.split is not None else lambda text: (text,)
        parts = [divide(output.text) for output in completion.outputs]
        text = parts[0][0]
        self.context.spend(sum(len(output.text) for output in completion.outputs))
        self.transcript.add_answer(text, first.segments if text == first.text else ())
        for index, name in enumerate(variables_of(node)):
            values = [part[index] for part in parts]
            self.variables.put(name, values if is_list else values[0], meta)
        return text

    def _select(self, node: Select) -> bool:
        method = find_method(node.method)
        backend = self.context.settings.find(node.backend)
        prompt, hint = self.prompt(backend), self._hint_of(node)
        fields: dict[str, Any] = {"options": node.options, "extra_priority": node.extra_priority}
        call = self.context.call(prompt, Sampling(), hint, scoring=method.scoring, **fields)
        calls = [self._with_rest(call, node)]
        if method.needs_unconditional:
            calls.append(self.context.call((), Sampling(), **fields))

        def settle(completions: Sequence[Completion]) -> None:
            scores = completions[0].scores
            decision = method.decide(scores, completions[-1].scores)
            chosen = scores[decision.index]
            self.transcript.add_answer(chosen.text, chosen.segments)
            self.feeds.append(Feed(chosen.text, node.name))
            self.variables.put(node.name, chosen.text, select_meta(completions, decision))

        replies = self._send(backend, calls)
        if is_unscored(replies[0]):
            return self._choose(node, backend, prompt, hint)
        return self._await(replies, settle, f"in select({node.name!r})")

    def _choose(
        self, node: Select, backend: Backend, prompt: Prompt, hint: ForkHint | None
    ) -> bool:
        """Let a backend that scores nothing write one of the options."""
        sampling, constraint = unscored(node.method, node.options), Choices(node.options)
        call = self.context.call(prompt, sampling, hint, node.extra_priority, constraint=constraint)

        def settle(completions: Sequence[Completion]) -> None:
            text = completions[0].text
            if text not in node.options:
                raise ProgramError(f"the answer {text!r:.60} is none of the options")
            self.transcript.add_answer(text, ())
            self.feeds.append(Feed(text, node.name))
            self.variables.put(node.name, text, choice_meta(completions[0], node.options))

        return self._await(self._send(backend, [call]), settle, f"in select({node.name!r})")

    def prompt(self, backend: Backend) -> Prompt:
        """The prompt so far. Raises UnsupportedCall for images or videos if `backend`
        takes none."""
        prompt = self.transcript.prompt()
        if self.transcript.has_media():
            info = self.context.info(backend)
            check_media(prompt, info.features, info.model)
        return prompt

    def take_hint(self) -> ForkHint | None:
        """The hint of the root that was announced for the next call, which then names none."""
        hint, self._hint = self._hint, None
        return hint

    def _hint_of(self, node: Gen | Select) -> ForkHint | None:
        """What a compiled program knows at this call; otherwise the root that was announced for the
        next call."""
        outlook, context = node.outlook, self.context
        if outlook is None:
            return self.take_hint()
        return with_outlook(context.root_of(outlook), outlook, context.program)

    def _with_rest(self, call: Call, node: Gen | Select) -> Call:
        """The call with what is expected to follow it, where that is not known."""
        if node.outlook is not None:
            return call
        return self.context.with_rest(call, node.name or "", self._known())

    def _known(self) -> ForkHint | None:
        """What is queued behind the running step: that much follows at least. None: nothing is, and
        more may come."""
        gens = [item for item in self.stream.queued() if isinstance(item, Gen | Select)]
        if not gens and not self.stream.is_closed:
            return None
        usual = self.context.settings.sampling.get("max_tokens", Sampling().max_tokens)
        tokens = [it.sampling.get("max_tokens", usual) for it in gens if isinstance(it, Gen)]
        return ForkHint("", calls_left=len(gens), tokens_left=sum(it or 0 for it in tokens))

    def _send(self, backend: Backend, calls: Sequence[Call]) -> list[Reply]:
        replies = []
        for call in calls:
            replies.append(self.context.submit(backend, call))
            self.stream.on_failure(replies[-1].cancel)
        return replies

    def _await(
        self,
        replies: Sequence[Reply],
        settle: Callable[[Sequence[Completion]], None],
        where: str,
        retry: Callable[[BaseException], bool] = lambda error: False,
    ) -> bool:
        """Settle the replies when all have ended. retry: called with an error of theirs; whether it
        has taken care of it."""

        def end() -> None:
            error = next(filter(None, map(error_of, replies)), None)
            if error is not None and retry(error):
                self.stream.resume()
                return
            try:
                if error is None:
                    with self.stream.lock:
                        if self.stream.error is None:
                            completions = [reply.result() for reply in replies]
                            for completion in completions:
                                self.context.totals.add(completion.usage)
                            settle(completions)
            except Exception as failure:
                error = failure
            if error is None:
                self.stream.notify()
                self.stream.resume()
                return
            if not getattr(error, "__notes__", ()):
                error.add_note(where)
            self.stream.fail(error)

        arrive = countdown(len(replies), end)
        for reply in replies:
            reply.when_done(arrive)
        return False
