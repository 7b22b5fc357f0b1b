"""
Stop together with the parent process, however that ends.

The parent holds the other end of our standard input.  When that is closed, by the parent or the
kernel, we stop.
"""

from __future__ import annotations

import os
from typing import Any

from twisted.internet.interfaces import IReadDescriptor
from twisted.logger import Logger
from zope.interface import implementer

_log = Logger()
_STDIN = 0
_BYTES = 4096


def stop_with_parent(reactor: Any, descriptor: int = _STDIN) -> None:
    """
    Stop the reactor at the end of a descriptor's input, ignoring the input itself.

    :param descriptor: a pipe or a socket.
    """
    reactor.addReader(_Input(reactor, descriptor))


@implementer(IReadDescriptor)
class _Input:
    def __init__(self, reactor: Any, descriptor: int) -> None:
        self._reactor, self._descriptor = reactor, descriptor

    def fileno(self) -> int:
        """Called by the reactor."""
        return self._descriptor

    def logPrefix(self) -> str:
        """Called by the reactor."""
        return "stdin"

    def doRead(self) -> None:
        """Called by the reactor when input is available or has ended."""
        try:
            data = os.read(self._descriptor, _BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.connectionLost(None)

    def connectionLost(self, reason: object) -> None:
        """Called by the reactor when the other end is closed, or the reactor stops."""
        self._reactor.removeReader(self)
        if self._reactor.running:
            _log.info("standard input has ended: stopping with the parent process")
            self._reactor.callLater(0, self._stop)

    def _stop(self) -> None:
        if self._reactor.running:
            self._reactor.stop()
