"""Who a request comes from, by its key.

Keys are compared in constant time, and all of them each time: how long a refusal takes reveals
nothing about any key.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, replace

from ..wire.relaywire import RelayedClient
from .errors import Fault, Refused
from .rate_limits import Rates
from .settings import Settings

OPEN_PATHS = frozenset(
    {"/health", "/ready", "/", "/page.css", "/page.js"}
    | {"/docs", "/docs.css", "/docs.js", "/openapi.json"}
)
ADMIN_PATHS = frozenset(
    {"/flush_cache", "/reset_prefix_cache", "/metrics", "/server_info", "/get_server_info"}
    | {"/drain"}
)


@dataclass(frozen=True, slots=True)
class Client:
    """A client. namespace: its part of the cache; "" is shared by everybody. tenant: who it is,
    also where the cache is shared. weight: its share of the engine. name: a short hash of its key,
    for logs; None without a key."""

    namespace: str = ""
    is_admin: bool = False
    tenant: str = ""
    weight: float = 1.0
    name: str | None = None


def within(space: str, namespace: str) -> str:
    """A part that a client names of its own part of the cache, as the backend knows it."""
    return f"{space}/{namespace}" if space else namespace


def relayed_by(sender: Client, relayed: RelayedClient) -> Client:
    """Whose a request is that a router relays. One with an admin's key says it; any other one may
    only name a part of its own part of the cache, as it may in every request."""
    namespace = sender.namespace
    if relayed.namespace:
        namespace = within(namespace, relayed.namespace)
    if sender.is_admin:
        return Client(namespace, False, relayed.tenant, relayed.weight, sender.name)
    return replace(sender, namespace=namespace)


class Keys:
    """The keys of a server."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._clients = {key.encode(): _client(key, settings) for key in settings.keys}
        self._admins = [key.encode() for key in settings.admin_keys]

    @property
    def rates(self) -> dict[str, Rates]:
        """The rates of tenants that have their own."""
        given = self._settings.rates_by_key
        return {self._clients[key.encode()].tenant: rates for key, rates in given.items()}

    @property
    def are_several(self) -> bool:
        """Whether there are keys of more than one client."""
        return len(self._clients) > 1

    def client(self, path: str, authorization: str | None) -> Client:
        """Who sends this header. Raises Refused: 401 for a missing or unknown key, 403 for a
        client's key where an admin's is needed."""
        kind, _, key = (authorization or "").partition(" ")
        given = key.strip().encode() if kind.lower() == "bearer" else b""
        is_admin = sum(hmac.compare_digest(own, given) for own in self._admins) > 0  # all compared
        known = [it for own, it in self._clients.items() if hmac.compare_digest(own, given)]
        name = name_of(given) if known or is_admin else None
        if path in OPEN_PATHS:
            return Client(is_admin=is_admin, name=name)
        if is_admin:
            return Client("admin" if self._clients else "", True, "admin", name=name)
        if path in ADMIN_PATHS and (self._admins or self._clients):
            raise _refused(403 if known else 401, "an admin key", given)
        if self._clients and not known:
            raise _refused(401, "an API key", given)
        if known:
            return replace(known[0], name=name)
        return Client(is_admin=not (self._admins or self._clients))


def name_of(key: bytes) -> str:
    """The name of a key's holder in logs, from which nobody can find the key."""
    return hashlib.sha256(b"forkroot client" + key).hexdigest()[:12]


def _client(key: str, settings: Settings) -> Client:
    name = "key-" + hashlib.sha256(b"forkroot namespace" + key.encode()).hexdigest()[:32]
    weight = settings.weights.get(key, 1.0)
    return Client("" if settings.shares_cache else name, tenant=name, weight=weight)


def _refused(status: int, wanted: str, given: bytes) -> Refused:
    """given: the key that was sent, which the message does not repeat; empty for none."""
    message = f"this route needs {wanted}, sent as 'Authorization: Bearer KEY'"
    if status == 403:
        message = f"a client's API key was sent: {message}"
        return Refused(message, Fault(403, "permission_error", "admin_key_required"))
    message = f"invalid API key: {message}" if given else message
    return Refused(message, Fault(401, "authentication_error", "invalid_api_key"))
