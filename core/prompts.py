"""An older name of `core.api.prompts`."""

from .api.prompts import (
    PROMPTS,
    Chat,
    Image,
    Message,
    Prompt,
    Segment,
    Text,
    Tokens,
    Video,
    check_media,
    is_prompt,
    is_text,
)

__all__ = [
    "PROMPTS",
    "Chat",
    "Image",
    "Message",
    "Prompt",
    "Segment",
    "Text",
    "Tokens",
    "Video",
    "check_media",
    "is_prompt",
    "is_text",
]
