"""Unknown keywords: refused by name, with a suggestion.

DSPy refuses them as well, but at the first call. Which ones it carries is found out from DSPy
itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from inspect import signature
from typing import Any

import dspy
from dspy import lm15

from ...core.api.protocol import InvalidCall
from ..common.suggestions import suggestion
from .options import NAMES

_OF_DSPY = frozenset(("n", "num_generations", "rollout_id", "prompt_cache", "request", "metadata"))
_CARRIED = frozenset(
    {
        *("max_completion_tokens", "top_p", "stop", "seed", "frequency_penalty"),
        *("presence_penalty", "logit_bias", "logprobs", "top_logprobs", "response_format"),
        *("tools", "tool_choice", "parallel_tool_calls", "reasoning_effort"),
    }
)
_READ = (_CARRIED | {"temperature", "max_tokens"}) - {"logit_bias"}  # which we read ourselves
_ALLOWED = {  # where DSPy's error says less
    "temperature": "a number >= 0",
    "max_tokens": "an integer > 0",
    "max_completion_tokens": "an integer > 0",
    "top_p": "a number from 0 to 1",
    "frequency_penalty": "a number from -2 to 2",
    "presence_penalty": "a number from -2 to 2",
    "seed": "an integer",
    "stop": "a text, or a list of texts",
    "logprobs": "True or False",
    "top_logprobs": "an integer, with logprobs=True",
}
_CONSTRUCTED = frozenset(signature(dspy.LM.__init__).parameters) - {"self", "kwargs"}
_KNOWN = NAMES | _OF_DSPY | _CARRIED | _CONSTRUCTED


def check_keywords(keywords: Mapping[str, Any], others: Iterable[str] = ()) -> None:
    """Raise InvalidCall for a keyword that neither is one of `others` nor reaches a request. Values
    are not checked; None means not given."""
    known = _KNOWN.union(others)
    for name, value in keywords.items():
        if value is not None and name not in known and not _is_carried(name, value):
            allowed = f"keywords of dspy.LM and {', '.join(sorted(NAMES))}{suggestion(name, known)}"
            raise InvalidCall(name, value, allowed)


def check_values(keywords: Mapping[str, Any]) -> None:
    """Raise InvalidCall for the first value that DSPy would refuse with a bare error. None means
    not given."""
    for name, value in keywords.items():
        if value is None or name not in _READ:
            continue
        try:
            _check_with_dspy(name, value)
        except lm15.UnsupportedFeatureError:
            continue
        except (TypeError, ValueError) as error:
            reason = str(error)
            if not reason.startswith(f"{name} requires"):  # another keyword, which may be there
                allowed = _ALLOWED.get(name, f"a value that DSPy accepts ({reason})")
                raise InvalidCall(name, value, allowed) from error


def _check_with_dspy(name: str, value: Any) -> None:
    """Let DSPy make a request with this value."""
    request = {"model": "m", "messages": [{"role": "user", "content": ""}], name: value}
    lm15.request_from_openai_chat(request)


def _is_carried(name: str, value: Any) -> bool:
    """Whether DSPy has a place for it in a request."""
    try:
        _check_with_dspy(name, value)
    except lm15.UnsupportedFeatureError:
        return False
    except (TypeError, ValueError):  # of its value, or of what it needs beside it
        return True
    return True
