"""The types of `forkroot.sglang`, which is another name of `forkroot.adapters.sglang`."""

from .adapters.sglang import *  # noqa: F403
from .adapters.sglang import __all__ as __all__

__version__: str
