"""Constraints as automata: what may be written next, and what must be.

`GuideCache` gives a `Guide` for a constraint, a guide gives a `Cursor` for a sequence; the cursor
says which tokens of the `Vocabulary` are allowed, what is forced, and how to end in time. The
`Retokenizer` turns forced text into tokens.
"""

from .cache import GuideCache
from .guide import Cursor, Guide
from .limits import Limits
from .regex import compile_regex, from_choices
from .regular import RegularCursor, RegularGuide, regular_guide
from .retokenize import Jump, Retokenizer
from .vocabulary import Mask, Vocabulary

__all__ = [
    "Cursor",
    "Guide",
    "GuideCache",
    "Jump",
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
