"""A scripted backend: everything a test of an adapter needs, and no model.

It knows the protocol only. Its token ids are the bytes of the text.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from ..core.api.prompts import check_media
from ..core.api.protocol import (
    BackendClosed,
    BackendInfo,
    Call,
    CallFailed,
    Chat,
    Chunk,
    Completion,
    ForkrootError,
    OptionScore,
    Output,
    Prompt,
    Reply,
    Segment,
    Text,
    Tokens,
    Usage,
)
from ..core.api.reply import Mailbox

Answer: TypeAlias = str | Sequence[str] | Completion | Exception
Script: TypeAlias = str | Mapping[str, Answer] | Sequence[Answer] | Callable[[Call], Answer]

ALL_FEATURES = frozenset({"tokens", "options", "hints", "images", "videos", "constraints"})


class ScriptedBackend:
    """Answers calls from a script, and keeps them in `calls` and their replies in `replies`.

    script: one text for all, a mapping from the end of a prompt to its answer (the longest that
      fits), a sequence of answers in the order of the calls, or a function of the call. An answer
      is a text, a text for each of the call's n outputs, a whole completion, or an error to end
      with. For options the text is the one that shall be likeliest. Planting calls need no answer.
    delay: seconds until a call ends, or a function of the call; a longer one ends later, whatever
      came first.
    is_held: no call ends before `release`; planting calls end at once.
    chunk_len: characters in each chunk of a call with stream=True.
    features, model: of its `info`; images and videos that they do not name are refused.
    """

    def __init__(
        self,
        script: Script = (),
        *,
        delay: float | Callable[[Call], float] = 0.0,
        is_held: bool = False,
        chunk_len: int = 4,
        features: frozenset[str] = ALL_FEATURES,
        model: str = "scripted",
    ) -> None:
        self.calls: list[Call] = []
        self.replies: list[Mailbox] = []
        self._script = script
        self._num_answered = 0
        self._delay = delay
        self._is_held = is_held
        self._chunk_len = chunk_len
        self._info = BackendInfo(model, context_len=1 << 20, vocabulary_size=256, features=features)
        self._changed = threading.Condition()
        self._closed = threading.Event()

    def submit(self, call: Call) -> Reply:
        """Take a call; it ends at once, after its delay, or when released."""
        mailbox = Mailbox(call, self.cancel)
        with self._changed:
            self.calls.append(call)
            self.replies.append(mailbox)
            is_closed = self._closed.is_set()
            self._changed.notify_all()
        if is_closed:
            mailbox.fail(BackendClosed("the scripted backend is closed"))
        elif not self._is_held or _is_planting(call):
            self._end_later(mailbox)
        return mailbox

    def cancel(self, reply: Reply) -> None:
        """End a call now, with an empty answer."""
        for mailbox in self.replies:
            if mailbox is reply:
                mailbox.finish(Completion((Output("", finish_reason="abort"),)))

    def info(self) -> BackendInfo:
        """The features and the name that it was given."""
        return self._info

    def close(self) -> None:
        """End every open call in BackendClosed, and every later one."""
        with self._changed:
            self._closed.set()
            open_replies = tuple(self.replies)
        for mailbox in open_replies:
            mailbox.fail(BackendClosed("the scripted backend is closed"))

    def wait_for(self, num_calls: int, timeout: float = 10.0) -> None:
        """Wait until so many calls were submitted. Raises TimeoutError if they are not."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self.calls) >= num_calls, timeout):
                found = len(self.calls)
                raise TimeoutError(f"{found} of {num_calls} calls came within {timeout} s")

    def release(self, *indices: int) -> None:
        """End these held calls, in this order; without indices all that are still open."""
        for index in indices or range(len(self.replies)):
            if not self.replies[index].done():
                self._end(self.replies[index])

    def _end_later(self, mailbox: Mailbox) -> None:
        delay = self._delay(mailbox.call) if callable(self._delay) else self._delay

        def end() -> None:
            if not self._closed.wait(delay):
                self._end(mailbox)

        if delay <= 0:
            self._end(mailbox)
        else:
            threading.Thread(target=end, daemon=True).start()

    def _end(self, mailbox: Mailbox) -> None:
        call = mailbox.call
        try:
            call.check()
            check_media(call.prompt, self._info.features, self._info.model)
            completion = self._completion(call)
        except ForkrootError as error:
            mailbox.fail(error)
            return
        except Exception as error:
            failure = CallFailed(f"{type(error).__name__}: {error}")
            failure.__cause__ = error
            mailbox.fail(failure)
            return
        if call.stream:
            for index, output in enumerate(completion.outputs):
                for start in range(0, len(output.text), self._chunk_len):
                    mailbox.put(Chunk(output.text[start : start + self._chunk_len], index))
        mailbox.finish(completion)

    def _completion(self, call: Call) -> Completion:
        usage = Usage(prompt_tokens=len(prompt_text(call.prompt).encode()))
        if _is_planting(call):
            return Completion((Output("", finish_reason="length"),), usage)
        answer = self._answer(call)
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, Completion):
            return answer
        if call.options:
            return Completion((), usage, scored(call, str(answer)))
        texts = [answer] * call.sampling.n if isinstance(answer, str) else list(answer)
        return Completion(tuple(map(written, texts)), usage)

    def _answer(self, call: Call) -> Answer:
        if isinstance(self._script, str):
            return self._script
        if callable(self._script):
            return self._script(call)
        if isinstance(self._script, Mapping):
            text = prompt_text(call.prompt)
            ends = [end for end in self._script if text.endswith(end)]
            if not ends:
                raise CallFailed(f"no scripted answer for a prompt that ends in {text[-60:]!r}")
            return self._script[max(ends, key=len)]
        with self._changed:
            index, self._num_answered = self._num_answered, self._num_answered + 1
        if index >= len(self._script):
            raise CallFailed(f"the script has {len(self._script)} answers and this is one more")
        return self._script[index]


def written(text: str) -> Output:
    """The output of a model that wrote `text`."""
    ids = tuple(text.encode())
    return Output(text, ids, segments=(Text(text, ids),))


def scored(call: Call, best: str) -> tuple[OptionScore, ...]:
    """Scores of a call's options, of which `best` has the best: -1 for each of its bytes, -2
    for all others; where the call wants bounds, -1 and -2 for the whole."""
    found = []
    for option in call.options:
        if call.scoring != "tokens":
            bound = -1.0 if option == best else -2.0
            found.append(OptionScore(option, (), (), (Text(option),), (bound, bound)))
            continue
        ids = tuple(option.encode())
        logprobs = (-1.0 if option == best else -2.0,) * len(ids)
        found.append(OptionScore(option, ids, logprobs, (Text(option, ids),)))
    return tuple(found)


def root_of(call: Call) -> tuple[str, int | None, int | None] | None:
    """The root that a call's hint names, its branches and where it ends; None: it shares none."""
    hint = call.hint
    return None if hint is None or not hint.root else (hint.root, hint.branches, hint.prefix_end)


def prompt_text(prompt: Prompt) -> str:
    """A prompt as plain text: a chat as `role: text` lines, images and videos by their names."""
    if isinstance(prompt, Chat):
        return "\n".join(f"{m.role}: {prompt_text(m.content)}" for m in prompt.messages)
    return "".join(map(_segment_text, prompt))


def _segment_text(segment: Segment) -> str:
    if isinstance(segment, Text):
        return segment.text
    if isinstance(segment, Tokens):
        return bytes(segment.ids).decode(errors="replace")
    return f"<{type(segment).__name__.lower()}>"


def _is_planting(call: Call) -> bool:
    return call.sampling.max_tokens == 0 and not call.options
