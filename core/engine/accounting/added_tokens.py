"""How many tokens a program adds to its first prompt, by kind: until the longest text that it
leaves. Learned from programs that are over."""

from __future__ import annotations

from collections import OrderedDict

WEIGHT = 0.25  # of the newest program
MOST_KINDS = 1024


class AddedTokens:
    """Tokens that programs of each kind add."""

    def __init__(self) -> None:
        self._kinds: OrderedDict[tuple[str, str], float] = OrderedDict()

    def learn(self, owner: str, kind: str | None, num_tokens: int) -> None:
        """A program of this kind is over, and has added these many tokens."""
        if kind is None:
            return
        key = owner, kind
        known = self._kinds.get(key, float(num_tokens))
        self._kinds[key] = known + WEIGHT * (num_tokens - known)
        self._kinds.move_to_end(key)
        if len(self._kinds) > MOST_KINDS:
            self._kinds.popitem(last=False)

    def expected(self, owner: str, kind: str | None) -> int:
        """How many a program of this kind adds; 0 where none is over yet."""
        return 0 if kind is None else int(self._kinds.get((owner, kind), 0.0))
