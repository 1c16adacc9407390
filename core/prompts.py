"""An older name of `core.api.prompts`."""

from .api.prompts import PROMPTS as PROMPTS
from .api.prompts import Chat as Chat
from .api.prompts import Image as Image
from .api.prompts import Message as Message
from .api.prompts import Prompt as Prompt
from .api.prompts import Segment as Segment
from .api.prompts import Text as Text
from .api.prompts import Tokens as Tokens
from .api.prompts import Video as Video
from .api.prompts import is_prompt as is_prompt
from .api.prompts import is_text as is_text

__all__ = [name for name in dir() if not name.startswith("_")]
