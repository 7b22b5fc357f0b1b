"""Lost network paths: connections to the next hop that no longer answers are reset early."""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Callable
from itertools import islice

from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger

from twisted_exec.streaming.splice import Splice
from twisted_exec.streaming.tcp_info import tcp_info

LOST_SECONDS = 10.0
"""A path is lost when the other kernel has answered nothing for this time."""

CHECK_SECONDS = 1.0
_PARTS = 5
"""Number of parts of the connections; each check takes one part."""

_TCP_INFO = struct.Struct("=2xB5x48xI")
"""``struct tcp_info`` of linux/tcp.h, for ``tcpi_retransmits`` and ``tcpi_last_ack_recv`` (milliseconds)."""


def unanswered_seconds(transport: object) -> float:
    """
    Return for how long the other kernel has not answered, although data was sent to it again.

    0 without such data, or without TCP.
    """
    return unanswered(tcp_info(transport))


def unanswered(info: bytes) -> float:
    """As :func:`unanswered_seconds`; ``info`` is the beginning of a ``struct tcp_info``."""
    if len(info) < _TCP_INFO.size:
        return 0.0
    retransmits, milliseconds = _TCP_INFO.unpack(info[: _TCP_INFO.size])
    return milliseconds / 1000 if retransmits else 0.0


class Paths:
    """
    The connections to the next hop of streams that can go on over another connection.

    A kernel gives a connection up after about a quarter of an hour, so this class checks them
    earlier (tcp(7), ``TCP_INFO``).  ``TCP_USER_TIMEOUT`` is not for this: it also ends the
    connection of a peer that answers, but takes no more.
    """

    _log = Logger()

    def __init__(
        self,
        clock: IReactorTime,
        unanswered_seconds: Callable[[object], float] = unanswered_seconds,
    ) -> None:
        self._unanswered_seconds = unanswered_seconds
        self._splices: OrderedDict[Splice, None] = OrderedDict()
        # Not a PokedLoop: a look reads memory only, so there is nothing to wait for or to repeat.
        self._checking = LoopingCall(self._check)
        self._checking.clock = clock

    def watch(self, splice: Splice) -> None:
        """Reset the connection to the machine of a splice when its path is lost."""
        self._splices[splice] = None
        if not self._checking.running:
            self._checking.start(CHECK_SECONDS, now=False)

    def forget(self, splice: Splice) -> None:
        self._splices.pop(splice, None)
        if not self._splices and self._checking.running:
            self._checking.stop()

    def _check(self) -> None:
        part = -(-len(self._splices) // _PARTS)
        for splice in list(islice(self._splices, part)):
            self._splices.move_to_end(splice)
            transport = splice.machine.transport
            if transport is None or splice.machine.gone:
                continue
            if self._unanswered_seconds(transport) >= LOST_SECONDS:
                self._log.info("the next hop at {peer} is out of reach", peer=transport.getPeer())
                transport.abortConnection()
