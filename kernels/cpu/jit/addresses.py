"""Arrays and functions by address, in code that numba compiles: the inputs of a whole step are
passed to compiled code as a few numbers. Unpacking every array takes longer than small loops do.
Nothing is checked. Needs numba.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeAlias

import numba
import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.core import sigutils
from numba.core.ccallback import CFunc
from numba.extending import intrinsic

from .code_cache import enable_cache, is_cached
from .loops import notifying

Record: TypeAlias = npt.NDArray[np.void]
Entry: TypeAlias = Any  # what `entry` gives: `address`, and `ctypes`, to be called from Python
_LONG = ir.IntType(64)
ENTERED = types.void(*[types.int64] * 5)  # every entry takes five numbers


def _pointer(kind: types.Type) -> Any:
    @intrinsic
    def pointer(typing, address):
        def emit(context, builder, signature, args):
            return builder.inttoptr(args[0], context.get_value_type(signature.return_type))

        return types.CPointer(kind)(types.int64), emit

    return pointer


floats, words = _pointer(types.float32), _pointer(types.uint16)
ints, longs = _pointer(types.int32), _pointer(types.int64)


@intrinsic
def numbers_like(typing, address, number):
    """As `floats` or `words`, whichever a number is."""

    def emit(context, builder, signature, args):
        return builder.inttoptr(args[0], context.get_value_type(signature.return_type))

    return types.CPointer(number)(types.int64, number), emit


@intrinsic
def bare(typing, array):
    """An array of the same memory that does not own it: calls count owners by locked instructions,
    which wait for all that is being stored. To be used until `hold` of its owner."""

    def emit(context, builder, signature, args):
        made = context.make_array(signature.return_type)(context, builder, args[0])
        made.meminfo = ir.Constant(made.meminfo.type, None)
        made.parent = ir.Constant(made.parent.type, None)
        return made._getvalue()

    return array(array), emit


@intrinsic
def hold(typing, owners):
    """Nothing, but these arrays live until here."""

    def emit(context, builder, signature, args):
        return context.get_dummy_value()

    return types.void(owners), emit


def records(dtype: np.dtype[np.void]) -> Any:
    """As `floats`, for records: an address as what `numba.carray` takes."""
    return _pointer(numba.from_dtype(dtype))


@intrinsic
def enter(typing, address, a, b, c, d, e):
    """Call the entry at an address."""

    def emit(context, builder, signature, args):
        kind = ir.FunctionType(ir.VoidType(), [_LONG] * 5)
        builder.call(builder.inttoptr(args[0], kind.as_pointer()), args[1:])
        return context.get_dummy_value()

    return types.void(*[types.int64] * 6), emit


@functools.cache
def entry(function: Callable[..., None]) -> Entry:
    """A function of five numbers (int64) in machine code that can be called by its address, and is
    cached for later processes where files can be written. It lives as long as this process."""
    found = entry_compiler(function)
    with notifying(function, is_cached(found, ENTERED)):
        found.compile()
    return found


def entry_compiler(function: Callable[..., None]) -> Entry:
    """The same, with nothing compiled yet."""
    found = CFunc(function, sigutils.normalize_signature(ENTERED), {}, {"error_model": "numpy"})
    enable_cache(found)
    return found


def record(integers: str, floats32: str = "") -> np.dtype[np.void]:
    """Of these fields: numbers or addresses (int64), and float32 numbers."""
    fields: list[Any] = [(name, np.int64) for name in integers.split()]
    fields += [(name, np.float32) for name in floats32.split()]
    return np.dtype(fields, align=True)


def address(array: npt.NDArray[Any]) -> int:
    """Where an array begins. Slow: `data_ptr` of a tensor takes a tenth of the time."""
    return int(array.ctypes.data)
