"""
The processes that this one has replaced, and that still serve sessions.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Sequence
from typing import Any

from twisted.internet.defer import Deferred, succeed

from twisted_exec.program.handover.channel import STOP, Channel


class Lingering:
    """
    Channels to the processes before this one, the predecessor and those before it.

    A process passes them on to its successor, so that the newest process can stop all others.
    """

    def __init__(self) -> None:
        self._channels: list[Channel] = []
        self._none_left: list[Deferred[None]] = []

    def attach(self, reactor: Any, ends: Iterable[socket.socket]) -> None:
        """Watch the channels that a predecessor passed on, and own them."""
        for end in ends:
            self.add(Channel.over(reactor, end, _ignore, self.look))

    def add(self, channel: Channel) -> None:
        """Take note of a process that lingers; call :meth:`look` when its channel has closed."""
        self._channels.append(channel)

    def look(self) -> None:
        """Forget the processes that have ended."""
        self._channels = [each for each in self._channels if each.is_open]
        if not self._channels:
            waiting, self._none_left = self._none_left, []
            for each in waiting:
                each.callback(None)

    def descriptors(self) -> Sequence[int]:
        """Return the descriptors of the channels, for a successor."""
        return [each.transport.fileno() for each in self._channels]

    def leave(self) -> None:
        """Leave the processes to a successor, which has copies of the channels."""
        channels, self._channels = self._channels, []
        for each in channels:
            # An orderly close would shut the channels of the successor down, too.
            each.close()

    def stop(self) -> Deferred[None]:
        """
        Stop the processes.

        :return: fires when they have ended.
        """
        for each in self._channels:
            each.send({STOP: True})
        if not self._channels:
            return succeed(None)
        waiting: Deferred[None] = Deferred()
        self._none_left.append(waiting)
        return waiting


def _ignore(_: object) -> None:
    pass
