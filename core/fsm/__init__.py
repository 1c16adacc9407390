"""Constraints as automata: which tokens may come next, and which text must.

Entry: `constraints.Constraints`; it gives a `Guide` for a constraint, a guide gives a `Cursor` for
a sequence, and the `Retokenizer` turns forced text into tokens. The modules here join the packages
below. May import `core.api` and `core.common`.
Never knows sequences, batches or models.
"""

from .cache import GuideCache
from .guide import Cursor, Guide
from .regex.limits import Limits
from .regex.regex import compile_regex, from_choices
from .tokens.regular import RegularCursor, RegularGuide, regular_guide
from .tokens.retokenize import JumpForward, Retokenizer
from .tokens.vocabulary import Mask, Vocabulary

__all__ = [
    "Cursor",
    "Guide",
    "GuideCache",
    "JumpForward",
    "Limits",
    "Mask",
    "RegularCursor",
    "RegularGuide",
    "Retokenizer",
    "Vocabulary",
    "compile_regex",
    "from_choices",
    "regular_guide",
]
