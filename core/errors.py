"""An older name of `core.api.errors`."""

from .api.errors import BackendClosed as BackendClosed
from .api.errors import CallFailed as CallFailed
from .api.errors import CallTooLarge as CallTooLarge
from .api.errors import DeadlineExceeded as DeadlineExceeded
from .api.errors import EngineDied as EngineDied
from .api.errors import ForkrootError as ForkrootError
from .api.errors import InvalidCall as InvalidCall
from .api.errors import InvalidModel as InvalidModel
from .api.errors import NotPicklable as NotPicklable
from .api.errors import Overloaded as Overloaded
from .api.errors import ProgramError as ProgramError
from .api.errors import Shown as Shown
from .api.errors import UnsupportedCall as UnsupportedCall

__all__ = [name for name in dir() if not name.startswith("_")]
