"""Runs the application until a signal, and then drains it. The first Ctrl-C is obeyed by what runs,
and each later one ends the process at once, without a word. Its child processes see that it is
gone, and end too.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import ipaddress
import logging
import math
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from types import FrameType

import uvicorn

from ...core.api.protocol import Backend
from ...core.common.memory import trim_regularly
from .app import build_app
from .connections import MAX_HEAD, Connections, protocol_of
from .server.request_registry import RequestRegistry, Restarting
from .server.runtime import Runtime
from .server.settings import Settings

_SECONDS_BETWEEN_LOOKS = 0.5
_SECONDS_TO_REPORT = 2  # that a client has to read the end of a call that was ended
_ACCEPTED_AT_ONCE = 16  # connections, before the event loop does other work
_NEW_OBJECTS = 10_000  # before they are searched for garbage: most of a request's are gone by then
_SECONDS_BETWEEN_SWITCHES = 0.001  # of threads: the event loop waits so long behind each piece
_ALLOWED = {
    errno.EADDRINUSE: "a free port, or --port 0 to pick one (`lsof -i :{port}` shows which process"
    " uses this one)",
    errno.EACCES: "a --port of 1024 or more, or --port 0 to pick a free one",
}
_INTERRUPTED = 130  # the exit code after Ctrl-C
_HOSTS = "a --host of this machine, as 127.0.0.1 for itself alone, or 0.0.0.0 for all networks"
_log = logging.getLogger("forkroot.http")


def serve(
    runtime: Runtime,
    settings: Settings,
    host: str,
    port: int,
    on_start: Callable[[str], object] | None = None,
) -> int:
    """Serve until SIGTERM or SIGINT, and give the process's exit code: 1 if the backend ended
    before. Open requests then have `limits.drain` seconds to end, while new ones are not taken.

    port: 0 for any that is free. on_start: called with the URL; None: it is printed. Raises OSError
    where it cannot listen.
    """
    check_address(host, port)
    with _logging_to_stderr():
        if warning := exposure(host, settings):
            _log.warning("warning: %s", warning)
        announce = on_start or partial(_announce, runtime.name)
        server = server_of(runtime, settings, host, port, announce)
        try:
            return int(_run(server, runtime.backend))
        except SystemExit as error:
            raise OSError(f"the server cannot listen at host={host}, port={port}") from error


def _run(server: uvicorn.Server, backend: Backend) -> bool:
    """Run it to its end; whether that was because the backend ended."""
    stopped, ended = threading.Event(), threading.Event()
    watch = threading.Thread(
        target=_watch, args=(backend, server, stopped, ended), name="forkroot-watch", daemon=True
    )
    # uvicorn raises the signal again when it has stopped: by then it was obeyed
    before = signal.signal(signal.SIGTERM, lambda number, frame: None)
    gc.freeze()  # loaded objects stay: keep them out of garbage collections
    often, interval = gc.get_threshold(), sys.getswitchinterval()
    gc.set_threshold(_NEW_OBJECTS, *often[1:])
    sys.setswitchinterval(min(interval, _SECONDS_BETWEEN_SWITCHES))
    stop_trimming = trim_regularly(collects=True)
    try:
        watch.start()
        server.run()
    finally:
        stopped.set()
        stop_trimming()
        signal.signal(signal.SIGTERM, before)
        gc.set_threshold(*often)
        sys.setswitchinterval(interval)
        gc.unfreeze()
    return ended.is_set()


def _watch(
    backend: Backend, server: uvicorn.Server, stopped: threading.Event, ended: threading.Event
) -> None:
    """Until `stopped`: stop a server whose backend has ended, and set `ended`."""
    while not stopped.wait(_SECONDS_BETWEEN_LOOKS):
        try:
            backend.info()
        except Exception as error:
            if isinstance(backend, Restarting) and not backend.is_over:
                continue
            _log.error("the backend has ended: %s", error)
            ended.set()
            server.should_exit = True
            return


def server_of(
    runtime: Runtime,
    settings: Settings,
    host: str,
    port: int,
    on_start: Callable[[str], object],
) -> AnnouncedServer:
    """The server that `serve` runs, to be run elsewhere, as in a thread."""
    app, drain = build_app(runtime, settings), runtime.limits.drain
    connections = Connections(runtime.limits)
    config = uvicorn.Config(
        app,
        host,
        port,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        http=protocol_of(connections),
        backlog=_ACCEPTED_AT_ONCE,  # more wait: see `AnnouncedServer.startup`
        h11_max_incomplete_event_size=8 * MAX_HEAD,  # so that ours is the limit
        timeout_graceful_shutdown=math.ceil(drain) + _SECONDS_TO_REPORT,
    )
    return AnnouncedServer(config, on_start, app.state.requests, drain, connections)


class AnnouncedServer(uvicorn.Server):
    """A server that announces its URL once it listens. Ctrl-C while it drains ends the process.

    registry: of its open requests; None for another application. drain: seconds that open requests
      have at shutdown; their calls are ended after it. connections: of `config`.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        on_start: Callable[[str], object],
        registry: RequestRegistry | None = None,
        drain: float = 0.0,
        connections: Connections | None = None,
    ) -> None:
        super().__init__(config)
        self._connections = connections
        self._on_start = on_start
        self._registry = registry
        self._drain = drain

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """As in uvicorn; a call that takes longer than the drain is ended, and its client gets an
        error."""
        if self._connections is not None:
            logging.getLogger("uvicorn.error").removeFilter(self._connections.is_news)
        if self._registry is None:
            await super().shutdown(sockets)
            return
        self._registry.drain(True)
        if self._registry.open:
            message = "open requests: %d; they have %g s, Ctrl-C ends them at once"
            _log.info(message, len(self._registry.open), self._drain)
        late = asyncio.get_running_loop().call_later(self._drain, self._registry.end_calls)
        try:
            await super().shutdown(sockets)
        finally:
            late.cancel()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """As in uvicorn, then the announcement."""
        if self._connections is not None:
            asyncio.get_running_loop().set_exception_handler(self._connections.report)
            logging.getLogger("uvicorn.error").addFilter(self._connections.is_news)
        await super().startup(sockets)
        if self.started and self._connections is not None:
            for listening in (it for server in self.servers for it in server.sockets):
                with socket.socket(fileno=os.dup(listening.fileno())) as same:
                    same.listen(self._connections.backlog)
        if self.started and self.servers:
            host, port = self.servers[0].sockets[0].getsockname()[:2]
            self._on_start(f"http://{f'[{host}]' if ':' in host else host}:{port}")

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """As in uvicorn: the first signal ends it well."""
        if self.should_exit and sig == signal.SIGINT:
            end_now()
        super().handle_exit(sig, frame)


def exposure(host: str, settings: Settings) -> str | None:
    """What is dangerous about serving there; None for nothing."""
    try:
        is_loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name
        is_loopback = host == "localhost"
    if is_loopback or settings.keys:
        return None
    return (
        f"host={host} can be reached by others, and no API key is set: anybody who reaches it"
        " can use it, and all share one cache"
    )


@contextlib.contextmanager
def _logging_to_stderr() -> Iterator[None]:
    """One line for each request, as it is."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s"))
    log, below = logging.getLogger("forkroot"), logging.getLogger("uvicorn.error")
    before = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    below.addFilter(_is_news)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(before)
        below.removeFilter(_is_news)


def _is_news(record: logging.LogRecord) -> bool:
    """Not that a request was cut which took longer than the drain."""
    return not (record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError))


def check_address(host: str, port: int) -> None:
    """Raise OSError, with what is allowed, where a server could not listen as things are now."""
    errors, num_free = list[OSError](), 0
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        addresses = []
        errors.append(error)
    for family, kind, protocol, _, address in addresses:
        try:
            with socket.socket(family, kind, protocol) as trial:
                trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    trial.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                trial.bind(address)
            num_free += 1
        except OSError as error:
            errors.append(error)
    for fault in errors:
        if num_free == 0 or fault.errno in _ALLOWED:  # a machine may have no IPv6
            expected = _ALLOWED.get(fault.errno or 0, _HOSTS).format(port=port)
            where = f"port={port}" if fault.errno in _ALLOWED else f"host={host}, port={port}"
            raise OSError(f"invalid {where}: {fault.strerror}; expected {expected}") from fault


def _announce(name: str, url: str) -> None:
    """Where the server is: for programs on stdout, for people in the log."""
    print(url, flush=True)
    message = "%s is served at %s (to OpenAI's clients: base_url=%s/v1); Ctrl-C stops the server"
    _log.info(message, name, url, url)


@contextlib.contextmanager
def obeyed_once() -> Iterator[None]:
    """While this runs, the first Ctrl-C raises KeyboardInterrupt; the process is then to end, and
    what is left of it is quiet, too. Nothing changes outside of the main thread, where no signals
    arrive."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, _interrupt)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is _interrupt:
            signal.signal(signal.SIGINT, before)


def end_now() -> None:
    """End the process: no drain, no clean-up, no output."""
    os._exit(_INTERRUPTED)


def _interrupt(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGINT, lambda number, frame: end_now())
    raise KeyboardInterrupt
