"""From calls to fork hints: what calls share is found, named, sent first and counted.

One `Prefixes` for each backend, shared by all adapters. A hint is only ever help: whatever goes
wrong here, the call itself goes out as it came. It knows the protocol and no framework.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...core.api.protocol import (
    Backend,
    Call,
    Chat,
    ForkHint,
    Message,
    Prompt,
    Reply,
    Sampling,
    Text,
)
from ...core.common.harmless import hint_errors
from .outline import Group, Outline, groups
from .savings import Savings
from .seen import Seen

LEAST = 100  # characters from which on a beginning in common is worth a name
MOST_CHARS = 1 << 22
PINNED_FOR = 5.0  # seconds for which a runtime keeps what was sent ahead, at least
KEPT_SHARE = 0.5  # of a pool: what programs come back to holds no more
AMPLE = 0.5  # of that: what may as well be kept holds no more, all that is kept counted

_PLANT = Sampling(max_tokens=0)
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Root:
    """A beginning that has a name. pinned_until: the second until which it surely is pinned."""

    name: str
    length: int
    pinned_until: float = 0.0


class Prefixes(Savings):
    """Finds what the calls to one backend share, and counts what that saved. Every method may be
    called from any thread, and none waits for an answer.

    most_kept: tokens that `keep` pins at most; None as long as the backend's pool is not known.
    """

    def __init__(self, backend: Backend) -> None:
        super().__init__()
        self._backend = backend
        self._lock = threading.Lock()
        self._seen: Seen[_Root] = Seen(MOST_CHARS)
        self._wanted: dict[tuple[str, str], int] = {}
        self._kept: set[tuple[str, str]] = set()
        self._follows_hints = True
        self.most_kept: float | None = None
        self._has_asked_backend = threading.Lock()  # taken once, and for good

    def submit(self, call: Call) -> Reply:
        """Take a call. Unless it has a hint, it gets one from the calls seen before."""
        with hint_errors.suppress(_log, "adding a hint to a call"):
            if _is_bare(call):
                call = self._hinted(call)
            else:
                self._remember(call)
        return self.follow(self._backend.submit(call))

    def submit_all(self, calls: Sequence[Call]) -> list[Reply]:
        """Take calls that are to run at the same time. What several of them share is sent first."""
        found: dict[int, ForkHint] = {}
        with hint_errors.suppress(_log, "planting what calls share"):
            bare = [index for index, call in enumerate(calls) if _is_bare(call)]
            for group in groups([calls[index] for index in bare], LEAST):
                members = [bare[index] for index in group.members]
                first = calls[members[0]]
                hints = self._fork(first.namespace, group, _kind_of(first))
                found.update(zip(members, hints, strict=True))
                for index in members:
                    self._remember(calls[index])
        return [
            self._counted(_sharing(call, found[index])) if index in found else self.submit(call)
            for index, call in enumerate(calls)
        ]

    def plant(self, prompt: Prompt, branches: int | None = None, namespace: str = "") -> ForkHint:
        """Send a prefix ahead of the calls that will share it, and pin it for them.

        branches: how many they are. A chat that ends in a message of the system or the assistant is
        taken as the beginning of longer ones. Calls that bear the hint, or begin so and bear none,
        share the prefix. Never raises: a prefix that cannot be planted costs time only.
        """
        hint = ForkHint("", branches)
        with hint_errors.suppress(_log, "planting a prefix"):
            outline = Outline.of(_opened(prompt))
            with self._lock:
                self._seen.add(namespace, outline.text)
                root = self._root_at(namespace, outline, len(outline.text))
            hint = ForkHint(root.name, branches)
            self._plant(namespace, outline.prompt, root, hint)
        return hint

    def keep(self, reply: Reply, root: str) -> bool:
        """Pin the prompt of a call that has ended, for those that come back to it.

        root: a name of the caller's own; the next prompt that is kept under it takes this one's
        place, until `release`. False where it is not kept: where all that is to be kept is more
        than a share of the runtime's pool, pins would only let fewer calls run. Never raises.
        """
        with hint_errors.suppress(_log, "keeping a prompt"):
            if reply.error() is not None:
                return False
            call, size = reply.call, reply.result(0).usage.prompt_tokens
            if self._accepts_hints() and self._can_keep((call.namespace, root), size):
                hint = ForkHint(root, kind=_kind_of(call))
                self._send_ahead(call.prompt, hint, call.namespace)
                return True
        return False

    def send_on(self, prompt: Prompt, root: str, beside: str = "", namespace: str = "") -> bool:
        """Compute the beginning of a prompt that is about to come, and pin it under `root` in the
        place of what is kept there. beside: where nothing need be, the root of a prompt that is
        kept and about as long; this one is, too, if there is ample room for both. Whether it was
        sent. Never raises."""
        with hint_errors.suppress(_log, "sending a prompt ahead"):
            key, source = (namespace, root), (namespace, beside or root)
            with self._lock:
                is_kept, size = source in self._kept, self._wanted.get(source, 0)
            if is_kept and (not beside or self._can_keep(key, size, AMPLE)):
                self._send_ahead(prompt, ForkHint(root), namespace)
                return True
        return False

    def release(self, hint: ForkHint, namespace: str = "") -> None:
        """Unpin a planted or kept prefix; it stays cached while there is room. Never raises."""
        with hint_errors.suppress(_log, "releasing a prefix"):
            key = namespace, hint.root
            with self._lock:
                is_wanted, is_kept = self._wanted.pop(key, None) is not None, key in self._kept
                self._kept.discard(key)
            if is_wanted and not is_kept:
                return
            ended = ForkHint(hint.root, branches=0)  # a new pin ends the old, and for none is none
            self._backend.submit(Call((Text("."),), _PLANT, hint=ended, namespace=namespace))

    @property
    def num_chars(self) -> int:
        """Characters' worth of memory that is kept of earlier calls; bounded."""
        return self._seen.size

    # --- roots -------------------------------------------------------------------------------

    def _hinted(self, call: Call) -> Call:
        """The call with a hint, if it begins as an earlier one did. One that continues an earlier
        one needs no pin: it bears the root that this one had, to be counted with it."""
        outline, namespace = Outline.of(call.prompt), call.namespace
        with self._lock:
            known = self._seen.add(namespace, outline.text)
            if known.length < LEAST:
                return call
            find = self._root if known.is_fork else self._first_root
            root = find(namespace, outline, known.length)
        hint = ForkHint(root.name, kind=_kind_of(call))
        if known.is_fork and not outline.is_hintable(root.length):
            self._plant(namespace, outline.before(root.length), root, hint)
        elif known.is_fork and self._pins(root, hint):
            hint = replace(hint, prefix_end=outline.num_whole(root.length))
        return _sharing(call, hint)

    def _fork(self, namespace: str, group: Group, kind: str | None) -> list[ForkHint]:
        """The hints of calls that share a beginning, which is sent ahead of them unless it is
        cached already: then the first of them has its end in the hint."""
        outline = group.outline
        with self._lock:
            known_len = self._seen.add(namespace, outline.text).length
            root = self._root(namespace, outline, group.length)
        hints = [ForkHint(root.name, len(group.members), kind=kind)] * len(group.members)
        is_hintable = outline.is_hintable(root.length)
        if is_hintable and (known_len >= root.length or len(hints) == 1):
            hints[0] = replace(hints[0], prefix_end=outline.num_whole(root.length))
        elif len(hints) > 1:
            self._plant(namespace, outline.before(root.length), root, hints[0])
        return hints

    def _remember(self, call: Call) -> None:
        with self._lock:
            self._seen.add(call.namespace, Outline.of(call.prompt).text)

    def _root(self, namespace: str, outline: Outline, length: int) -> _Root:
        """The root of the first `length` characters, or one that is hardly shorter. Under lock."""
        hintable_len = outline.hintable_len(length)
        position = (
            hintable_len if length - hintable_len < LEAST <= hintable_len else outline.cut(length)
        )
        known = next(self._seen.marks(namespace, outline.text[:length]), None)
        if known is not None and position - known.length < LEAST:
            return known
        return self._root_at(namespace, outline, position)

    def _first_root(self, namespace: str, outline: Outline, length: int) -> _Root:
        """The longest root there is within the first `length` characters, or all of them. Under
        lock."""
        known = next(self._seen.marks(namespace, outline.text[:length]), None)
        return known or self._root_at(namespace, outline, length)

    def _root_at(self, namespace: str, outline: Outline, length: int) -> _Root:
        """The root of exactly so many characters. Under lock."""
        text = outline.text[:length]
        known = next(self._seen.marks(namespace, text), None)
        if known is not None and known.length == length:
            return known
        root = _Root(outline.name(length, namespace), length)
        self._seen.mark(namespace, text, root)
        return root

    def _plant(self, namespace: str, prompt: Prompt | None, root: _Root, hint: ForkHint) -> None:
        """Send a root ahead, where the backend makes use of it and does not hold it already."""
        if self._pins(root, hint) and prompt is not None and self._accepts_hints():
            self._send_ahead(prompt, hint, namespace)

    def _pins(self, root: _Root, hint: ForkHint) -> bool:
        """Whether a pin by this hint is called for: not again and again, where nothing ends it."""
        now = time.monotonic()
        with self._lock:
            is_wanted = hint.branches is not None or now >= root.pinned_until
            if is_wanted:
                root.pinned_until = 0.0 if hint.branches is not None else now + PINNED_FOR
            return is_wanted

    def _can_keep(self, key: tuple[str, str], size: int, share: float = 1.0) -> bool:
        """Note that so many tokens are to be kept; whether there is room for all that are, in a
        share of what there is for them. What would need more than such a share is not noted."""
        with self._lock:
            others = sum(self._wanted.values()) - self._wanted.get(key, 0)
            has_room = self.most_kept is None or others + size <= share * self.most_kept
            if has_room or share == 1.0:
                self._wanted[key] = size
            if has_room:
                self._kept.add(key)
            return has_room

    def _accepts_hints(self) -> bool:
        """Whether the backend follows hints; True until it has answered. This is queried once,
        in a thread, as it may be remote."""
        if not self._has_asked_backend.acquire(blocking=False):
            return self._follows_hints
        threading.Thread(target=self._ask_backend, name="forkroot-features", daemon=True).start()
        return True

    def _ask_backend(self) -> None:
        with hint_errors.suppress(_log, "asking the backend for its features"):
            info = self._backend.info()
            self._follows_hints = "hints" in info.features
            if "slots" in info.load:
                self.most_kept = KEPT_SHARE * info.load["slots"]

    # --- sending -----------------------------------------------------------------------------

    def _counted(self, call: Call) -> Reply:
        return self.follow(self._backend.submit(call))

    def _send_ahead(self, prompt: Prompt, hint: ForkHint, namespace: str) -> None:
        call = Call(prompt, _PLANT, hint=hint, namespace=namespace)
        self.follow(self._backend.submit(call), is_ahead=True)


def _is_bare(call: Call) -> bool:
    """Whether a call wants a root: it has none, and is not itself a prefix that is sent ahead."""
    has_root = call.hint is not None and call.hint.root != ""
    return not has_root and (call.sampling.max_tokens != 0 or len(call.options) > 0)


def _kind_of(call: Call) -> str | None:
    """Of which program a call is, where its hint says it."""
    return None if call.hint is None else call.hint.kind


def _sharing(call: Call, root: ForkHint) -> Call:
    """A call that shares a root, beside what it has of its program."""
    own, branches, end = call.hint or root, root.branches, root.prefix_end
    return replace(call, hint=replace(own, root=root.root, branches=branches, prefix_end=end))


def _opened(prompt: Prompt) -> Prompt:
    """A chat that others go on from, with the opening of what comes next, as far as it is known."""
    if not isinstance(prompt, Chat) or prompt.open_last:
        return prompt
    if prompt.messages[-1].role not in ("system", "developer", "assistant"):
        return prompt  # the assistant comes next, and a closed chat opens its message
    return replace(prompt, messages=(*prompt.messages, Message("user", ())), open_last=True)
