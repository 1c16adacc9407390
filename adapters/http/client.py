"""The client of a forkroot server: the same protocol, in another process or on another machine.

One thread with one event loop carries all calls. It knows nothing of engines or models.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import httpx

from ...core.api.dialects import log_ignored
from ...core.api.evictions import EvictionReport, PrefixReport
from ...core.api.owner import Closing, Owner
from ...core.api.program_report import ProgramReport
from ...core.api.protocol import (
    BackendClosed,
    BackendInfo,
    Call,
    ForkrootError,
    InvalidCall,
    JsonSchema,
    Reply,
    Shown,
    check_call,
)
from ...core.api.reply import Mailbox
from ...core.common.exits import close_at_exit
from ..common.call_loop import CallLoop
from ..programs import FEATURE, ProgramReceiver, ProgramRequest
from ..relays import RELAY_FEATURE, RelayReceiver, RelayRequest
from .client_exchange import Exchange, no_server, refused, shown, unreachable
from .client_programs import ProgramExchange, SentPrograms
from .client_relay import RelayExchange, RelayLines
from .lines import Lines, can_take
from .wire.callwire import (
    EVICTIONS_PATH,
    INFO_PATH,
    PREFIXES_PATH,
    REPORT_PATH,
    SILENCE,
    plain,
    value_of,
)

_CALLS_AT_ONCE = 8  # of one pool of connections


class RemoteBackend(Closing):
    """As `Backend`, over a server at `url`, which is contacted at the first call. Raises
    InvalidCall for an invalid URL, key or time.

    api_key: sent with each call. connect_timeout: seconds in which the server must be there.
    silence: seconds without a word of the server after which a call ends in BackendClosed. None: as
      many as it takes.

    Pickled, it is another one over the same server; the pickle holds the key.
    """

    def __init__(
        self,
        url: str,
        api_key: str | None = None,
        *,
        connect_timeout: float | None = 5.0,
        silence: float | None = 6 * SILENCE,
    ) -> None:
        for name, seconds in (("connect_timeout", connect_timeout), ("silence", silence)):
            is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
            if seconds is not None and not (is_number and 0 < seconds < 1e9):
                raise InvalidCall(name, seconds, "a number of seconds > 0, or None for any")
        if api_key is not None and not _is_key(api_key):
            shown_key = Shown("...") if isinstance(api_key, str) and api_key else api_key
            raise InvalidCall("api_key", shown_key, "a text of visible ASCII characters, or None")
        self._owner = Owner()
        self._given = {"connect_timeout": connect_timeout, "silence": silence}, url, api_key
        self._url = _url(url)
        self._headers = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
        self._timeout = httpx.Timeout(silence, connect=connect_timeout, pool=None)
        self._pools = Pools(self._url, self._headers, self._timeout)
        of_lines = self._url, self._headers, connect_timeout, silence
        self._lines = Lines(*of_lines) if can_take(self._url) else None
        self._relays = RelayLines(*of_lines)
        self._programs = SentPrograms()
        self._takes_programs: bool | None = None
        self._relays_for = ""  # the model, where the server answers relayed requests
        self._has_asked = False  # whether a connection for questions may be kept
        self._logged = set[str]()
        self._calls = CallLoop("forkroot-remote", partial(_disconnect, self._pools, self._lines))
        close_at_exit(self)

    def submit(self, call: Call) -> Mailbox:
        """Take a call without waiting; it is checked here and prepared there."""
        mailbox = Mailbox(call, self.cancel)
        body = mailbox.prepared(lambda: self._body(call))
        if body is not None:
            self._calls.submit(mailbox, lambda: self._exchange(mailbox, body))
        return mailbox

    def _body(self, call: Call) -> bytes:
        """A call as the body of a request. Raises ForkrootError, and what an invalid value does."""
        self._owner.check()
        check_call(call)
        if isinstance(call.constraint, JsonSchema):  # the server's log is elsewhere
            log_ignored(call.constraint.schema, "json_schema", self._logged)
        return json.dumps(plain(call), allow_nan=False).encode()

    def cancel(self, reply: Reply) -> None:
        """End a call early; its completion says "abort"."""
        self._calls.cancel(reply)

    def info(self) -> BackendInfo:
        """What the server runs, and its counters where this client may see them. Raises
        BackendClosed if no forkroot server answers, and the errors of the server."""
        found: BackendInfo = self._get(INFO_PATH)
        self._takes_programs = FEATURE in found.features
        self._relays_for = found.model if RELAY_FEATURE in found.features else ""
        return replace(found, features=frozenset(found.features))

    def evictions(self, after: int = -1) -> EvictionReport:
        """What the server's cache has forgotten since a report that ended with this number. Raises
        as `info`."""
        found: EvictionReport = self._get(f"{EVICTIONS_PATH}?after={after}")
        return found

    def prefixes(self) -> PrefixReport:
        """The prefixes in the server's cache that were used last. Raises as `info`."""
        found: PrefixReport = self._get(PREFIXES_PATH)
        return found

    def program_report(self, tenant: str | None = None) -> ProgramReport:
        """What programs have used there, by kind: those of this client, and of all clients for an
        admin. tenant: of one only. Raises as `info`."""
        query = "" if tenant is None else f"?{httpx.QueryParams(tenant=tenant)}"
        found: ProgramReport = self._get(REPORT_PATH + query)
        return found

    def _get(self, path: str) -> Any:
        """The value that a route of the server gives."""
        if self._calls.is_closed:
            raise BackendClosed.before()
        try:
            response = self._answer(path)
        except (httpx.RemoteProtocolError, httpx.ReadError) as error:
            if self._url.scheme == "https":
                raise unreachable(self._url, error) from error
            suggested = shown(self._url, "https")
            raise no_server(self._url, f"{error!r:.200}; did you mean {suggested}?") from error
        except httpx.HTTPError as error:
            raise unreachable(self._url, error) from error
        except RuntimeError as error:  # closed meanwhile
            raise BackendClosed.before() from error
        if response.status_code != httpx.codes.OK:
            raise refused(self._url, response, response.content)
        try:
            return value_of(response.json())
        except (ValueError, TypeError, AttributeError) as error:
            raise no_server(self._url, f"its answer cannot be read ({error!r:.100})") from error

    def _answer(self, path: str) -> httpx.Response:
        """The answer to a question; once more where the kept connection was closed meanwhile."""
        if not self._owner.is_here:  # the connection is the parent's
            with self._new_client() as http:
                return http.get(path)
        is_kept, self._has_asked = self._has_asked, False
        try:
            response = self._questions.get(path)
        except (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError):
            if not is_kept:
                raise
            response = self._questions.get(path)
        self._has_asked = True
        return response

    @cached_property
    def _questions(self) -> httpx.Client:
        """For questions that wait for their answer, on a connection that is kept."""
        return self._new_client()

    def _new_client(self) -> httpx.Client:
        verify = httpx.create_ssl_context() if self._url.scheme == "https" else False
        return httpx.Client(
            base_url=self._url, headers=self._headers, timeout=self._timeout, verify=verify
        )

    def takes_programs(self) -> bool:
        """As `ProgramHost.takes_programs`."""
        if self._takes_programs is None:
            self.info()
        return bool(self._takes_programs)

    def run_program(
        self, request: ProgramRequest, receiver: ProgramReceiver
    ) -> Callable[[], object]:
        """As `ProgramHost.run_program`."""
        runs: list[ProgramExchange] = []  # the one, once it has begun; filled in the loop

        def begin() -> None:
            pool = self._pools.taken()
            run = ProgramExchange(pool.http, request, receiver, self._programs, self._lines)
            runs.append(run)
            self._calls.carry(run)
            run.task.add_done_callback(pool.left)

        try:
            self._owner.check()
        except ForkrootError as error:
            receiver.fail(error, {})
            return lambda: None
        if not self._calls.post(begin):
            receiver.fail(BackendClosed.before(), {})

        def cancel() -> None:
            for run in runs:
                run.cancel()

        return lambda: self._calls.post(cancel)

    def takes_relays(self, model: str) -> bool:
        """As `RelayTarget.takes_relays`, as far as the last `info` told."""
        return self._lines is not None and model != "" and model == self._relays_for

    def relay(self, request: RelayRequest, receiver: RelayReceiver) -> Callable[[], object]:
        """As `RelayTarget.relay`. It lives in the loop that runs here."""
        if self._calls.is_closed or not self._owner.is_here:
            receiver.fail(BackendClosed.before())
            return lambda: None
        exchange = RelayExchange(self._relays, request, receiver)
        return exchange.cancel

    def end_relays(self) -> None:
        """As `RelayTarget.end_relays`."""
        self._relays.end()

    def close(self) -> None:
        """Stop; open calls end in BackendClosed here, and are cancelled there. Nothing in a fork of
        this process."""
        if not self._owner.is_here:
            return
        self._relays.close()
        if "_questions" in vars(self):
            self._questions.close()
        self._calls.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return _remote, (type(self), *self._given)

    # --- in the loop's thread ------------------------------------------------------------------

    def _exchange(self, mailbox: Mailbox, body: bytes) -> Exchange:
        pool = self._pools.taken()
        exchange = Exchange(pool.http, mailbox, body, self._lines)
        exchange.task.add_done_callback(pool.left)
        return exchange


@dataclass(slots=True, eq=False)
class Pool:
    """Connections for a few calls. num_open: calls that use them."""

    http: httpx.AsyncClient
    num_open: int = 0

    def left(self, _: object) -> None:
        """A call has ended."""
        self.num_open -= 1


class Pools:
    """Connections to one server, in as many small pools as the calls at work need; those that were
    needed stay.

    The library looks through all connections of a pool whenever it hands one out or takes one back:
    one pool for some hundred calls would spend its time on that.
    """

    def __init__(self, url: httpx.URL, headers: Mapping[str, str], timeout: httpx.Timeout) -> None:
        self._url = url
        self._headers = headers
        self._timeout = timeout
        self._verify = httpx.create_ssl_context() if url.scheme == "https" else False
        self._pools: list[Pool] = []

    def taken(self) -> Pool:
        """A pool with a free connection; counts one more call."""
        pool = next((it for it in self._pools if it.num_open < _CALLS_AT_ONCE), None)
        if pool is None:
            limits = httpx.Limits(max_connections=None, max_keepalive_connections=_CALLS_AT_ONCE)
            http = httpx.AsyncClient(
                base_url=self._url,
                headers=self._headers,
                timeout=self._timeout,
                verify=self._verify,
                limits=limits,
            )
            pool = Pool(http)
            self._pools.append(pool)
        pool.num_open += 1
        return pool

    async def close(self) -> None:
        """Close all connections."""
        for pool in self._pools:
            await pool.http.aclose()


async def _disconnect(pools: Pools, lines: Lines | None) -> None:
    await pools.close()
    if lines is not None:
        lines.close()


def _is_key(value: Any) -> bool:
    """Whether this can be sent in a header."""
    is_text = isinstance(value, str) and value.strip() != ""
    return is_text and value.isascii() and value.isprintable()


def _url(text: str) -> httpx.URL:
    try:
        url = httpx.URL(text)
    except (httpx.InvalidURL, TypeError):
        url = httpx.URL()
    is_port = url.port is None or 0 < url.port < 2**16
    if url.scheme not in ("http", "https") or not url.host or not is_port:
        raise InvalidCall("url", text, "a URL such as http://127.0.0.1:30000")
    path = url.path.rstrip("/").removesuffix("/v1")  # which clients of OpenAI's API write
    return url.copy_with(path=path or "/")


def _remote(kind: type[RemoteBackend], times: dict[str, Any], *given: Any) -> RemoteBackend:
    return kind(*given, **times)
