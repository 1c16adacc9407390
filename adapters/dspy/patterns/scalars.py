"""Patterns of texts and numbers: free ones, as each format of DSPy can hold them, well-known
formats, and the numbers between two bounds.

A chat section ends where a line says `[[ ## name ## ]]`, so its text never has `[[ ` in it. XML
text has no markup. A JSON string has no line ends, in any sense of `str.splitlines`, for DSPy's
parser of chat sections would cut it there. A bounded number is written with few decimals: what a
program asks for, not all that a float holds.
"""

from __future__ import annotations

from decimal import ROUND_CEILING, Decimal
from fractions import Fraction

from ....core.fsm.json_schema.patterns.intervals import Interval
from ....core.fsm.json_schema.patterns.multiples import digit_trie, multiple_pattern
from ....core.fsm.json_schema.patterns.numbers import number_pattern

LINE_ENDS = r"\x85\u2028\u2029"
CONTROLS = r"\x00-\x1f\x7f"

CHAT_TEXT = r"(?:[^\[]|\[[^\[]|\[\[+[^\[ ])*\[*"

_XML_NO = r"<>&\]\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff"
_ENTITY = "&(?:amp|lt|gt);"
XML_TEXT = rf"(?:[^{_XML_NO}]|>|{_ENTITY}|\]+(?:[^{_XML_NO}]|{_ENTITY}))*\]*"
XML_WORD = rf"[^{_XML_NO}\s]"  # a character that is not a blank
XML_SOME_TEXT = rf"\s*{XML_WORD}{XML_TEXT}"

JSON_CHAR = rf'(?:[^"\\{CONTROLS}{LINE_ENDS}]|\\["\\/bfnrt])'
LEAN_CHAR = rf'[^"\\{CONTROLS}{LINE_ENDS}]'
# the same inside of XML
XML_JSON_CHAR = rf'(?:[^"\\<>&\]{CONTROLS}{LINE_ENDS}\ufffe\uffff]|\\["\\/bfnrt])'
XML_LEAN_CHAR = rf'[^"\\<>&\]{CONTROLS}{LINE_ENDS}\ufffe\uffff]'

_DAY = "(?:0[1-9]|1[0-9]|2[0-8])"
_DATE = (
    "(?:19|20)[0-9]{2}-"
    rf"(?:(?:0[1-9]|1[0-2])-{_DAY}|(?:0[13-9]|1[0-2])-(?:29|30)|(?:0[13578]|1[02])-31)"
)
_TIME = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]"
_BYTE = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_UUID = "[0-9a-f]{8}-[0-9a-f]{4}-%s[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
_LABEL = "[a-z](?:[a-z0-9]{0,30})"

FORMATS = {
    "date": _DATE,
    "time": _TIME,
    "date-time": rf"{_DATE}T{_TIME}Z?",
    "duration": r"P(?:[0-9]{1,4}D|(?:[0-9]{1,4}D)?T[0-9]{1,4}[HMS])",
    "uuid": _UUID % "[0-9a-f]",
    "uuid1": _UUID % "1",
    "uuid3": _UUID % "3",
    "uuid4": _UUID % "4",
    "uuid5": _UUID % "5",
    "ipv4": rf"{_BYTE}(?:\.{_BYTE}){{3}}",
    "email": rf"{_LABEL}@{_LABEL}\.(?:com|org|net)",
    "uri": rf"https?://{_LABEL}(?:\.{_LABEL}){{1,3}}(?:/[A-Za-z0-9_.-]{{1,60}}){{0,8}}",
    "path": "[A-Za-z0-9_./-]{1,120}",
    "file-path": "[A-Za-z0-9_./-]{1,120}",
    "directory-path": "[A-Za-z0-9_./-]{1,120}",
}

FREE_INTEGER = "-?(?:0|[1-9][0-9]{0,17})"
FREE_NUMBER = r"-?(?:0|[1-9][0-9]{0,14})(?:\.[0-9]{1,12})?"
NUM_DIGITS, NUM_DECIMALS = 15, 12
SHORT = 100  # length of an interval that is cut into as many values, or up to ten times as many
MOST_MULTIPLES = 1000
_INTEGERS = Interval(Decimal(-(10**NUM_DIGITS)), Decimal(10**NUM_DIGITS))


def integers(interval: Interval) -> str | None:
    """The integers of an interval; None: there are none."""
    if interval == Interval():
        return FREE_INTEGER
    return multiple_pattern(interval.intersect(_INTEGERS), Fraction(1))


def numbers(interval: Interval) -> str | None:
    """Decimal numbers of an interval; None: none is found."""
    if interval == Interval():
        return FREE_NUMBER
    if interval.low is None or interval.high is None or interval.high - interval.low > SHORT:
        return number_pattern(interval, NUM_DIGITS, NUM_DECIMALS)
    step = Decimal(1)
    while (interval.high - interval.low) / step < SHORT and step > Decimal("1e-9"):
        step /= 10
    return multiples(interval, step)


def multiples(interval: Interval, step: Decimal) -> str | None:
    """The first multiples of a number in an interval that begins, or ends, near 0."""
    start = 0 if interval.low is None else int((interval.low / step).to_integral(ROUND_CEILING))
    values = [step * (start + count) for count in range(MOST_MULTIPLES)]
    texts = [format(value.normalize(), "f") for value in values if interval.holds(value)]
    return digit_trie(texts) if texts else None
