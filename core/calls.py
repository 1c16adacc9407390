"""An older name of `core.api.calls`."""

from .api.calls import HINT_VERSION as HINT_VERSION
from .api.calls import SCORINGS as SCORINGS
from .api.calls import Call as Call
from .api.calls import Choices as Choices
from .api.calls import Constraint as Constraint
from .api.calls import ForkHint as ForkHint
from .api.calls import Grammar as Grammar
from .api.calls import JsonSchema as JsonSchema
from .api.calls import Regex as Regex
from .api.calls import Sampling as Sampling
from .api.calls import Scoring as Scoring
from .api.calls import check_call as check_call

__all__ = [name for name in dir() if not name.startswith("_")]
