"""Rotary position encoding as a checkpoint describes it. Knows no torch; `rotary` computes it."""

from __future__ import annotations

from dataclasses import dataclass, replace
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
    sections: how many pairs turn by each part of positions that have three (Qwen2-VL,
      arXiv:2409.12191); () where they have one.
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
    sections: tuple[int, ...] = ()


def read_rope(keys: Keys, theta: float, context_len: int, head_dim: int) -> RopeConfig:
    """Position encoding from `rope_parameters`, or from `rope_theta` and `rope_scaling`, as
    transformers reads them; `theta` is the architecture's own default. Raises InvalidModel."""
    is_new = bool(keys.values.get("rope_parameters"))
    scaling = keys.section("rope_parameters" if is_new else "rope_scaling")
    theta = scaling.number("rope_theta", keys.number("rope_theta", theta))
    key = "type" if "rope_type" not in scaling.values and "type" in scaling.values else "rope_type"
    if (scaling.values.get("partial_rotary_factor") or 1) != 1:
        raise scaling.refuse("partial_rotary_factor", "1 (all of a head is rotated)")
    kind = scaling.word(key, "default")
    original_len = keys.count(_ORIGINAL, scaling.count(_ORIGINAL, context_len))
    match kind:
        case "default" | "mrope":
            return RopeConfig(theta, sections=_sections(scaling, head_dim))
        case "linear" | "dynamic":
            return RopeConfig(theta, kind, scaling.number("factor"))
        case "llama3":
            return _llama3(scaling, theta)
        case "yarn" | "longrope" | "su":
            rope = RopeConfig(
                theta,
                "yarn" if kind == "yarn" else "longrope",
                scaling.number("factor", context_len / original_len),
                original_len=original_len,
                attention_factor=_optional(scaling, "attention_factor"),
            )
            return _yarn(scaling, rope) if kind == "yarn" else _longrope(scaling, rope, head_dim)
    raise scaling.refuse(key, ", ".join(get_args(RopeKind)))


_ORIGINAL = "original_max_position_embeddings"


def _sections(scaling: Keys, head_dim: int) -> tuple[int, ...]:
    sections = scaling.get("mrope_section", [], (list,), "a list of 3 numbers")
    if not sections:
        return ()
    allowed = f"3 numbers whose sum is {head_dim // 2}"
    are_counts = all(type(it) is int and it >= 0 for it in sections)
    if not are_counts or len(sections) != 3 or sum(sections) != head_dim // 2:
        raise scaling.refuse("mrope_section", allowed)
    if scaling.flag("mrope_interleaved", False):
        raise scaling.refuse("mrope_interleaved", "false")
    return tuple(sections)


def _llama3(scaling: Keys, theta: float) -> RopeConfig:
    keys = "factor", "low_freq_factor", "high_freq_factor"
    factor, low, high = (scaling.number(key) for key in keys)
    original_len = scaling.count(_ORIGINAL)
    if high <= low:
        raise scaling.refuse("high_freq_factor", f"above low_freq_factor={low}")
    return RopeConfig(theta, "llama3", factor, low, high, original_len)


def _yarn(scaling: Keys, rope: RopeConfig) -> RopeConfig:
    return replace(
        rope,
        beta_fast=scaling.number("beta_fast", 32.0),
        beta_slow=scaling.number("beta_slow", 1.0),
        truncate=scaling.flag("truncate", True),
        mscale=_optional(scaling, "mscale"),
        mscale_all_dim=_optional(scaling, "mscale_all_dim"),
    )


def _longrope(scaling: Keys, rope: RopeConfig, head_dim: int) -> RopeConfig:
    short, long = (scaling.numbers(f"{key}_factor", head_dim // 2) for key in ("short", "long"))
    return replace(rope, short_factors=short, long_factors=long)


def _optional(scaling: Keys, key: str) -> float | None:
    return scaling.number(key) if scaling.values.get(key) else None
