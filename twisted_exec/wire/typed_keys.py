"""The number of keys in a user's input, and texts about keys that were dropped."""

from __future__ import annotations

import re
from collections.abc import Iterable

_KEY = re.compile(rb"\x1b[\[O][0-?]*[ -/]*[@-~]|[\x00-\x7f\xc0-\xff][\x80-\xbf]*|[\x80-\xbf]+")
"""The bytes of a key: a sequence such as that of an arrow, or a character in UTF-8."""

_REPORTS = re.compile(rb"(?:\x1b\[(?:[IO]|<[0-9;]*[Mm]|M.{3}))+", re.DOTALL)
"""Reports of the mouse and of the focus, which a program has asked for."""

_NO_KEYS = re.compile(_REPORTS.pattern + rb"|\x1b\[20[01]~", re.DOTALL)

_MOST_DROPPED_BYTES = 4 << 10  # are kept, because a key may arrive in parts


def dropped_keys(dropped: int, unsent: int) -> str:
    """
    Return what users read of input that was dropped after a loss of the connection.

    :param dropped: keys, and requests such as a BREAK; at least 1.
    :param unsent: how many of these were never sent.
    """
    if dropped == unsent:
        return keys_discarded(unsent, "typed meanwhile")
    text = f"{keys_counted(dropped - unsent)} may not have reached the machine"
    if unsent:
        text += f"; {keys_discarded(unsent, 'typed after that')}"
    return text


def unconfirmed_keys(sent: int, unsent: int) -> str:
    """
    Return what users who leave read of input that the server has not confirmed; empty for none.

    :param sent: keys, and requests such as a BREAK, that were sent.
    :param unsent: those behind them that were not.
    """
    texts = [f"{keys_counted(sent)} may not have reached the machine"] if sent else []
    if unsent:
        after = " typed after that" if sent else ""
        texts.append(f"{keys_counted(unsent)}{after} {'was' if unsent == 1 else 'were'} not sent")
    return "; ".join(texts)


def keys_discarded(count: int, when: str) -> str:
    """Return what users read of dropped keys; ``when`` is such as ``typed after that``."""
    return f"{keys_counted(count)} {when} {'was' if count == 1 else 'were'} discarded"


def keys_in(data: bytes) -> int:
    """Return the number of keys that made this input; what surrounds a paste, and reports, are none."""
    return len(_KEY.findall(_NO_KEYS.sub(b"", data)))


def keys_of(items: Iterable[object]) -> int:
    """Return the number of keys in input, and of requests; ``None``, the end of the input, is neither."""
    return sum(keys_in(item) if isinstance(item, bytes) else item is not None for item in items)


def is_typed(data: bytes) -> bool:
    """Return whether input is more than what a terminal reports of its mouse and its focus."""
    return _REPORTS.fullmatch(data) is None


def keys_counted(count: int) -> str:
    """Return ``1 key`` or ``3 keys``."""
    return "1 key" if count == 1 else f"{count} keys"


class DroppedKeys:
    """The number of keys in input that is dropped."""

    def __init__(self) -> None:
        self._bytes, self._count = b"", 0

    def add(self, data: bytes) -> None:
        self._bytes += data
        if len(self._bytes) > _MOST_DROPPED_BYTES:
            self._bytes, self._count = b"", self.count

    @property
    def count(self) -> int:
        return self._count + keys_in(self._bytes)
