"""
Standard input and output as Twisted descriptors.

:class:`twisted.internet.stdio.StandardIO` would do but for two things: it sets
``O_NONBLOCK`` on what the shell shares with us, and it does not tell why
writing failed, so that a full disk would look like a reader who has seen
enough.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

from twisted.internet.abstract import FileDescriptor
from twisted.internet.interfaces import IReactorFDSet
from twisted.internet.main import CONNECTION_DONE, CONNECTION_LOST
from twisted.python.failure import Failure

# As much as one message carries.
_READ_BYTES = 32 << 10


class Input(FileDescriptor):
    """
    Reads a descriptor; ``pauseProducing`` and ``resumeProducing`` as any producer.

    :param received: called with what was read.
    :param ended: called once, at the end of input or when reading failed.
    """

    def __init__(
        self,
        fd: int,
        received: Callable[[bytes], None],
        ended: Callable[[], None],
        reactor: IReactorFDSet,
    ) -> None:
        super().__init__(reactor)
        self._fd = fd
        self._received = received
        self._ended = ended
        self.connected = 1

    def fileno(self) -> int:
        return self._fd

    def doRead(self) -> Exception | None:
        try:
            data = os.read(self._fd, _READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return None
        except OSError:  # EIO: the terminal's window was closed
            return CONNECTION_LOST
        if not data:
            return CONNECTION_DONE
        self._received(data)
        return None

    def connectionLost(self, reason: Failure) -> None:
        super().connectionLost(reason)
        self._ended()

    def stop(self) -> None:
        """Read no more, without a word to ``ended``."""
        self.stopReading()
        self.connected = 0


class Output(FileDescriptor):
    """
    Writes a descriptor, with the queue and the producer of any Twisted transport.

    :param lost: called once, when nothing can be written any more: with ``None``
        after :meth:`loseConnection` flushed everything and when the reader went
        away, else with what the system said.
    """

    def __init__(
        self, fd: int, lost: Callable[[OSError | None], None], reactor: IReactorFDSet
    ) -> None:
        super().__init__(reactor)
        self._fd = fd
        self._lost = lost
        self._error: OSError | None = None
        self.connected = 1

    @property
    def unsent(self) -> int:
        """Number of bytes that are not written yet."""
        waiting: int = len(self.dataBuffer) - self.offset + self._tempDataLen
        return waiting

    def fileno(self) -> int:
        return self._fd

    def writeSomeData(self, data: bytes) -> int | Exception:
        try:
            return os.write(self._fd, data)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as error:
            if error.errno not in (errno.EPIPE, errno.EIO):
                self._error = error
            return CONNECTION_LOST

    def connectionLost(self, reason: Failure) -> None:
        super().connectionLost(reason)
        self._lost(self._error)
