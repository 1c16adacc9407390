"""Servers of the wires of APIs, for tests: what they answer is scripted, fault by fault.

`Anthropic` is written from the public documentation of the Messages API.
"""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = Callable[["Exchange"], object]


class Exchange:
    """A request that came, and the ways to answer it."""

    def __init__(self, handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        self.handler, self.body, self.path = handler, body, handler.path
        self.headers = {name.lower(): value for name, value in handler.headers.items()}

    def json(self, value: Any, status: int = 200, **headers: str) -> None:
        """A whole body."""
        self.raw(json.dumps(value).encode(), status, **headers)

    def raw(self, data: bytes, status: int = 200, **headers: str) -> None:
        handler = self.handler
        handler.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **headers}.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(data)

    def stream(self, *pieces: bytes, pause: float = 0.0) -> None:
        """A stream of these bytes that ends by closing the connection."""
        handler = self.handler
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream")
        handler.send_header("Connection", "close")
        handler.end_headers()
        for piece in pieces:
            handler.wfile.write(piece)
            handler.wfile.flush()
            time.sleep(pause)
        handler.close_connection = True

    def reset(self) -> None:
        """Close the connection by RST."""
        linger = struct.pack("ii", 1, 0)
        self.handler.wfile.flush()
        self.handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.handler.connection.close()
        self.handler.close_connection = True


class ApiServer:
    """Answers each request by `answer`, and keeps them in `requests`."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.requests: list[Exchange] = []
        self.running = 0
        self.most_running = 0
        self._lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                exchange = Exchange(self, body)
                with outer._lock:
                    outer.requests.append(exchange)
                    outer.running += 1
                    outer.most_running = max(outer.most_running, outer.running)
                try:
                    outer.answer(exchange)
                except (BrokenPipeError, ConnectionResetError):
                    self.close_connection = True
                finally:
                    with outer._lock:
                        outer.running -= 1

            def log_message(self, *args: Any) -> None:
                """Nothing."""

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, request: Any, client_address: Any) -> None:
                """A connection that a test has reset."""

        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"


@contextmanager
def api_server(answer: Answer) -> Iterator[ApiServer]:
    """A server in threads of this process."""
    found = ApiServer(answer)
    thread = threading.Thread(target=found.server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield found
    finally:
        found.server.shutdown()
        found.server.server_close()
        thread.join(60)


# --- OpenAI ----------------------------------------------------------------------------------


def chat_body(text: str | None, **fields: Any) -> dict[str, Any]:
    """The body of a chat's answer. fields: of its message, or `reason`."""
    reason = fields.pop("reason", "stop")
    message = {"role": "assistant", "content": text, **fields}
    usage = {
        "prompt_tokens": 10,
        "completion_tokens": 5,
        "total_tokens": 15,
        "prompt_tokens_details": {"cached_tokens": 4},
    }
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": reason}],
        "usage": usage,
    }


def chat_events(*texts: str, reason: str = "stop") -> list[bytes]:
    """The events of a chat's streamed answer."""
    deltas = [{"index": 0, "delta": {"content": text}, "finish_reason": None} for text in texts]
    last = {"index": 0, "delta": {}, "finish_reason": reason}
    chunks: list[dict[str, Any]] = [{"choices": [choice]} for choice in (*deltas, last)]
    chunks.append({"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": len(texts)}})
    return [*(f"data: {json.dumps(it)}\n\n".encode() for it in chunks), b"data: [DONE]\n\n"]


# --- Anthropic -------------------------------------------------------------------------------


def error_body(kind: str, message: str) -> dict[str, Any]:
    """An error of the Messages API."""
    return {"type": "error", "error": {"type": kind, "message": message}}


class Anthropic:
    """Answers requests of the Messages API with what `write` makes of their bodies: a text, or
    blocks of content. It stops at stop sequences and after `max_tokens` words, as the API does."""

    def __init__(self, write: Callable[[dict[str, Any]], str | list[dict[str, Any]]]) -> None:
        self.write = write

    def __call__(self, exchange: Exchange) -> None:
        body = exchange.body
        if (fault := self.fault(exchange)) is not None:
            exchange.json(error_body("invalid_request_error", fault), 400)
            return
        bearer = exchange.headers.get("authorization", "").removeprefix("Bearer ")
        if exchange.headers.get("x-api-key", bearer) != "sk-ant-test":
            exchange.json(error_body("authentication_error", "invalid x-api-key"), 401)
            return
        content = self.write(body)
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        reason, matched = "end_turn", None
        for block in blocks:
            if block["type"] == "tool_use":
                reason = "tool_use"
                continue
            for stop in body.get("stop_sequences", ()):
                if stop in block["text"]:
                    block["text"], reason = block["text"].partition(stop)[0], "stop_sequence"
                    matched = stop
            words = block["text"].split(" ")
            if len(words) > body["max_tokens"]:
                block["text"], reason = " ".join(words[: body["max_tokens"]]), "max_tokens"
        usage = {"input_tokens": 12, "cache_read_input_tokens": 8, "output_tokens": 6}
        message = {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": body["model"],
            "content": blocks,
            "stop_reason": reason,
            "stop_sequence": matched,
            "usage": usage,
        }
        if body.get("stream"):
            exchange.stream(*self.events(message))
        else:
            exchange.json(message)

    def fault(self, exchange: Exchange) -> str | None:
        """Why a request is refused with 400."""
        body = exchange.body
        version = exchange.headers.get("anthropic-version")
        if exchange.path != "/v1/messages" or version not in ("2023-06-01", "2026-10-21"):
            return "not a request of the Messages API"
        sampled = {"temperature", "top_p", "top_k"} & body.keys()
        if sampled and version != "2023-06-01":
            return f"{min(sampled)}: Extra inputs are not permitted"
        if not isinstance(body.get("max_tokens"), int) or not body.get("messages"):
            return "max_tokens and messages are required"
        if any(not stop.strip() for stop in body.get("stop_sequences", ())):
            return "stop_sequences: each stop sequence must contain non-whitespace"
        last = body["messages"][-1]
        if last["role"] == "assistant" and str(last["content"]).endswith((" ", "\n")):
            return "messages: final assistant content cannot end with trailing whitespace"
        return None

    def events(self, message: dict[str, Any]) -> Iterator[bytes]:
        start = {**message, "content": [], "stop_reason": None, "stop_sequence": None}
        start["usage"] = {**message["usage"], "output_tokens": 1}
        yield event("message_start", message=start)
        yield event("ping")
        for index, block in enumerate(message["content"]):
            if block["type"] == "text":
                yield event(
                    "content_block_start", index=index, content_block={"type": "text", "text": ""}
                )
                text = block["text"]
                for at in range(0, len(text), 4):
                    delta = {"type": "text_delta", "text": text[at : at + 4]}
                    yield event("content_block_delta", index=index, delta=delta)
            else:
                yield event(
                    "content_block_start", index=index, content_block={**block, "input": {}}
                )
                data = json.dumps(block["input"])
                for piece in (data[:3], data[3:]):
                    delta = {"type": "input_json_delta", "partial_json": piece}
                    yield event("content_block_delta", index=index, delta=delta)
            yield event("content_block_stop", index=index)
        delta = {"stop_reason": message["stop_reason"], "stop_sequence": message["stop_sequence"]}
        yield event("message_delta", delta=delta, usage={"output_tokens": 6})
        yield event("message_stop")


def event(kind: str, **fields: Any) -> bytes:
    """A server-sent event."""
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()
