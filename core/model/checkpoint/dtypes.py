"""The default dtype of a model on a device."""

from __future__ import annotations

import torch

from ....kernels.cpu.linear.linear import is_native
from ..sizes import DTYPE_BYTES, Sizes

SMALL = 256 << 20  # bytes in float32 up to which half precision gains nothing worth its rounding


def auto_dtype(sizes: Sizes, device: str) -> str:
    """The dtype that "auto" means on a device ("cpu", "cuda:0").

    It follows from the checkpoint and the machine's abilities, and never from a measurement, so
    that a call is answered alike in every run.

    What is stored in float32, and small models, are run in float32. Others in the half precision
    that they are stored in; on a CPU in bfloat16 if it multiplies that, else in float32.
    """
    if sizes.dtype == "float32" or sizes.num_parameters() * DTYPE_BYTES["float32"] < SMALL:
        return "float32"
    if device != "cpu":
        return sizes.dtype
    return "bfloat16" if multiplies_bfloat16() else "float32"


def multiplies_bfloat16() -> bool:
    """Whether this machine's CPU has instructions for it that products use."""
    return is_native(torch.bfloat16)
