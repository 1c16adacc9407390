"""Rotary position encoding as a checkpoint describes it. Knows no torch; `rotary` computes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from .keys import Keys

RopeKind: TypeAlias = Literal["default", "linear", "dynamic", "yarn", "longrope", "llama3"]


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """How queries and keys are rotated by position; what follows `kind` is of the scaled kinds.

    original_len: positions before the scaling. attention_factor: by which rotated vectors are
      multiplied; None: follows from the rest.
    beta_fast, beta_slow, truncate, mscale, mscale_all_dim: of yarn.
    short_factors, long_factors: of longrope: [head_dim / 2] for contexts up to original_len, and
      for longer ones.
    """

    theta: float = 10_000.0
    kind: RopeKind = "default"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 1.0
    original_len: int = 0
    attention_factor: float | None = None
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    mscale: float | None = None
    mscale_all_dim: float | None = None
    short_factors: tuple[float, ...] = ()
    long_factors: tuple[float, ...] = ()


def read_rope(keys: Keys, theta: float, context_len: int, head_dim: int) -> RopeConfig:
    """Position encoding from `rope_parameters`, or from `rope_theta` and `rope_scaling`, as
    transformers reads them; `theta` is the architecture's own default. Raises InvalidModel."""
    scaling = _section(keys)
    theta = scaling.number("rope_theta", keys.number("rope_theta", theta))
    key = "type" if "rope_type" not in scaling.values and "type" in scaling.values else "rope_type"
    if (scaling.values.get("partial_rotary_factor") or 1) != 1:
        raise scaling.refuse("partial_rotary_factor", "1 (all of a head is rotated)")
    kind = scaling.word(key, "default")
    original_len = keys.count(_ORIGINAL, scaling.count(_ORIGINAL, context_len))
    match kind:
        case "default":
            return RopeConfig(theta)
        case "linear" | "dynamic":
            return RopeConfig(theta, kind, scaling.number("factor"))
        case "llama3":
            return _llama3(scaling, theta)
        case "yarn":
            return _yarn(scaling, theta, original_len, context_len)
        case "longrope" | "su":
            return _longrope(scaling, theta, original_len, context_len, head_dim)
    raise scaling.refuse(key, ", ".join(get_args(RopeKind)))


_ORIGINAL = "original_max_position_embeddings"


def _section(keys: Keys) -> Keys:
    is_new = bool(keys.values.get("rope_parameters"))
    return keys.section("rope_parameters" if is_new else "rope_scaling")


def _llama3(scaling: Keys, theta: float) -> RopeConfig:
    rope = RopeConfig(
        theta,
        "llama3",
        scaling.number("factor"),
        scaling.number("low_freq_factor"),
        scaling.number("high_freq_factor"),
        scaling.count(_ORIGINAL),
    )
    if rope.high_freq_factor <= rope.low_freq_factor:
        allowed = f"above low_freq_factor={rope.low_freq_factor}"
        raise scaling.refuse("high_freq_factor", allowed)
    return rope


def _yarn(scaling: Keys, theta: float, original_len: int, context_len: int) -> RopeConfig:
    return RopeConfig(
        theta,
        "yarn",
        scaling.number("factor", context_len / original_len),
        original_len=original_len,
        attention_factor=_optional(scaling, "attention_factor"),
        beta_fast=scaling.number("beta_fast", 32.0),
        beta_slow=scaling.number("beta_slow", 1.0),
        truncate=scaling.flag("truncate", True),
        mscale=_optional(scaling, "mscale"),
        mscale_all_dim=_optional(scaling, "mscale_all_dim"),
    )


def _longrope(
    scaling: Keys, theta: float, original_len: int, context_len: int, head_dim: int
) -> RopeConfig:
    return RopeConfig(
        theta,
        "longrope",
        scaling.number("factor", context_len / original_len),
        original_len=original_len,
        attention_factor=_optional(scaling, "attention_factor"),
        short_factors=scaling.numbers("short_factor", head_dim // 2),
        long_factors=scaling.numbers("long_factor", head_dim // 2),
    )


def _optional(scaling: Keys, key: str) -> float | None:
    return scaling.number(key) if scaling.values.get(key) else None
