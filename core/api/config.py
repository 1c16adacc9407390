"""The engine's settings, as one frozen value.

Read only by the composition root and the command line, which pass each package the values it needs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import Any, TypeAlias

from ..common.suggestions import closest, did_you_mean
from .keywords import OF_CONNECT, OTHER_NAMES
from .protocol import InvalidCall, Sampling

_Rule: TypeAlias = tuple[str, Callable[[Any], bool]]  # what is allowed, and whether a value is

HOST_POLICIES = ("back", "through")
_ELSEWHERE = {
    **{it.name: f"; it is of a call, as in gen(..., {it.name}=...)" for it in fields(Sampling)},
    "settings": "; each is given by its own name",
    "api_key": "; it is for the URL of a server",
    "policy": "; did you mean order or host_policy?",
}
_MIN_PART = 4  # characters of a name that are compared as a part of another one
MAX_RUNNING, CHUNK_TOKENS = 128, 1024  # the defaults on a CPU
ORDERS = ("lpm", "dfs", "fcfs", "random")
DTYPES = ("auto", "float32", "bfloat16", "float16")
_DTYPE_ALIASES = {
    **dict.fromkeys(("bf16",), "bfloat16"),
    **dict.fromkeys(("fp16", "f16", "half"), "float16"),
    **dict.fromkeys(("fp32", "f32", "float", "single"), "float32"),
}
PARTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "attention": ("auto", "triton", "flashinfer", "plain", "cpu"),
        "constraint": ("auto",),
        "sampling": ("auto", "triton", "flashinfer", "plain"),
    }
)


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """How an engine runs. Sizes that are None are filled in by `resolve`.

    dtype: the number type of the model; "auto": float32 for small models and for those stored in
      float32; for others the stored type, or on a CPU bfloat16 if it has instructions for it, else
      float32.
    device: the device of the model, such as "cpu" or "cuda:0".
    attention: the attention kernels: "triton" and "flashinfer" on a GPU, "cpu" on a CPU, "plain"
      (torch's own) anywhere; "auto": the fastest that the device has; "module:Factory": what this
      factory returns, as a plugin's (see `adapters.hookspecs.register_backends`).
    constraint: the compiler of constraints: "auto" (ours) or "module:Factory", likewise.
    graphs: whether steps of few tokens are recorded as CUDA graphs, on a GPU: with "triton" all,
      with "flashinfer" those of one new token for each sequence. Decoders that run by
      transformers' code are never recorded.
    sampling: the sampler: "triton" and "flashinfer" on a GPU, "plain" anywhere (it waits for the
      device); "auto": the fastest whose samples for a seed do not depend on the batch. With
      "flashinfer" they depend on it.
    deterministic: whether a token's numbers depend on it and on the tokens before it alone, bit by
      bit: not on chunks, on what is cached, or on other calls. On a CPU, in float32, for dense
      models of our own architectures in one process; steps take longer (docs/models.md).
    num_slots: tokens of KV that the pool holds, for cached and running sequences together.
    host_slots: tokens of KV that the host tier holds: evicted tokens go there, and come back when
      they are used again.
    host_policy: when tokens are copied to the host tier: "back" when they are evicted, "through" as
      soon as they are cached.
    host_file: the name of a new file that holds the host tier, instead of memory; it has no name
      any more once the engine runs.
    logprob_bytes: host memory for log-probabilities of cached prompt tokens, so that `echo` with
      `logprobs`, `scored_from` and options compute only new tokens. A token takes 6 bytes and 8 for
      each alternative; 0: none are cached.
    constraint_bytes: memory for the compiled constraints that are kept for later calls: up to 256,
      and the last one whatever its size.
    ranks: processes that hold the model together (tensor parallelism), this one included.
    engines: engines that share this machine, this one included: in a child process it uses its
      share of the cores and of the free memory (`connect(replicas=...)` sets this).
    max_running: maximum number of sequences in one batch; None: 128 on a CPU, up to 256 on a GPU:
      fewer where the memory for such steps would leave too little for KV.
    max_waiting: maximum number of waiting calls of one tenant; one more ends in Overloaded.
    chunk_tokens: maximum prompt tokens computed in one step (chunked prefill); None: 1024 on a CPU,
      up to 8192 on a GPU, likewise.
    feature_slots: features of pictures and clips that are kept on the device: one for each token
      of a prompt that stands for a part of a picture. A picture of more is refused.
    tower_tokens: maximum tokens of pictures that the model's tower computes in one step, but for a
      single tile or frame; None: as chunk_tokens.
    context_len: maximum tokens of one sequence, at most the context length of the model; None: that
      length.
    order: scheduling policy of waiting calls: "lpm" (longest prefix match first), "dfs"
      (depth-first in the radix tree of the waiting calls), "fcfs", or "random" (for ablation).
    ageing: matched tokens that are added to a waiting call's priority for each call admitted before
      it.
    cache: whether the KV of finished calls is kept for later ones.
    hints: whether fork hints are followed.
    jumps: whether text that a constraint forces is computed in one pass (jump-forward); the answer
      is the same.
    overlap: whether a step is prepared while the device computes the one before; "auto": where the
      device is not the CPU. The answer is the same.
    exact_nodes: maximum number of distributions that one call for exact option probabilities
      computes.
    root_timeout: seconds after its last use that an unfinished hinted root stays pinned.
    hang_timeout: seconds without a heartbeat after which another rank, or the engine's process
      if it is a child, is killed as hanging; a fifth of it where a signal has stopped the process
      and no debugger holds it; None: never.
    plain_content: whether special tokens in message content stay plain text, so that no role can be
      forged; otherwise they become special tokens, as in transformers.
    hold_min: minimum number of shared tokens for which a call waits while another call computes
      them.
    seed: the seed from which calls without a seed derive theirs.
    media_bytes: maximum encoded bytes of a picture or clip.
    media_pixels: maximum pixels of a picture, or of all frames taken from a clip together.
    media_frames: maximum frames taken from a clip.
    media_seconds: processor seconds that decoding a picture or clip may take.
    """

    dtype: str = "auto"
    device: str = "cpu"
    attention: str = "auto"
    constraint: str = "auto"
    graphs: bool = True
    sampling: str = "auto"
    deterministic: bool = False
    num_slots: int | None = None
    host_slots: int = 0
    host_policy: str = "back"
    host_file: str | None = None
    logprob_bytes: int = 128 << 20
    constraint_bytes: int = 512 << 20
    ranks: int = 1
    engines: int = 1
    max_running: int | None = None
    max_waiting: int = 10_000
    chunk_tokens: int | None = None
    feature_slots: int = 16_384
    tower_tokens: int | None = None
    context_len: int | None = None
    order: str = "lpm"
    ageing: int = 16
    cache: bool = True
    hints: bool = True
    jumps: bool = True
    overlap: bool | str = "auto"
    exact_nodes: int = 1024
    root_timeout: float = 10.0
    hang_timeout: float | None = 15.0
    hold_min: int = 8
    plain_content: bool = False
    seed: int = 0
    media_bytes: int = 64 << 20
    media_pixels: int = 64 << 20
    media_frames: int = 128
    media_seconds: float = 10.0

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> EngineConfig:
        """A checked config. Raises InvalidCall for an unknown key or a value not allowed."""
        known = [item.name for item in fields(cls)]
        for key, value in settings.items():
            if key not in known:
                others = ", ".join(OF_CONNECT)
                allowed = f"one of the settings {', '.join(known)}, and of connect: {others}"
                if suggestion := _suggestion(key, (*known, *OF_CONNECT)):
                    allowed = "a setting of the engine"
                raise InvalidCall(key, value, f"{allowed} (see docs/settings.md){suggestion}")
        config = cls(**settings)
        config.check()
        return config

    @staticmethod
    def allowed_values() -> dict[str, str]:
        """What each setting may be, in words."""
        return {
            **{name: ", ".join(choices) for name, choices in _CHOICES.items()},
            **{name: allowed for name, (allowed, _) in _RULES.items()},
        }

    def check(self) -> None:
        """Raise InvalidCall for the first setting whose value is not allowed."""
        for name, (allowed, is_allowed) in _RULES.items():
            value = getattr(self, name)
            if not is_allowed(value):
                raise InvalidCall(name, value, allowed)
        for name, choices in _CHOICES.items():
            value = getattr(self, name)
            if value not in choices and not (name in PARTS and _is_factory_path(value)):
                factories = ("'module:Factory'",) if name in PARTS else ()
                hint = (
                    _dtype_suggestion(value) if name == "dtype" else _similar_choice(value, choices)
                )
                raise InvalidCall(name, value, ", ".join((*choices, *factories)) + hint)

        if self.deterministic:
            self._check_deterministic()

    def _check_deterministic(self) -> None:
        allowed = {"device": ("cpu",), "attention": ("auto", "cpu"), "ranks": (1,)}
        for name, values in {**allowed, "dtype": ("auto", "float32")}.items():
            if getattr(self, name) not in values:
                shown = " or ".join(map(str, values))
                raise InvalidCall(name, getattr(self, name), f"{shown}, with deterministic=True")

    @property
    def attention_kind(self) -> str:
        """The kind in `kernels.devices`."""
        return "deterministic" if self.deterministic else self.attention

    @property
    def has_overlap(self) -> bool:
        """Whether steps overlap."""
        return not self.device.startswith("cpu") if self.overlap == "auto" else bool(self.overlap)

    def resolve(self, model_context: int, kv_bytes_per_token: int, memory: int) -> EngineConfig:
        """A new config with every size set; those of steps for a CPU. Raises InvalidCall for a
        context that the model has not.

        model_context: the model's own context length. kv_bytes_per_token: over all layers.
        memory: bytes that the pool may take where `num_slots` is unset.
        """
        context = self.context_len or model_context
        if context > model_context:
            allowed = f"an integer from 2 to {model_context}, which is what the model has, or None"
            raise InvalidCall("context_len", context, allowed)
        running = self.max_running or MAX_RUNNING
        slots = self.num_slots or min(max(memory // kv_bytes_per_token, context), running * context)
        running = min(running, slots)  # each has a slot at least
        tokens = self.chunk_tokens or CHUNK_TOKENS
        return replace(
            self,
            context_len=context,
            num_slots=slots,
            max_running=running,
            chunk_tokens=tokens,
            tower_tokens=self.tower_tokens or tokens,
        )


def _suggestion(key: str, known: Sequence[str]) -> str:
    """The end of the error for an unknown setting: where it belongs, a similar name, ours for one
    of another library, or the names that contain it or that it contains; "" where there is none."""
    ours = {other: name for other, name in OTHER_NAMES.items() if name in known}
    ours |= {name: name for name in known}
    near = closest(key, (*ours, *_ELSEWHERE), 0.8)
    if near is not None:
        return f"; did you mean {ours[near]}?" if near in ours else _ELSEWHERE[near]
    if len(key) < _MIN_PART:
        return ""
    parts = [it for it in known if key.lower() in it or (len(it) >= _MIN_PART and it in key)]
    return f"; did you mean {' or '.join(parts)}?" if parts else ""


def _similar_choice(value: object, choices: tuple[str, ...]) -> str:
    return did_you_mean(value, choices) if isinstance(value, str) else ""


def _dtype_suggestion(value: object) -> str:
    """The name of a dtype that is given by another name, or as torch's own object."""
    name = str(value).lower().removeprefix("torch.")
    near = _DTYPE_ALIASES.get(name) or closest(name, DTYPES)
    return f"; did you mean {near!r}?" if near is not None else ""


def _is_factory_path(value: object) -> bool:
    """Whether this is the path of a factory: "module:attribute"."""
    module, _, attribute = value.partition(":") if isinstance(value, str) else ("", "", "")
    return bool(module and attribute)


def _integer(low: int, high: int = 2**31 - 1, high_text: str = "2**31-1") -> _Rule:
    return f"an integer from {low} to {high_text}", lambda v: type(v) is int and low <= v <= high


def _optional_size(low: int, high: int = 2**31 - 1, high_text: str = "2**31-1") -> _Rule:
    """Of what `resolve` can fill in."""
    allowed, is_allowed = _integer(low, high, high_text)
    return f"{allowed}, or None", lambda v: v is None or is_allowed(v)


def _is_duration(value: object, high: float) -> bool:
    return isinstance(value, int | float) and type(value) is not bool and 0 < value < high


_SWITCH: _Rule = "True or False", lambda v: isinstance(v, bool)
_RULES: dict[str, _Rule] = {
    "num_slots": _optional_size(1),
    "host_slots": _integer(0),
    **dict.fromkeys(("logprob_bytes", "constraint_bytes"), _integer(0, 2**63 - 1, "2**63-1")),
    "ranks": _integer(1),
    "engines": _integer(1),
    "max_running": _optional_size(1, 65_536, "65536"),
    "max_waiting": _integer(1),
    "chunk_tokens": _optional_size(1),
    "feature_slots": _integer(1),
    "tower_tokens": _optional_size(1),
    "context_len": _optional_size(2),
    "ageing": _integer(1),
    "hold_min": _integer(1),
    "exact_nodes": _integer(1),
    "seed": _integer(0, 2**63 - 1, "2**63-1"),
    **dict.fromkeys(("media_bytes", "media_pixels", "media_frames"), _integer(1)),
    "media_seconds": ("a finite number of seconds > 0", lambda v: _is_duration(v, math.inf)),
    "host_file": ("the name of a new file, or None", lambda v: isinstance(v, str | None)),
    "device": (
        "the name of a device, such as cpu or cuda:0",
        lambda v: isinstance(v, str) and v.strip() != "",
    ),
    **dict.fromkeys(
        ("cache", "deterministic", "graphs", "hints", "jumps", "plain_content"), _SWITCH
    ),
    "overlap": ("True, False or auto", lambda v: isinstance(v, bool) or v == "auto"),
    "root_timeout": ("a finite number of seconds > 0", lambda v: _is_duration(v, math.inf)),
    "hang_timeout": (
        "a number of seconds > 0, or None",
        lambda v: v is None or _is_duration(v, 1e9),
    ),
}
_CHOICES: Mapping[str, tuple[str, ...]] = {
    "order": ORDERS,
    "host_policy": HOST_POLICIES,
    "dtype": DTYPES,
    **PARTS,
}
