"""
A program stops together with its parent process, which holds the other end of its standard input.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any

from twisted.internet.error import ReactorNotRunning
from twisted.internet.interfaces import IReadDescriptor
from twisted.logger import Logger
from zope.interface import implementer

_log = Logger()
_STDIN = 0
_BYTES = 4096


def stop_with_parent(reactor: Any, descriptor: int = _STDIN) -> None:
    """
    Stop the reactor at the end of a descriptor's input.

    :param descriptor: a pipe or a socket.
    """
    reactor.addReader(_Input(reactor, descriptor))


@implementer(IReadDescriptor)
class _Input:
    def __init__(self, reactor: Any, descriptor: int) -> None:
        self._reactor, self._descriptor = reactor, descriptor

    def fileno(self) -> int:
        return self._descriptor

    def logPrefix(self) -> str:
        return "stdin"

    def doRead(self) -> None:
        try:
            data = os.read(self._descriptor, _BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.connectionLost(None)

    def connectionLost(self, reason: object) -> None:
        self._reactor.removeReader(self)
        if self._reactor.running:
            _log.info("standard input has ended: stopping with the parent process")
            self._reactor.callLater(0, self._stop)

    def _stop(self) -> None:
        with contextlib.suppress(ReactorNotRunning):  # it is stopping already, as after SIGTERM
            self._reactor.stop()
