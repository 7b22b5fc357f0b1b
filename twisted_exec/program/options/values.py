"""Values of options: texts, checked and converted."""

from __future__ import annotations

import re

from twisted_exec.api import quantity

_PORTS = re.compile(r"([0-9]{1,5})-([0-9]{1,5})", re.ASCII)
_DURATION = re.compile(r"(?:(\d{1,6})h)?(?:(\d{1,6})m)?(?:(\d{1,6})s)?", re.ASCII)
COMPATIBLE, STRICT = "compatible", "strict"


def number_of_sessions(text: str) -> int:
    """
    Coerce an option's value to a number of sessions.

    :raises ValueError: it is not a whole number from 1 to 100000.
    """
    if not (text.isascii() and text.isdigit() and len(text) < 7 and 1 <= int(text) <= 100_000):
        raise ValueError(f"{text!r} is not a number from 1 to 100000")
    return int(text)


def seconds(text: str) -> float:
    """
    Coerce an option's value to seconds.

    :raises ValueError: it is not a number from 0 to 3600.
    """
    return seconds_between(text, 0, 3600)


def seconds_between(text: str, least: int, most: int) -> float:
    """
    Coerce an option's value to seconds.

    :raises ValueError: it is not a number within the limits.
    """
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not least <= seconds <= most:
        raise ValueError(f"{text!r} is no number of seconds from {least} to {most}")
    return seconds


def whole_seconds(text: str) -> int:
    """
    Coerce an option's value to whole seconds.

    :raises ValueError: it is not a whole number from 0 to 3600.
    """
    if not re.fullmatch("[0-9]{1,4}", text) or int(text) > 3600:
        raise ValueError(f"{text!r} is no whole number of seconds from 0 to 3600")
    return int(text)


def days(text: str) -> int:
    """
    Coerce an option's value to days.

    :raises ValueError: it is not a whole number from 0 to 3650.
    """
    if not re.fullmatch("[0-9]{1,4}", text) or int(text) > 3650:
        raise ValueError(f"{text!r} is no whole number of days from 0 to 3650")
    return int(text)


def size(text: str) -> int:
    """
    Coerce an option's value, such as ``64Mi``, to bytes.

    :raises ValueError: it is not a quantity from 0 to 1Pi.
    """
    try:
        amount = quantity.value(text)
    except ValueError:
        amount = -1
    if not 0 <= amount <= 1 << 50:
        raise ValueError(f"{text!r} is no size such as 64Mi")
    return amount


def port_range(text: str) -> range:
    """
    Coerce a range of ports, such as ``21000-21099``, which includes both.

    :raises ValueError: it is malformed, empty, or has a number that is no port.
    """
    parts = _PORTS.fullmatch(text)
    first, last = map(int, parts.groups()) if parts else (0, 0)
    if not 1 <= first <= last <= 65535:
        raise ValueError(f"{text!r} is no range of ports from 1 to 65535, such as 21000-21099")
    return range(first, last + 1)


def duration(text: str) -> float:
    """
    Coerce hours, minutes and seconds in Go's format, such as ``1h30m``, to seconds.

    :raises ValueError: it is malformed.
    """
    match = _DURATION.fullmatch(text)
    if not text or match is None:
        raise ValueError(f"{text!r} is no duration such as 8760h, 1h30m or 45s")
    hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return hours * 3600.0 + minutes * 60.0 + seconds


def console_verbs(text: str) -> str:
    """
    Check the value of ``--console-verbs``.

    :raises ValueError: it is neither :data:`COMPATIBLE` nor :data:`STRICT`.
    """
    if text not in (COMPATIBLE, STRICT):
        raise ValueError(f"{text!r} is neither {COMPATIBLE} nor {STRICT}")
    return text


def _number(text: str, least: int, most: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 8 and least <= int(text) <= most):
        raise ValueError(f"{text!r} is not a number from {least} to {most}")
    return int(text)


def megabytes(text: str) -> int:
    """
    Coerce an option's value to megabytes.

    :raises ValueError: it is not a whole number from 0 to 1000000.
    """
    return _number(text, 0, 1_000_000)


def number_of_files(text: str) -> int:
    """
    Coerce an option's value to a number of files.

    :raises ValueError: it is not a whole number from 1 to 1000.
    """
    return _number(text, 1, 1000)
