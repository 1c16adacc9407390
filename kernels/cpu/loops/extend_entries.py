"""Extend attention as the loop over layers calls it: by address. Only for float32 rows on a CPU;
needs numba."""

from __future__ import annotations

import numpy as np
from numba import carray  # type: ignore[attr-defined]

from ..jit.addresses import floats, ints, longs, numbers_like, records
from ..jit.callees import callee
from . import extend_attention
from .blocks import ITEM, LAYER, STEP

_ENDLESS = 1 << 30
_item_at, _layer_at, _step_at = records(ITEM), records(LAYER), records(STEP)
_attend = callee(extend_attention.attend)


def attend_f32(item_at, layer_at, step_at, kv_at, unused):
    """By `extend_attention`: an ITEM of a layer's step, whose keys and values are at an address."""
    _attend_item(item_at, layer_at, step_at, kv_at, np.float32(0))


def attend_bf16(item_at, layer_at, step_at, kv_at, unused):
    """The same where keys and values are bfloat16."""
    _attend_item(item_at, layer_at, step_at, kv_at, np.uint16(0))


@callee
def _attend_item(item_at, layer_at, step_at, kv_at, kind):
    item, layer = carray(_item_at(item_at), 1)[0], carray(_layer_at(layer_at), 1)[0]
    step = carray(_step_at(step_at), 1)[0]
    heads, kv_heads, dim, num = layer.num_heads, layer.num_kv_heads, layer.dim, item.num_sequences
    qkv = carray(floats(step.qkv), (step.rows, heads + 2 * kv_heads, dim))
    kv_size = 2 * kv_heads * step.num_slots * dim
    pool = carray(numbers_like(kv_at, kind), (2 * kv_heads, step.num_slots, dim))
    _attend(
        qkv[:, :heads],
        pool[:kv_heads],
        carray(numbers_like(kv_at, kind), kv_size)[kv_size // 2 :],
        carray(floats(step.attn_out), (step.rows, heads, dim)),
        carray(floats(step.lse), (step.rows, heads)),
        carray(ints(item.table), (item.num_rows, item.width)),
        carray(ints(item.rows), num),
        carray(ints(item.firsts), num),
        carray(ints(item.starts), num),
        carray(ints(item.ends), num),
        carray(longs(item.bounds), num + 1),
        item.window,
        layer.scale,
        np.float32(0),
        extend_attention.MAX_TILES,
        carray(longs(item.tokens), item.num_tokens),
        item.is_merged != 0,
        0,
        _ENDLESS,
        0,
        1,
    )
