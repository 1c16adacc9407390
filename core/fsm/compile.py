"""Which guide a constraint gets."""

from __future__ import annotations

from ..protocol import Choices, Constraint, Regex, UnsupportedCall
from .guide import Guide
from .regular import regular_guide
from .vocabulary import Vocabulary


def compile_guide(constraint: Constraint, vocabulary: Vocabulary) -> Guide:
    """The guide of a constraint for a vocabulary. Raises InvalidCall and its kin."""
    if isinstance(constraint, Regex | Choices):
        return regular_guide(constraint, vocabulary)
    kind = type(constraint).__name__
    raise UnsupportedCall("constraint", kind, "a Regex or Choices (not supported by this runtime)")
