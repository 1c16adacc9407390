"""Images and videos that come inside a message, as `data:` URLs. Nothing is fetched."""

from __future__ import annotations

import base64
import binascii

from ...core.api.protocol import InvalidCall, Shown, UnsupportedCall

_SHOWN = 60  # characters of a URL in an error


def data_of(url: object, field: str, kind: str = "an image") -> bytes:
    """The bytes in a URL such as `data:image/png;base64,iVBORw0=`. kind: what it is to be, in
    words. Raises UnsupportedCall for another URL, InvalidCall for one whose data is no base64."""
    if not isinstance(url, str):
        raise InvalidCall(field, url, f"{kind} as a data:...;base64, URL")
    shown = Shown(repr(f"{url[:_SHOWN]}..." if len(url) > _SHOWN else url))
    head, _, data = url.partition(",")
    if not (head.startswith("data:") and head.endswith(";base64")):
        raise UnsupportedCall(field, shown, f"{kind} as a data:...;base64, URL: nothing is fetched")
    try:
        found = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidCall(field, shown, f"base64 behind the comma ({error})") from None
    if not found:
        raise InvalidCall(field, shown, f"{kind}, and not nothing, behind the comma")
    return found
