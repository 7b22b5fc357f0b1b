"""The reason that a user declares for a session, such as the number of a ticket."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import quote, unquote_to_bytes

from twisted_exec.api.status import BadRequest

REASON_HEADER = b"X-Twisted-Exec-Reason"
LONGEST_REASON = 256
"""The most characters of a reason."""

BLANK = frozenset(
    map(
        chr,
        (
            *(0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0),
            *(*range(0x180B, 0x1810), *range(0xFE00, 0xFE0F), *range(0xE0100, 0xE01F0)),
        ),
    )
)
"""
Invisible characters that ``str.isprintable`` accepts: fillers, the empty Braille pattern, variation
selectors except U+FE0F, which belongs to emoji.
"""


def check_reason(text: str) -> str:
    """
    Return a reason without the spaces around it.

    :raises BadRequest: it is not acceptable.
    """
    reason = text.strip(" ")
    if len(reason) > LONGEST_REASON:
        raise BadRequest(
            f"the reason has {len(reason)} characters, more than {LONGEST_REASON}: shorten it"
        )
    hidden = next((mark for mark in reason if not mark.isprintable() or mark in BLANK), "")
    if hidden:
        raise BadRequest(
            f"the reason has a control or invisible character (U+{ord(hidden):04X}): remove it"
        )
    return reason


def reason_of_query(args: Mapping[bytes, Sequence[bytes]]) -> str:
    """
    Return the reason in a query; empty if it has none.

    :raises BadRequest: the reason is not valid.
    """
    return _only(args.get(b"reason", ()), unquoted=False)


def reason_of_headers(values: Sequence[bytes]) -> str:
    """
    Return the reason in the header of the previous hop; empty if it has none.

    :raises BadRequest: the reason is not valid.
    """
    return _only(values, unquoted=True)


def reason_of_command(words: Sequence[str]) -> str:
    """
    Return the reason in the command ``console --reason TEXT``; empty if it has none.

    :raises BadRequest: the reason is not valid.
    """
    if not words or words[0] != "console":
        return ""
    rest = iter(words[1:])
    for word in rest:
        name, equals, value = word.partition("=")
        if name == "--reason":
            return check_reason(value if equals else next(rest, ""))
    return ""


def reason_headers(reason: str) -> tuple[tuple[bytes, bytes], ...]:
    """Return the header for the next hop; none without a reason."""
    return ((REASON_HEADER, quote(reason, safe="").encode("ascii")),) if reason else ()


def _only(values: Sequence[bytes], *, unquoted: bool) -> str:
    if not values:
        return ""
    if len(values) > 1:
        raise BadRequest("the request has more than one reason: give it once")
    (value,) = values
    try:
        return check_reason((unquote_to_bytes(value) if unquoted else value).decode("utf-8"))
    except UnicodeDecodeError:
        raise BadRequest("the reason is not UTF-8") from None
