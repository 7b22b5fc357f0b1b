"""
Hand-over of this process: sockets and state at the start, SIGUSR2, and the stop.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping, MutableMapping
from typing import Any

from twisted.internet.defer import Deferred, TimeoutError

from twisted_exec.program.handover.activation import activated_sockets
from twisted_exec.program.handover.interfaces import (
    HANDOVER_SECONDS,
    LINGER_SECONDS,
    IHandsOver,
)
from twisted_exec.program.handover.lingering import Lingering
from twisted_exec.program.handover.predecessor import Predecessor, predecessor
from twisted_exec.program.handover.successor import Command, HandOver
from twisted_exec.program.handover.twistd import append_to_log
from twisted_exec.program.listening import LISTENING

_DRAIN_SECONDS = 5.0
_FAREWELL_SECONDS = 5.0
"""How much longer than its drain a predecessor may take to stop."""


class ProcessHandOver:
    """
    Both sides of hand-overs of this process.

    :param service: the program's service.
    :param options: the program's.
    :param twistd: twistd's, if this is twistd.
    :raises ValueError: there is a predecessor whose state cannot be continued.
    :raises EOFError: there was a predecessor, which has ended.
    """

    def __init__(
        self,
        program: str,
        service: Any,
        reactor: Any,
        options: Mapping[str, Any],
        twistd: MutableMapping[str, Any] | None,
    ) -> None:
        self._service, self._reactor, self._twistd = service, reactor, twistd
        self._drain_seconds: float = options.get("drain-seconds") or _DRAIN_SECONDS
        hands_over = IHandsOver(service, None)
        self._lingering = Lingering()
        self._hand_over = HandOver(
            hands_over,
            reactor,
            Command.own(),
            twistd,
            lingering=self._lingering,
            listening=LISTENING,
            linger_seconds=options.get("linger", LINGER_SECONDS),
            limit_seconds=options.get("handover-seconds", HANDOVER_SECONDS),
        )
        LISTENING.inherit(activated_sockets())
        self._predecessor = predecessor()
        if self._predecessor is not None:
            self._predecessor.take_over(program, hands_over, LISTENING)
            self._predecessor.attach(reactor, self._lingering)
        reactor.callWhenRunning(self._listen_to_signal)
        reactor.addSystemEventTrigger("before", "shutdown", self._stop)

    def _listen_to_signal(self) -> None:
        # A service that was made but not started, as by a tool that shows options, changes no process.
        is_debugged = self._twistd is not None and self._twistd.get("debug")
        if self._service.running and not is_debugged:
            signal.signal(
                signal.SIGUSR2, lambda *_: self._reactor.callFromThread(self._hand_over.begin)
            )

    def until_ready(self, ready: Deferred[None]) -> None:
        """
        Let a Deferred wait until a predecessor has left, after it has fired.

        :param ready: fires when the service is ready.
        """
        if self._predecessor is not None:
            ready.addCallback(self._take, self._predecessor)
        else:
            ready.addCallback(lambda _: LISTENING.close_unused())
        ready.addCallback(lambda _: self._hand_over.ready())

    async def _wait(self, predecessor: Predecessor) -> None:
        await predecessor.ready()
        append_to_log(self._twistd)
        self._hand_over.pidfile.take()
        self._reactor.addSystemEventTrigger("after", "shutdown", self._hand_over.pidfile.remove)

    def _take(self, _: None, predecessor: Predecessor) -> Deferred[None]:
        return Deferred.fromCoroutine(self._wait(predecessor))

    def _stop(self) -> Deferred[None]:
        """
        Stop a successor that is not ready, and the processes before this one that serve sessions.

        A process that was replaced has left those to its successor.
        """
        self._hand_over.abandon()
        if self._predecessor is not None:
            self._predecessor.stopping()
        limit = self._drain_seconds + _FAREWELL_SECONDS
        stopped = self._lingering.stop().addTimeout(limit, self._reactor)
        return stopped.addErrback(lambda why: why.trap(TimeoutError))
