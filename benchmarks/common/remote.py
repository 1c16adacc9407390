"""An OpenAI-compatible server as a backend: one HTTP request for each call, on /v1/completions.

Plain `http.client` in threads, to take as little as can be from the server beside it. A prompt is
sent as token ids where the server takes these, otherwise as text.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPResponse
from typing import Any, cast
from urllib.parse import urlsplit

from forkroot.core.api.protocol import (
    BackendInfo,
    Call,
    CallFailed,
    Choices,
    Chunk,
    Completion,
    JsonSchema,
    OptionScore,
    Output,
    Regex,
    Reply,
    Text,
    Tokens,
    UnsupportedCall,
    Usage,
)
from forkroot.core.api.reply import Mailbox
from forkroot.core.text.tokenizer import Tokenizer

_SECONDS = 600.0
_KEPT_SECONDS = 2.0


def _structured(constraint: object) -> dict[str, Any]:
    """A constraint as vLLM takes it."""
    match constraint:
        case Regex(pattern):
            return {"structured_outputs": {"regex": pattern}}
        case JsonSchema(schema):
            return {"structured_outputs": {"json": schema}}
        case Choices(options):
            return {"structured_outputs": {"choice": list(options)}}
    raise UnsupportedCall("constraint", constraint, "Regex, JsonSchema, Choices")


def _schema(constraint: object) -> dict[str, Any]:
    """A constraint as llama.cpp takes it."""
    match constraint:
        case JsonSchema(schema):
            return {"json_schema": schema}
    raise UnsupportedCall("constraint", constraint, "JsonSchema")


def _nothing(constraint: object) -> dict[str, Any]:
    raise UnsupportedCall("constraint", constraint, "none")


@dataclass(frozen=True, slots=True)
class Dialect:
    """What a server takes beside the standard's fields.

    has_ids: whether prompts may be token ids, and streams report their usage. features: of "regex",
      "json", "choice", "score", and "cached": whether answers report cached tokens.
    constrain: the fields of a constraint.
    """

    has_ids: bool = False
    extras: dict[str, Any] = field(default_factory=dict)
    features: frozenset[str] = frozenset()
    constrain: Callable[[object], dict[str, Any]] = _nothing


DIALECTS = {
    "vllm": Dialect(
        True,
        {"ignore_eos": True, "return_token_ids": True},
        frozenset({"regex", "json", "choice", "score", "cached"}),
        _structured,
    ),
    "llama.cpp": Dialect(
        True,
        {"ignore_eos": True, "cache_prompt": True},
        frozenset({"json", "cached"}),
        _schema,
    ),
    "plain": Dialect(),
}


class Remote:
    """As `Backend`, as far as the benchmarks need it. `tokenizer` is the server's."""

    def __init__(
        self, url: str, model: str, tokenizer: Tokenizer, dialect: Dialect, num_threads: int = 256
    ) -> None:
        self._address = urlsplit(url).netloc
        self._model = model
        self._tokenizer = tokenizer
        self._dialect = dialect
        self._pool = ThreadPoolExecutor(num_threads)
        self._local = threading.local()

    def submit(self, call: Call) -> Mailbox:
        """Send a call from a thread of its own."""
        mailbox = Mailbox(call)
        self._pool.submit(self._run, call, mailbox)
        return mailbox

    def cancel(self, reply: Reply) -> None:
        """Calls are not cancelled: they end by themselves."""

    def info(self) -> BackendInfo:
        """The model's name, and what calls may have."""
        features = frozenset({"tokens", "options", "constraints"})
        return BackendInfo(self._model, 1 << 20, len(self._tokenizer.token_bytes), features)

    def close(self) -> None:
        """No more calls."""
        self._pool.shutdown()

    def _run(self, call: Call, mailbox: Mailbox) -> None:
        try:
            answer = self._score(call) if call.options else self._generate(call, mailbox)
            self._local.used = time.monotonic()
            mailbox.finish(answer)
        except Exception as error:
            self._local.used = 0.0
            mailbox.fail(error)

    def _generate(self, call: Call, mailbox: Mailbox) -> Completion:
        body = {**self._body(call), "max_tokens": call.sampling.max_tokens}
        ids: list[int] = []
        text, usage = "", None
        with self._post(body | _stream(call.stream, self._dialect)) as response:
            for event in _events(response, call.stream):
                usage = event.get("usage") or usage
                for choice in event.get("choices", ()):
                    text += choice["text"]
                    ids += choice.get("token_ids") or ()
                    if call.stream:
                        mailbox.put(Chunk(choice["text"]))
        ids = ids or self._tokenizer.encode(text)
        spelled = tuple(ids) if self._tokenizer.decode(ids) == text else None
        segments = (Text(text, spelled),)
        return Completion((Output(text, tuple(ids), "length", segments=segments),), _usage(usage))

    def _score(self, call: Call) -> Completion:
        """Log-probabilities of options as a server echoes them, all options in one request."""
        before = self._ids(call)
        options = [self._tokenizer.encode_after(text) for text in call.options]
        body = {
            "model": self._model,
            "prompt": [before + ids for ids in options],
            "max_tokens": 0,
            "echo": True,
            "logprobs": 0,
        }
        with self._post(body) as response:
            answer = json.loads(response.read())
        scores = []
        for text, ids, choice in zip(call.options, options, answer["choices"], strict=True):
            logprobs = choice["logprobs"]["token_logprobs"][len(before) :]
            scores.append(OptionScore(text, tuple(ids), tuple(logprobs), (Text(text),)))
        return Completion(usage=_usage(answer["usage"]), scores=tuple(scores))

    def _body(self, call: Call) -> dict[str, Any]:
        prompt = self._ids(call) if self._dialect.has_ids else self._text(call)
        body = {"model": self._model, "prompt": prompt, "temperature": 0.0, **self._dialect.extras}
        if "ignore_eos" in body:
            body["ignore_eos"] = call.sampling.ignore_eos
        if call.sampling.stop:
            body["stop"] = list(call.sampling.stop)
        if call.constraint is not None:
            body |= self._dialect.constrain(call.constraint)
        return body

    def _ids(self, call: Call) -> list[int]:
        """The tokens of a prompt."""
        return self._tokenizer.encode_prompt(call.prompt)

    def _text(self, call: Call) -> str:
        """The text of a prompt, for a server that puts its own start token in front."""
        assert isinstance(call.prompt, tuple)
        texts = [
            it.text if isinstance(it, Text) else self._tokenizer.decode(list(it.ids))
            for it in call.prompt
            if isinstance(it, Text | Tokens)
        ]
        return "".join(texts)

    def _post(self, body: dict[str, Any]) -> HTTPResponse:
        """Raises CallFailed for an answer that is not good."""
        data = json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        try:
            response = self._answer(data, headers)
        except ConnectionError:  # a line that the server has closed meanwhile
            self._local.used = 0.0
            response = self._answer(data, headers)
        if response.status != 200:
            raise CallFailed(f"status {response.status}: {response.read()[:500]!r}")
        return response

    def _answer(self, data: bytes, headers: dict[str, str]) -> HTTPResponse:
        line = self._line()
        line.request("POST", "/v1/completions", data, headers)
        return line.getresponse()

    def _line(self) -> HTTPConnection:
        """This thread's connection; a new one where the server may have closed it."""
        now = time.monotonic()
        if now - getattr(self._local, "used", 0.0) > _KEPT_SECONDS:
            self._local.line = HTTPConnection(self._address, timeout=_SECONDS)
        return cast(HTTPConnection, self._local.line)


def _stream(is_streamed: bool, dialect: Dialect) -> dict[str, Any]:
    options = {"stream_options": {"include_usage": True}} if dialect.has_ids else {}
    return {"stream": True, **options} if is_streamed else {}


def _events(response: HTTPResponse, is_streamed: bool) -> Iterator[dict[str, Any]]:
    """The answer, whole or as its events come in."""
    if not is_streamed:
        yield json.loads(response.read())
        return
    for line in response:
        if line.startswith(b"data: {"):
            yield json.loads(line[6:])


def _usage(usage: dict[str, Any] | None) -> Usage:
    if usage is None:
        return Usage()
    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
    return Usage(usage["prompt_tokens"], cached, usage.get("completion_tokens") or 0)
