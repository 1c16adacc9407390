"""The loops that can be compiled ahead of their first use, how long each takes to compile, and
listeners to be notified of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal, NamedTuple, TypeAlias

Event: TypeAlias = Literal["started", "done", "cached"]
Listener: TypeAlias = Callable[[str, Event], None]  # of a loop's name
_listeners: list[Listener] = []


class Loop(NamedTuple):
    """A loop and its cost.

    name: "module.function"; the same for each of its signatures. family: loops of one have
    functions in common, which a process compiles once. seconds: of one core of a recent server,
    alone in a process. after: the same in a process that has compiled another loop of the family.
    signature: where it is defined, and its key where it is one of several; "" for an entry
    (`addresses.entry`). is_reordered: as in `jit.compiled`.
    """

    name: str
    family: str
    seconds: float
    after: float
    signature: str = ""
    is_reordered: bool = False


LOOPS = (
    Loop("blocks.layers", "blocks", 10.7, 6.2),
    Loop("blocks.layers_bf16", "blocks", 10.7, 6.2),
    Loop("blocks.layers_bf16_amx", "blocks", 20.0, 14.0),
    Loop("blocks.end", "blocks", 1.2, 0.3),
    Loop("decode_attention.attend", "blocks", 5.4, 0.8, "decode_attention.SIGNATURES.float32"),
    Loop("decode_attention.attend", "blocks", 5.4, 0.8, "decode_attention.SIGNATURES.bfloat16"),
    Loop(
        "amx_decode_attention.attend", "blocks", 14.0, 2.0, "decode_attention.SIGNATURES.bfloat16"
    ),
    Loop("decode_attention.attend", "blocks", 5.4, 0.8, "decode_attention.SIGNATURES.float16"),
    Loop("rows.normalize", "blocks", 0.8, 0.2, "rows.NORMALIZE"),
    Loop("slots.write", "blocks", 0.5, 0.3, "slots.SIGNATURES.float32"),
    Loop("slots.write", "blocks", 0.5, 0.3, "slots.SIGNATURES.bfloat16"),
    Loop("slots.write", "blocks", 0.5, 0.3, "slots.SIGNATURES.float16"),
    Loop("rows.apply_rotary", "blocks", 0.5, 0.2, "rows.ROTATE"),
    Loop("rows.silu_mul", "blocks", 0.6, 0.2, "rows.SILU_MUL"),
    Loop("unshared_rows.plan", "plans", 0.3, 0.2, "unshared_rows.SIGNATURE"),
    Loop("extend_attention.attend", "extend", 9.8, 7.2, "extend_attention.SIGNATURES.float32"),
    Loop("extend_attention.attend", "extend", 9.8, 7.2, "extend_attention.SIGNATURES.bfloat16"),
    Loop("extend_attention.attend", "extend", 9.8, 7.2, "extend_attention.SIGNATURES.float16"),
    Loop("blocks.extend_f32", "extend", 10.5, 7.8),
    Loop("blocks.extend_bf16", "extend", 10.5, 7.8),
    Loop("int8_extend_attention.attend", "extend", 7.1, 4.9, "extend_attention.SIGNATURES.float32"),
    Loop(
        "bf16_extend_attention.attend", "extend", 7.1, 4.9, "extend_attention.SIGNATURES.bfloat16"
    ),
    Loop("packed_linear.multiply", "packed", 4.6, 4.2, "packed_linear.SIGNATURE"),
    Loop("entries.packed_f32", "packed", 5.8, 3.6),
    Loop("packed_linear.multiply", "packed", 4.6, 4.2, "packed_linear.BF16_SIGNATURE"),
    Loop("entries.packed_bf16", "packed", 5.8, 3.6),
    Loop("bf16_pairs.multiply", "packed", 4.6, 4.2, "bf16_pairs.SIGNATURE"),
    Loop("entries.packed_pairs", "packed", 5.8, 3.6),
    Loop("bf16x3.multiply", "bf16x3", 7.2, 4.6, "bf16x3.SIGNATURE"),
    Loop("entries.bf16x3_linear", "bf16x3", 8.5, 2.6),
    Loop("fused_mlp.feed_forward", "bf16x3", 9.6, 6.7),
    Loop("sampler.greedy", "sampler", 0.5, 0.2, "sampler.GREEDY"),
    Loop("sampler.sample", "sampler", 4.9, 4.8, "sampler.SAMPLE"),
    Loop("masks._apply_mask", "masks", 0.3, 0.2, "masks._APPLY_MASK", is_reordered=True),
    Loop("masks._argmax", "masks", 0.6, 0.4, "masks._ARGMAX", is_reordered=True),
)


def listen(listener: Listener) -> None:
    """Call the listener for each loop from now on, in the thread that waits for it: before it is
    compiled ("started") and after ("done"), or once if it is in the cache ("cached")."""
    _listeners.append(listener)


def notify(name: str, event: Event) -> None:
    """Notify the listeners of a loop."""
    for listener in _listeners:
        listener(name, event)


@contextmanager
def notifying(function: Callable[..., None], is_cached: bool) -> Iterator[None]:
    """Notify the listeners that a loop is compiled meanwhile, or loaded from the cache."""
    name = f"{function.__module__.rpartition('.')[2]}.{function.__name__}"
    notify(name, "cached" if is_cached else "started")
    try:
        yield
    finally:
        if not is_cached:
            notify(name, "done")
