"""Unknown keywords: refused by name, with a suggestion, or with the function that takes them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, fields
from functools import wraps
from inspect import Parameter, signature
from typing import Any, ParamSpec, TypeVar

from ..common.suggestions import closest
from .errors import InvalidCall

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

OF_CONNECT = ("process", "restart", "revision", "replicas", "policy")
ENGINE_SETTINGS = (  # of `connect`, for a model that it starts: those of `EngineConfig`
    *OF_CONNECT,
    *(
        "dtype",
        "device",
        "attention",
        "constraint",
        "graphs",
        "sampling",
        "deterministic",
        "num_slots",
    ),
    *("host_slots", "host_policy", "host_file", "logprob_bytes", "constraint_bytes"),
    *("ranks", "engines"),
    *("max_running", "max_waiting"),
    *("chunk_tokens", "context_len", "order", "ageing", "cache", "hints", "jumps", "overlap"),
    *("exact_nodes", "root_timeout", "hang_timeout", "hold_min", "plain_content", "seed"),
    *("feature_slots", "tower_tokens"),
    *("media_bytes", "media_pixels", "media_frames", "media_seconds"),
)
OTHER_NAMES = {  # in other libraries
    "max_new_tokens": "max_tokens",
    "max_output_tokens": "max_tokens",
    "max_completion_tokens": "max_tokens",
    "num_predict": "max_tokens",
    "stop_sequences": "stop",
    "random_seed": "seed",
    "request_timeout": "timeout",
    "timeout": "deadline",
    "openai_api_key": "api_key",
    **dict.fromkeys(("model_name", "model_id", "model_path"), "model"),
    # of engine settings, in SGLang and vLLM
    **dict.fromkeys(("schedule_policy", "scheduling_policy"), "order"),
    **dict.fromkeys(("tp", "tp_size", "tensor_parallel", "tensor_parallel_size"), "ranks"),
    **dict.fromkeys(("max_running_requests", "max_num_seqs", "max_batch_size"), "max_running"),
    "max_queued_requests": "max_waiting",
    **dict.fromkeys(("context_length", "max_model_len", "max_seq_len"), "context_len"),
    **dict.fromkeys(("chunked_prefill_size", "max_num_batched_tokens"), "chunk_tokens"),
    **dict.fromkeys(("mem_fraction_static", "gpu_memory_utilization"), "num_slots"),
    "max_total_tokens": "num_slots",
    **dict.fromkeys(("disable_radix_cache", "enable_prefix_caching"), "cache"),
    **dict.fromkeys(("disable_overlap_schedule", "async_scheduling"), "overlap"),
    **dict.fromkeys(("disable_cuda_graph", "enforce_eager"), "graphs"),
    **dict.fromkeys(("grammar_backend", "guided_decoding_backend"), "constraint"),
    "attention_backend": "attention",
    "sampling_backend": "sampling",
    **dict.fromkeys(("enable_hierarchical_cache", "hicache_ratio", "hicache_size"), "host_slots"),
    "hicache_write_policy": "host_policy",
    "watchdog_timeout": "hang_timeout",
}
_BY_NAME = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)


@dataclass(frozen=True, slots=True)
class KeywordOwner:
    """Keywords that belong elsewhere. hint: where, with {name} for the keyword."""

    names: Collection[str]
    hint: str


ENGINE = KeywordOwner(ENGINE_SETTINGS, "{name} is of the engine: connect(..., {name}=...)")


def suggestion_for(name: str, known: Iterable[str], *owners: KeywordOwner) -> str:
    """A suffix for the error that refuses a name not in `known`: "; did you mean ...?", or the
    hint of the owner that takes it; "" where no name is close."""
    known = frozenset(known)
    match = OTHER_NAMES.get(name)
    if match is None or not any(match in names for names in (known, *(it.names for it in owners))):
        candidates = (closest(name, owner.names, 0.8) for owner in owners)
        match = closest(name, known.union(it for it in candidates if it is not None))
    if match is None:
        return ""
    if match in known:
        return f"; did you mean {match}?"
    hint = next(owner.hint for owner in owners if match in owner.names)
    return f"; {hint.format(name=match)}"


class UnknownKeyword(InvalidCall, TypeError):
    """A keyword that is not in `known`. owners: what else may take it. suggestion: the closest
    known keyword, or None."""

    __module__ = "forkroot"  # as in `core.api.errors`

    def __init__(
        self, field: str, value: object, known: Collection[str], *owners: KeywordOwner
    ) -> None:
        names = tuple(sorted(known))
        super().__init__(field, value, ", ".join(names) or "no keywords")
        self.args = (field, value, names, *owners)
        self.suggestion = closest(field, names)

    def __str__(self) -> str:
        return super().__str__() + suggestion_for(self.field, *self.args[2:])


@dataclass(frozen=True, slots=True)
class Parameters:
    """The parameters of a function that can be given by name.

    is_open: it takes any other keyword as well.
    """

    names: frozenset[str]
    is_open: bool = False

    @classmethod
    def of(cls, body: Callable[..., Any], skip: int = 0) -> Parameters:
        """Those of `body`, without its first `skip` ones."""
        entries = list(signature(body).parameters.values())[skip:]
        names = frozenset(entry.name for entry in entries if entry.kind in _BY_NAME)
        return cls(names, any(entry.kind is Parameter.VAR_KEYWORD for entry in entries))

    def check(
        self, keywords: Mapping[str, Any], others: Iterable[str] = (), *owners: KeywordOwner
    ) -> None:
        """Raise UnknownKeyword for the first keyword that is neither a parameter nor in `others`,
        unless it is open. owners: what else may take it."""
        known = self.names.union(others)
        for name, value in keywords.items():
            if not self.is_open and name not in known:
                raise UnknownKeyword(name, value, known, *owners)


def checks_keywords(*owners: KeywordOwner) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make of a function the same one, where a keyword that it does not declare raises
    UnknownKeyword. owners: what else may take it."""

    def make(body: Callable[P, R]) -> Callable[P, R]:
        parameters = Parameters.of(body)

        @wraps(body)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            parameters.check(kwargs, (), *owners)
            return body(*args, **kwargs)

        return checked

    return make


def checks_fields(*owners: KeywordOwner) -> Callable[[type[T]], type[T]]:
    """The same for the fields of a dataclass; what it is made of otherwise costs no time."""

    def make(kind: type[T]) -> type[T]:
        names = frozenset(item.name for item in fields(kind) if item.init)  # type: ignore[arg-type]
        init: Callable[..., None] = vars(kind)["__init__"]

        @wraps(init)
        def checked(self: T, *args: Any, **kwargs: Any) -> None:
            try:
                init(self, *args, **kwargs)
            except TypeError:
                Parameters(names).check(kwargs, (), *owners)
                raise

        setattr(kind, "__init__", checked)  # noqa: B010 - a type checker forbids the other way
        return kind

    return make
