"""
Quantities: ``500m``, ``1``, ``2Gi``, ``1e3``.

Source: ``k8s.io/apimachinery/pkg/api/resource/quantity.go``.
"""

from __future__ import annotations

import re
from decimal import Decimal

_QUANTITY = re.compile(
    r"(?P<number>[+-]?(?:\d{1,30}(?:\.\d{0,30})?|\.\d{1,30}))"
    r"(?P<suffix>[KMGTPE]i|[numkMGTPE]|[eE][+-]?\d{1,2})?",
    re.ASCII,
)
_SUFFIXES = {
    "n": Decimal(10) ** -9,
    "u": Decimal(10) ** -6,
    "m": Decimal(10) ** -3,
    "k": Decimal(10) ** 3,
    "M": Decimal(10) ** 6,
    "G": Decimal(10) ** 9,
    "T": Decimal(10) ** 12,
    "P": Decimal(10) ** 15,
    "E": Decimal(10) ** 18,
    "Ki": Decimal(2) ** 10,
    "Mi": Decimal(2) ** 20,
    "Gi": Decimal(2) ** 30,
    "Ti": Decimal(2) ** 40,
    "Pi": Decimal(2) ** 50,
    "Ei": Decimal(2) ** 60,
}
_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
PROBLEM = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)


def parse(text: str | int | float) -> Decimal:
    """
    Parse a quantity.

    :param text: as in JSON; a bare number is allowed.
    :raises ValueError: the text is not a quantity.
    """
    match = _QUANTITY.fullmatch(str(text))
    if match is None:
        raise ValueError(PROBLEM)
    number, suffix = Decimal(match["number"]), match["suffix"] or ""
    if suffix[:1] in ("e", "E") and suffix[1:] and suffix != "Ei":
        return number.scaleb(int(suffix[1:]))
    return number * _SUFFIXES[suffix] if suffix else number


def value(text: str | int | float) -> int:
    """Return the value rounded up to an integer."""
    exact = parse(text)
    whole = int(exact)
    return whole + 1 if exact > whole else whole


def binary(whole: int) -> str:
    """
    Format an integer with a binary suffix if possible: ``134217728`` is ``128Mi``, ``1000`` stays.
    """
    shift = max(
        (each for each in range(10, 70, 10) if whole and whole % (1 << each) == 0), default=0
    )
    return f"{whole >> shift}{_BINARY[shift // 10]}"
