"""What compilations keep for later ones, beside guides: forgotten between those of two tenants.

So the time of a compilation does not tell which patterns another tenant has used.
"""

from __future__ import annotations

from .json_schema.patterns.automata import common_texts
from .json_schema.patterns.ecma import read_pattern
from .json_schema.patterns.lookaround import parts_of
from .json_schema.patterns.spelling import one_char
from .regex.chars import general_category
from .tokens.vocabulary import Vocabulary

_CACHED = common_texts, read_pattern, parts_of, one_char, general_category


def forget_compiled(vocabulary: Vocabulary) -> None:
    """Forget the parts of patterns, and how texts of this vocabulary are spelled."""
    for function in _CACHED:
        function.cache_clear()
    vocabulary.forget()
