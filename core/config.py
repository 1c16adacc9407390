"""An older name of `core.api.config`."""

from .api.config import DTYPES, HOST_POLICIES, ORDERS, PARTS, EngineConfig

__all__ = ["DTYPES", "HOST_POLICIES", "ORDERS", "PARTS", "EngineConfig"]
