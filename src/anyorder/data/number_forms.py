"""Numbers as people write them: 1234.5, 1,234.5, 1.234,5, 1 234,5, 1'234.5.

A number is written with a sign for its decimals, "." or ",", and the other one may group thousands,
as spaces and apostrophes may. 3,5 and 54.15 show which sign that is, and so do 0.125 and 1.234.567;
1.234 and 50,876 do not: three digits after one to three others may be decimals or thousands.
"""

import re
from typing import Any, TypeGuard

SIGNS = (".", ",")
"""What may part decimals."""

SPACES = " \u00a0\u202f'\u2019"
"""What else groups thousands, whatever parts decimals."""


def _pattern(sign: str, other: str) -> re.Pattern[str]:
    plain = rf"(?:\d+(?:[{sign}]\d*)?|[{sign}]\d+)(?:[eE][+-]?\d+)?"
    grouped = rf"[1-9]\d{{0,2}}([{other}{SPACES}])\d{{3}}(?:\1\d{{3}})*(?:[{sign}]\d+)?"
    return re.compile(rf"\s*[+-]?(?:{plain}|{grouped})\s*")


PATTERNS = {".": _pattern(".", ","), ",": _pattern(",", ".")}


def signs_of(cell: str) -> str:
    """The signs of which each may part the decimals of a number; none if it is no number.

    Example:
        >>> [signs_of(cell) for cell in ("3,5", "0.125", "1.234", "1.234,5", "7", "a")]
        [',', '.', '.,', ',', '.,', '']
    """
    return "".join(sign for sign in SIGNS if PATTERNS[sign].fullmatch(cell))


def is_doubtful(cell: str) -> bool:
    """Whether a number has another value with another sign for decimals, as 1.234 has."""
    return any(sign in cell for sign in SIGNS) and signs_of(cell) == "".join(SIGNS)


def is_foreign(value: Any) -> TypeGuard[str]:
    """Whether a text is a number that Python does not read, such as 3,5 or 1 234."""
    if not isinstance(value, str) or not signs_of(value):
        return False
    return value.count(".") > 1 or any(sign in value.strip() for sign in f",{SPACES}")


def group_in(cell: str) -> str:
    """What may group the thousands of a number that Python does not read, in words."""
    if any(space in cell.strip() for space in SPACES):
        return "a space"
    return "a point" if "." in cell and signs_of(cell) == "," else "a comma"


def plainly(cell: str, sign: str) -> str:
    """A number as Python reads it.

    Args:
        cell: A number of that sign.
        sign: What parts its decimals.

    Example:
        >>> plainly("1.234,5", ","), plainly("7 876.63", "."), plainly("1.234", ".")
        ('1234.5', '7876.63', '1.234')
    """
    groups = SPACES + "".join(other for other in SIGNS if other != sign)
    return cell.strip().translate({ord(group): None for group in groups}).replace(sign, ".")
