"""
A sink in memory, for tests of the shipper.
"""

from __future__ import annotations

from twisted.internet.defer import Deferred, fail, succeed
from zope.interface import implementer

from twisted_exec.shipping.interfaces import (
    ILineBatch,
    ILineSink,
    Labels,
    Receipt,
    ShippedLine,
    SinkError,
)


@implementer(ILineBatch)
class MemoryBatch:
    """Lines as they are."""

    def __init__(self) -> None:
        self.entries: list[tuple[str, ShippedLine]] = []
        self.size = self.lines = 0

    def add(self, labels: Labels, line: ShippedLine) -> None:
        self.entries.append((labels.machine, line))
        self.size += len(line.text) + 1
        self.lines += 1


@implementer(ILineSink)
class MemorySink:
    """
    :ivar entries: machine and line of all accepted batches.
    :ivar sizes: number of lines of each batch, accepted or not.
    :ivar settles: whether :meth:`settle` ever fires.
    :ivar refusal: decides on a batch; returns an error or ``None``.
    """

    name = "memory"

    def __init__(self, batch_bytes: int = 64 << 10, line_bytes: int = 1024) -> None:
        self.batch_bytes, self.line_bytes = batch_bytes, line_bytes
        self.entries: list[tuple[str, ShippedLine]] = []
        self.sizes: list[int] = []
        self.refusal = lambda batch: None
        self.settles = True
        self.loss: SinkError | None = None
        self.receipt = Receipt()
        self.is_closed = False

    def new_batch(self) -> MemoryBatch:
        return MemoryBatch()

    def send(self, batch: MemoryBatch) -> Deferred[Receipt]:  # type: ignore[override]
        self.sizes.append(batch.lines)
        error = self.refusal(batch)
        if error is not None:
            return fail(error)
        self.entries += batch.entries
        return succeed(self.receipt)

    def settle(self) -> Deferred[None]:
        loss, self.loss = self.loss, None
        if loss is not None:
            return fail(loss)
        return succeed(None) if self.settles else Deferred()

    def close(self) -> Deferred[None]:
        self.is_closed = True
        return succeed(None)

    def texts(self, machine: str = "vm") -> list[bytes]:
        """The lines of one machine."""
        return [line.text for name, line in self.entries if name == machine]
