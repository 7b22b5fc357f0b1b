"""
Syslog messages (RFC 5424), each with its length in front (RFC 5425), sans I/O.

The host name is the machine's name, the process id its boot, and the message id ``line`` or
``gap``; everything else is structured data.  The text is passed on byte for byte.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime

from zope.interface import implementer

from twisted_exec.shipping.interfaces import ILineBatch, Labels, Line

FACILITIES: Mapping[str, int] = {
    "kern": 0,
    "user": 1,
    "daemon": 3,
    "syslog": 5,
    **{f"local{number}": 16 + number for number in range(8)},
}

STRUCTURED_DATA_ID = "console@32473"
"""32473 is the enterprise number for documentation (RFC 5612): this project has none of its own."""

LINE_BYTES = 7 << 10
"""Most bytes of a text: receivers should take messages of 8192 bytes (RFC 5425, section 4.3.1)."""

_WARNING, _INFO = 4, 6
_MAX_NAME, _MAX_VALUE = 255, 128
_UNPRINTABLE = re.compile(r"[^!-~]")
_UNSAFE_NAME = re.compile(r'[^!-~]|[=\]"]')
_ESCAPED = re.compile(r'(["\\\]])')
_NOTHING = "-"


@implementer(ILineBatch)
class SyslogBatch:
    """
    Messages of any number of machines.

    :param facility: number of the facility.
    :ivar data: the encoded messages.
    :ivar lines: their number.
    """

    def __init__(self, facility: int) -> None:
        self._facility = facility
        self._labels: Labels | None = None
        self._host, self._labels_text = "", ""
        self._second, self._second_text = -1, ""
        self.data = bytearray()
        self.lines = 0

    @property
    def size(self) -> int:
        return len(self.data)

    def add(self, labels: Labels, line: Line) -> None:
        """Append a message."""
        if labels is not self._labels:
            self._labels = labels
            self._host = _UNPRINTABLE.sub("?", labels.machine)[:_MAX_NAME] or _NOTHING
            self._labels_text = _labels_text(labels)
        severity = _WARNING if line.is_gap else _INFO
        head = (
            f"<{self._facility * 8 + severity}>1 {self._time(line.time)} {self._host} console "
            f"{line.boot or _NOTHING} {'gap' if line.is_gap else 'line'} "
            f'[{STRUCTURED_DATA_ID}{self._labels_text} boot="{line.boot}" offset="{line.offset}"] '
        ).encode("utf-8", "replace")
        text = line.gap_text() if line.is_gap else line.text
        self.data += b"%d %b%b" % (len(head) + len(text), head, text)
        self.lines += 1

    def _time(self, nanoseconds: int) -> str:
        second, rest = divmod(nanoseconds, 1_000_000_000)
        if second != self._second:
            self._second = second
            moment = datetime.fromtimestamp(second, UTC)
            self._second_text = moment.strftime("%Y-%m-%dT%H:%M:%S")
        return f"{self._second_text}.{rest // 1000:06d}Z"


def _labels_text(labels: Labels) -> str:
    values = {
        "machine": labels.machine,
        "namespace": labels.namespace,
        "uid": labels.uid,
        "class": labels.machine_class,
        "epoch": labels.epoch,
        **labels.others,
    }
    return "".join(
        f' {_UNSAFE_NAME.sub("_", key)[:32]}="{_escape(value)}"'
        for key, value in values.items()
        if key and value
    )


def _escape(value: str) -> str:
    text = "".join(each for each in value[:_MAX_VALUE] if each.isprintable())
    return _ESCAPED.sub(r"\\\1", text)
