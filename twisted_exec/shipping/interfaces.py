"""
Interfaces between the shipper and its sinks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from twisted.internet.defer import Deferred
from zope.interface import Attribute, Interface


@dataclass(frozen=True)
class Labels:
    """
    Labels of a machine's lines.

    :param machine: name of the API object; the runtime's id if the name is unknown.
    :param epoch: epoch of the journal: offsets of different epochs are not comparable.
    :param others: labels of the configuration, such as ``pool``.
    """

    machine: str
    namespace: str = ""
    uid: str = ""
    machine_class: str = ""
    epoch: str = ""
    others: Mapping[str, str] = field(default_factory=dict)


class ShippedLine(NamedTuple):
    """
    One line of a console, a part of a long one, or a gap.

    :param offset: of its first byte in the journal.
    :param end: offset of the next line.
    :param time: of its last byte, in nanoseconds since the epoch.
    :param boot: number of the machine's boot; 0 if unknown.
    :param text: without its newline.
    :param missing: for a gap, the number of missing bytes, or ``None`` if that is unknown; 0 for a
        line.
    """

    offset: int
    end: int
    time: int
    boot: int
    text: bytes
    missing: int | None = 0

    @property
    def is_gap(self) -> bool:
        return self.missing != 0

    def gap_text(self) -> bytes:
        """Return the notice of a gap."""
        if self.missing is None:
            return b"[twisted-exec: an unknown number of bytes is missing]"
        return b"[twisted-exec: %d bytes are missing]" % self.missing


class SinkError(Exception):
    """
    A sink failed; usually the shipper tries again.

    :param kind: one word for the metric, such as ``unreachable``.
    :param retry_seconds: the wait that the receiver requested; 0 if it requested none.
    """

    def __init__(self, kind: str, message: str, retry_seconds: float = 0.0) -> None:
        super().__init__(message)
        self.kind = kind
        self.retry_seconds = retry_seconds


class BatchRefused(SinkError):
    """The receiver refused this batch for its content or size; a smaller one may pass."""

    def __init__(self, message: str) -> None:
        super().__init__("refused", message)


@dataclass(frozen=True)
class Receipt:
    """
    The receiver's answer to a batch.

    :param rejected: number of lines that it discarded on purpose; they are not sent again.
    :param message: its reason, in one bounded line.
    """

    rejected: int = 0
    message: str = ""


class ILineBatch(Interface):
    """Encoded lines of any number of machines."""

    size = Attribute("Number of bytes so far (int).")
    lines = Attribute("Number of lines so far, gaps included (int).")

    def add(labels: Labels, line: ShippedLine) -> None:
        """Append one line; lines of one machine are in order."""


class ILineSink(Interface):
    """A destination of lines.  One batch is sent at a time."""

    name = Attribute("Name in the configuration (str).")
    batch_bytes = Attribute("Bytes from which on a batch is full (int).")
    line_bytes = Attribute("Most bytes of a line; longer lines are split (int).")

    def new_batch() -> ILineBatch:
        """Return an empty batch."""

    def send(batch: ILineBatch) -> Deferred[Receipt]:
        """
        Send a batch.

        :return: fires when the receiver has accepted it, as far as the protocol tells; fails with
            :class:`SinkError`. A cancelled batch may have arrived.
        """

    def settle() -> Deferred[None]:
        """
        Make sure that accepted batches survive a failure of the receiver, as far as the protocol
        permits.

        :return: fails with :class:`SinkError` if some may be lost. The shipper then sends
            everything since the last success again.
        """

    def close() -> Deferred[None]:
        """Release connections; fires when that is done.  Later batches open them again."""
