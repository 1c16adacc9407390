"""An older name of `core.api.protocol`."""

from .api.protocol import *  # noqa: F403
from .api.protocol import __all__ as __all__
