"""Which tokens an automaton allows, as packed bits, computed at first use and cached.

Everything here belongs to one (automaton, vocabulary) pair and is shared by all its users.
"""

from __future__ import annotations

from threading import Lock
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from ..regex.dfa import STATE_MASK, Dfa
from .finish import ShortestFinish
from .trie import Ints32
from .vocabulary import NEVER, Mask, Vocabulary
from .walk import Reached, Walker

Key: TypeAlias = int | tuple[int, int]

MAX_BYTES = 6_000_000


class Allowed(NamedTuple):
    """Tokens allowed in a state.

    mask: [num_words] packed bits. worst: no allowed token needs more tokens after it to a match.
    """

    mask: Mask
    worst: int


class Masks:
    """The masks of one automaton; those that are kept take at most `max_bytes`."""

    def __init__(
        self,
        dfa: Dfa,
        vocabulary: Vocabulary,
        finish: ShortestFinish,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self._dfa = dfa
        self._vocabulary = vocabulary
        self._finish = finish
        self._walker = Walker(dfa, vocabulary)
        self._lock = Lock()
        self._known: dict[Key, Allowed] = {}
        self._max_known = max(1, max_bytes // (4 * vocabulary.num_words))

    def allowed(self, state: int) -> Allowed:
        """The tokens allowed in a state; the same arrays for all callers, not to be changed."""
        return self._known.get(state) or self._find(state)

    @property
    def num_bytes(self) -> int:
        """Memory of the masks kept, and of what they are found with."""
        return self._walker.num_bytes + 4 * self._vocabulary.num_words * len(self._known)

    def is_last(self, state: int) -> bool:
        """Whether nothing can follow in a state between characters."""
        return not self._dfa.table[state].any()

    def within(self, state: int, budget: int) -> Mask:
        """Tokens after which a match still fits `budget` tokens, the token itself included.

        Where none fits: those that need the fewest, or nothing but the end where that is allowed.
        """
        allowed = self.allowed(state)
        if allowed.worst < budget:
            return allowed.mask
        if known := self._known.get((state, budget)):
            return known.mask
        reached = self._walker.reach(state)
        needs = self._needs(reached)
        least = 0 if self._dfa.is_accepting(state) else int(needs.min(initial=NEVER - 1))
        at_most = max(budget - 1, least)
        mask = self._pack(state, reached, needs <= at_most)
        return self._keep((state, budget), Allowed(mask, at_most)).mask

    def fitting(self, state: int, budget: int) -> Mask:
        """As `within`, but no bit where nothing fits."""
        reached = self._walker.reach(state)
        return self._pack(state, reached, self._needs(reached) < budget)

    def _find(self, state: int) -> Allowed:
        reached = self._walker.reach(state)
        needs = self._bounds(reached)
        keep = None
        if needs.max(initial=0) >= NEVER:
            needs = self._needs(reached)
            keep = needs < NEVER
            needs = needs[keep]
        mask = self._pack(state, reached, keep)
        return self._keep(state, Allowed(mask, int(needs.max(initial=0))))

    def _keep(self, key: Key, allowed: Allowed) -> Allowed:
        """Cache a mask in place of the oldest one."""
        allowed.mask.flags.writeable = False
        with self._lock:
            while len(self._known) >= self._max_known:
                del self._known[next(iter(self._known))]
            return self._known.setdefault(key, allowed)

    def _bounds(self, reached: Reached) -> npt.NDArray[np.int32]:
        """As `_needs`, or more: a character is complete after three bytes, whatever it is."""
        needs = self._finish.num_tokens[reached.states]
        spelled = 3 if self._vocabulary.has_continuations else NEVER
        outside, index = np.unique(reached.inside_states & STATE_MASK, return_inverse=True)
        worst = self._finish.num_tokens[self._dfa.table[outside]].max(axis=1, initial=0)
        return np.append(needs, spelled + worst[index.reshape(-1)])

    def _needs(self, reached: Reached) -> npt.NDArray[np.int32]:
        """Tokens needed after each token reached, those that end inside a character last."""
        inside = [self._finish.tokens(state) for state in reached.inside_states.tolist()]
        needs = self._finish.num_tokens[reached.states]
        return np.append(needs, np.array(inside, np.int32))

    def _pack(self, state: int, reached: Reached, keep: npt.NDArray[np.bool_] | None) -> Mask:
        """Bits of the tokens reached, of those only that are to be kept."""
        tokens: Ints32 = np.append(reached.tokens, reached.inside_tokens)
        flags = self._vocabulary.flags(tokens if keep is None else tokens[keep])
        duplicates = self._vocabulary.trie.duplicates
        flags[duplicates[flags[duplicates[:, 0]], 1]] = True
        if self._dfa.is_accepting(state):
            flags[self._vocabulary.end_ids] = True
        return self._vocabulary.pack(flags)
