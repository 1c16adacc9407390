"""Formats of strings and numbers in common use. Knows nothing of schemas.

Each stands for texts that every checker of the format takes: dates exist, years have four digits,
times carry an offset, host names have at most six labels of at most thirty characters.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from types import MappingProxyType

from ...regex.tree import Tree
from .ecma import read_pattern
from .intervals import Interval
from .strings import ANYTHING

_MONTH_DAYS = (
    r"(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    r"|02-(?:0[1-9]|1[0-9]|2[0-8]))"
)
_YEAR = "(?:[0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)"
_FOURTH = "(?:0[48]|[2468][048]|[13579][26])"
_DATE = f"(?:{_YEAR}-{_MONTH_DAYS}|(?:[0-9]{{2}}{_FOURTH}|{_FOURTH}00)-02-29)"
_CLOCK = "(?:[01][0-9]|2[0-3]):[0-5][0-9]"
_TIME = rf"{_CLOCK}:[0-5][0-9](?:\.[0-9]{{1,6}})?(?:Z|[+\-]{_CLOCK})"
_SECONDS = "[0-9]{1,9}S"
_MINUTES = f"[0-9]{{1,9}}M(?:{_SECONDS})?"
_HOURS = f"[0-9]{{1,9}}H(?:{_MINUTES})?"
_PERIOD = "(?:[0-9]{1,4}Y(?:[0-9]{1,4}M(?:[0-9]{1,4}D)?)?|[0-9]{1,4}M(?:[0-9]{1,4}D)?|[0-9]{1,4}D)"
_SPAN = f"T(?:{_HOURS}|{_MINUTES}|{_SECONDS})"
_DURATION = f"P(?:{_PERIOD}(?:{_SPAN})?|{_SPAN}|[0-9]{{1,4}}W)"
_LABEL = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,28}[A-Za-z0-9])?"
_HOST = rf"{_LABEL}(?:\.{_LABEL}){{0,5}}"
_WORD = "[A-Za-z0-9!#$%&'*+/=?^_{|}~-]{1,20}"
_EMAIL = rf"{_WORD}(?:\.{_WORD}){{0,2}}@(?:{_LABEL}\.){{1,3}}[A-Za-z]{{2,24}}"
_BYTE = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_IPV4 = rf"(?:{_BYTE}\.){{3}}{_BYTE}"
_H = "[0-9A-Fa-f]{1,4}"
_IPV6 = "|".join(
    [f"(?:{_H}:){{7}}{_H}"]
    + [f"(?:{_H}:){{{n}}}(?::{_H}){{1,{7 - n}}}" for n in range(1, 7)]
    + [f"(?:{_H}:){{1,7}}:", f":(?:(?::{_H}){{1,7}}|:)"]
)
_UUID = "[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}"
_UUID_OF = "[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-%d[0-9A-Fa-f]{3}-[89ABab][0-9A-Fa-f]{3}-[0-9A-Fa-f]{12}"
_CHAR = "(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})"
_TAIL = f"(?:{_CHAR}|/)*"
_ENDS = rf"(?:\?(?:{_CHAR}|[/?])*)?(?:#(?:{_CHAR}|[/?])*)?"
_AUTHORITY = rf"//(?:{_HOST})(?::[0-9]{{1,4}})?(?:/{_TAIL})?"
_URI = rf"[A-Za-z][A-Za-z0-9+.-]{{0,15}}:(?:{_AUTHORITY}|{_CHAR}{_TAIL}){_ENDS}"
_FIRST = "(?:[A-Za-z0-9._~!$&'()*+,;=@-]|%[0-9A-Fa-f]{2})"
_REFERENCE = rf"(?:/?{_FIRST}+(?:/{_TAIL})?|/)?{_ENDS}"
_POINTER = "(?:/(?:[^~/]|~[01])*)*"
_RELATIVE = f"(?:0|[1-9][0-9]{{0,3}})(?:#|{_POINTER})"
_TEMPLATE = r"(?:/(?:[A-Za-z0-9._~-]{1,30}|\{[A-Za-z][A-Za-z0-9_]{0,30}\}))+"
_REGEX = r"\^?(?:(?:[A-Za-z0-9_ .-]|\\[dws.]|\[[a-z0-9_]{1,10}\])[*+?]?)*\$?"
_BASE64 = "(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"

STRINGS: Mapping[str, str] = MappingProxyType(
    {
        "date": _DATE,
        "time": _TIME,
        "date-time": f"{_DATE}T{_TIME}",
        "duration": _DURATION,
        "email": _EMAIL,
        "idn-email": _EMAIL,
        "hostname": _HOST,
        "idn-hostname": _HOST,
        "ipv4": _IPV4,
        "ipv6": _IPV6,
        "ip": f"{_IPV4}|{_IPV6}",
        "uuid": _UUID,
        **{f"uuid{version}": _UUID_OF % version for version in (1, 3, 4, 5, 6, 7, 8)},
        "uri": _URI,
        "iri": _URI,
        "uri-reference": _REFERENCE,
        "iri-reference": _REFERENCE,
        "json-pointer": _POINTER,
        "relative-json-pointer": _RELATIVE,
        "uri-template": _TEMPLATE,
        "regex": _REGEX,
        "byte": _BASE64,
        "base64": _BASE64,
    }
)
FREE = frozenset({"password", "binary", "path", "file-path", "directory-path"})
ALIASES: Mapping[str, str] = MappingProxyType(
    {"ipvanyaddress": "ip", "ip-address": "ipv4", "host-name": "hostname"}
)
_BITS = (8, 16, 32, 64)
NUMBERS: Mapping[str, Interval] = MappingProxyType(
    {
        **{f"int{n}": Interval(Decimal(-(2 ** (n - 1))), Decimal(2 ** (n - 1) - 1)) for n in _BITS},
        **{f"uint{n}": Interval(Decimal(0), Decimal(2**n - 1)) for n in _BITS},
        "float": Interval(),
        "double": Interval(),
    }
)


def is_known(name: object) -> bool:
    """Whether a format restricts anything; one that is not known is an annotation."""
    return name in STRINGS or name in ALIASES or name in NUMBERS


def read_format(name: str) -> Tree:
    """The texts of a format; all, where it restricts none."""
    source = STRINGS.get(ALIASES.get(name, name))
    return ANYTHING if source is None else read_pattern(f"^(?:{source})$")
