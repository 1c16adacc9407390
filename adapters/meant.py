"""What a user meant by a name that nobody knows: one misspelled, one of the settings of the engine
in the wrong place, or one that another library has for the same.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..core.nearest import nearest

ENGINE_SETTINGS = (  # what `connect` takes for a model that it starts: those of `EngineConfig`
    *("process", "dtype", "device", "attention", "constraint", "graphs", "sampling", "num_slots"),
    *("host_slots", "host_policy", "host_file", "ranks", "max_running", "max_waiting"),
    *("chunk_tokens", "context_len", "order", "ageing", "cache", "hints", "jumps", "overlap"),
    *("exact_nodes", "root_timeout", "hang_timeout", "hold_min", "plain_content", "seed"),
)
_URLS = ("base_url", "api_base", "openai_api_base", "endpoint_url")
_OTHERS = {  # what other libraries call the same
    "max_new_tokens": "max_tokens",
    "max_output_tokens": "max_tokens",
    "max_completion_tokens": "max_tokens",
    "num_predict": "max_tokens",
    "stop_sequences": "stop",
    "random_seed": "seed",
    "request_timeout": "timeout",
    "timeout": "deadline",
    "openai_api_key": "api_key",
    "model_name": "model",
    "model_id": "model",
    "model_path": "model",
}


def hint(name: str, known: Iterable[str]) -> str:
    """What the refusal of a name that is none of `known` ends with: "; did you mean ...?", or where
    else it goes; "" where nothing is like it."""
    known = frozenset(known)
    if name in _URLS:
        return "; the URL of a server is given in the place of the model"
    near = _OTHERS.get(name)
    if near not in known:
        setting = nearest(name, ENGINE_SETTINGS, 0.8)
        near = nearest(name, known if setting is None else known | {setting})
    if near is None:
        return ""
    if near in known:
        return f"; did you mean {near}?"
    start = f"connect(..., {near}=...)"
    return f"; {near} is of the engine: settings={{{near!r}: ...}}, or a backend from {start}"
