"""Reads small files of checkpoints, which strangers write: regular files only, bounded in bytes.

Symbolic links are followed, as the hub's cache consists of them.
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

from .errors import InvalidModel

CONFIG_BYTES = 4 << 20
TEMPLATE_BYTES = 1 << 20
SETTINGS_BYTES = 16 << 20  # of a tokenizer, which may list added tokens
HEADER_BYTES = 32 << 20  # of a safetensors file, and of an index of such files
TOKENIZER_BYTES = 256 << 20


def check_regular(path: Path) -> int:
    """The bytes of a regular file. Raises InvalidModel for a FIFO, a device or a folder, of which
    none is opened, and OSError or ValueError where nothing is there."""
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise InvalidModel(f"{path} is not a regular file")
    return found.st_size


def read_bytes(path: Path, most: int) -> bytes:
    """The content of a regular file of at most so many bytes. Raises InvalidModel for any other,
    FileNotFoundError for none."""
    try:
        check_regular(path)
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size > most:
                raise InvalidModel(f"{path} has {size} bytes; expected at most {most}")
            return file.read(most)
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        if isinstance(error, InvalidModel):
            raise
        raise InvalidModel(f"{path} cannot be read: {error}") from error


def read_text(path: Path, most: int) -> str:
    """As `read_bytes`, of UTF-8."""
    try:
        return read_bytes(path, most).decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidModel(f"{path} is not UTF-8: {error}") from error


def read_object(path: Path, most: int) -> dict[str, Any]:
    """The JSON object in a file, as `read_bytes`."""
    try:
        values = json.loads(read_text(path, most))
    except InvalidModel:
        raise
    except (ValueError, RecursionError) as error:
        raise InvalidModel(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(values, dict):
        raise InvalidModel(f"{path} holds {type(values).__name__}; expected a JSON object")
    return values
