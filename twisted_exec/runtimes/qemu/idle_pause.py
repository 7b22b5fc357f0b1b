"""
Pauses of a virtual machine whose serial port is silent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.runtimes.qemu.qmp import QMPError


class IdlePause:
    """
    Pauses one machine whose serial port is silent; input resumes it.

    A guest that works without printing would stand still: this is for classes of boot loaders.

    :param seconds: of silence before a pause; 0 disables pauses.
    """

    def __init__(self, ask: Callable[..., Any], clock: IReactorTime, seconds: float) -> None:
        self._ask, self._clock, self._seconds = ask, clock, seconds
        self._timer: IDelayedCall | None = None
        self._last = 0.0
        self.is_paused = False

    def active(self) -> None:
        """Resume the machine after input or output of the port, and count the silence anew."""
        if not self._seconds:
            return
        self._last = self._clock.seconds()
        if self.is_paused:
            self.is_paused = False
            self._send("cont")
        if self._timer is None:
            self._timer = self._clock.callLater(self._seconds, self._due)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._seconds = 0.0

    def leave(self) -> Deferred[None] | None:
        """
        Pause now: this program leaves the machine alone, and the next one resumes it.

        :return: fires when QEMU has answered; close the connection only then, because QEMU ignores
            commands of a closed connection. ``None`` if there is nothing to do.
        """
        sending = self._send("stop") if self._seconds and not self.is_paused else None
        self.stop()
        return sending

    def _due(self) -> None:
        self._timer = None
        left = self._last + self._seconds - self._clock.seconds()
        if left > 0:
            self._timer = self._clock.callLater(left, self._due)
        else:
            self.is_paused = True
            self._send("stop")

    def _send(self, command: str) -> Deferred[None]:
        # Commands are carried out in their order.  A QEMU that refuses them is ending, or hangs: its
        # health is watched elsewhere.
        sending = Deferred.fromCoroutine(self._ask(command))
        return sending.addErrback(
            lambda failure: failure.trap(QMPError, ServiceUnavailable) and None
        )
