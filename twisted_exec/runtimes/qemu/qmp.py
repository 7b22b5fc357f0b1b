"""
QMP, QEMU's control protocol: its messages, a machine's health, and pauses of silent machines.

Source: QEMU, ``docs/interop/qmp-spec.rst``.
"""

from __future__ import annotations

import contextlib
import json
from collections import deque
from collections.abc import Callable
from math import inf
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IDelayedCall
from twisted.internet.protocol import connectionDone
from twisted.protocols.basic import LineOnlyReceiver
from twisted.python.failure import Failure

from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.control.loop import PokedLoop
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.runtimes.interfaces import MachineFacts


class QMPError(Exception):
    """
    QEMU refused a command, or closed or violated the protocol.

    :param kind: QEMU's error class, such as ``DeviceNotFound``; empty without an answer.
    """

    def __init__(self, message: str, kind: str = "") -> None:
        super().__init__(message)
        self.kind = kind


class QMP(LineOnlyReceiver):
    """
    A QMP client.

    :ivar greeting: fires when commands may be sent; fails if QEMU refuses that, or closes the
        socket first.
    """

    delimiter = b"\n"
    MAX_LENGTH = 1 << 20
    transport: Any

    def __init__(self, on_event: Callable[[str, dict[str, Any]], None]) -> None:
        self._on_event = on_event
        self._answers: deque[Deferred[Any]] = deque()
        self.is_lost = False
        self.greeting: Deferred[None] = Deferred()

    def execute(self, command: str, **arguments: Any) -> Deferred[Any]:
        """
        Send a command.

        :return: fires with the ``return`` member of QEMU's answer; fails with :class:`QMPError`.
        """
        answer: Deferred[Any] = Deferred()
        if self.is_lost:
            answer.errback(QMPError("QEMU has closed its control socket"))
            return answer
        self._answers.append(answer)
        document: dict[str, Any] = {"execute": command}
        if arguments:
            document["arguments"] = arguments
        self.transport.write(json.dumps(document).encode() + b"\n")
        return answer

    def lineReceived(self, line: bytes) -> None:
        try:
            document = json.loads(line)
        except (ValueError, RecursionError):
            document = None
        if isinstance(document, dict):
            self._received(document)
        elif line.strip():
            self.transport.abortConnection()

    def _received(self, document: dict[str, Any]) -> None:
        if "QMP" in document:
            # QEMU refuses all other commands before this command (qmp-spec,
            # "Capabilities Negotiation").
            self.execute("qmp_capabilities").addCallbacks(self._ready, self._not_ready)
        elif "event" in document:
            data = document.get("data")
            self._on_event(str(document["event"]), data if isinstance(data, dict) else {})
        elif self._answers:
            # Answers come in the order of the commands, because out-of-band execution was not
            # negotiated.
            answer = self._answers.popleft()
            if "return" in document:
                answer.callback(document["return"])
            else:
                answer.errback(_error(document))

    def _ready(self, _: object) -> None:
        if not self.greeting.called:
            self.greeting.callback(None)

    def _not_ready(self, failure: Failure) -> None:
        if not self.greeting.called:
            self.greeting.errback(failure)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.is_lost = True
        answers, self._answers = self._answers, deque()
        for answer in answers:
            answer.errback(QMPError("QEMU has closed its control socket"))
        if not self.greeting.called:
            self.greeting.errback(Failure(ConnectionDone()))


def _error(document: dict[str, Any]) -> QMPError:
    error = document.get("error")
    if isinstance(error, dict):
        kind = str(error.get("class") or "")
        return QMPError(str(error.get("desc") or kind or error), kind)
    return QMPError("QEMU sent a reply without return or error")


_EVENT_INTERVAL_SECONDS = 10.0
_DISK_FULL = "DiskFull"
_MESSAGES = {
    _DISK_FULL: "the host has no space for the machine's disks: the machine is suspended, and resumes "
    "when there is space",
    "InternalError": "QEMU cannot continue (internal-error): power the machine off and on",
}


class GuestHealth:
    """
    Watches one machine and reports changes to its facts.

    Source: QEMU, ``qapi/run-state.json`` (``RunState``) and ``qapi/block-core.json``.
    """

    def __init__(
        self,
        ask: Callable[..., Any],
        facts: MachineFacts,
        reactor: Any,
        *,
        fall_back: Callable[[], bool],
        tidy: Callable[[], None],
        is_idle: Callable[[], bool] = lambda: False,
    ) -> None:
        self._ask = ask
        self._facts = facts
        self._reactor = reactor
        self._fall_back = fall_back
        self._tidy = tidy
        self._is_idle = is_idle
        self._trouble = ""
        self._loop = PokedLoop(self._look, reactor)
        self._every_seconds = 0.0
        self._over = False
        self._event_times: dict[str, float] = {}

    def start(self, every_seconds: float) -> None:
        self._over = False  # true after a failed attempt to start
        self._every_seconds = every_seconds
        self._loop.start()

    def stop(self) -> None:
        self._over = True
        self._loop.stop()

    def event_received(self, event: str, data: dict[str, Any]) -> None:
        # While the disk is full, each ``cont`` causes a RESUME that proves nothing.
        if event == "STOP" or (event == "RESUME" and self._trouble != _DISK_FULL):
            Deferred.fromCoroutine(self._query()).addErrback(lambda failure: None)
        elif event == "BLOCK_IO_ERROR" and data.get("action") != "stop":
            # QEMU reports an I/O error to the guest.
            why = str(data.get("reason") or "input/output error")
            self._post_limited("Warning", "DiskError", f"a disk failed: {why}")
        elif event == "RESET" and data.get("guest"):
            self._post_limited("Normal", "Reset", "the guest restarted")

    def _post_limited(self, type: str, reason: str, message: str) -> None:
        now = self._reactor.seconds()
        if now - self._event_times.get(reason, -_EVENT_INTERVAL_SECONDS) >= _EVENT_INTERVAL_SECONDS:
            self._event_times[reason] = now
            self._facts.event(type, reason, message)

    async def _look(self) -> float:
        if self._over:
            return inf
        await self._query()
        if self._trouble == _DISK_FULL:
            with contextlib.suppress(QMPError, ServiceUnavailable):
                await self._ask("cont")
        self._tidy()
        return self._every_seconds

    async def _query(self) -> None:
        try:
            status = (await self._ask("query-status")).get("status")
        except ServiceUnavailable as error:
            self._set(pb.MACHINE_RUNNING, "NotResponding", error.message)
            return
        except QMPError:
            return  # the machine is ending
        is_idle = status == "paused" and self._is_idle()
        if is_idle or status in ("running", "prelaunch", "shutdown"):
            self._set(pb.MACHINE_RUNNING, "", "")
        elif status == "io-error":
            self._suspended(_DISK_FULL)
        elif status == "internal-error":
            if self._over or self._fall_back():
                self._over = True
            else:
                self._suspended("InternalError")
        else:
            self._set(pb.MACHINE_SUSPENDED, "Paused", f"QEMU has stopped the machine: {status}")

    def _suspended(self, reason: str) -> None:
        self._set(pb.MACHINE_SUSPENDED, reason, _MESSAGES[reason])

    def _set(self, state: int, reason: str, message: str) -> None:
        if self._over or reason == self._trouble:
            return
        self._trouble = reason
        self._facts.changed(state, reason, message)
        if reason:
            self._facts.event("Warning", reason, message)
        else:
            self._facts.event("Normal", "Resumed", "the machine has resumed")


class IdlePause:
    """
    Pauses one machine whose serial port is silent; input resumes it.

    A guest that works without printing would stand still: this is for classes of boot loaders.

    :param seconds: of silence before a pause; 0 disables pauses.
    """

    def __init__(self, ask: Callable[..., Any], clock: Any, seconds: float) -> None:
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
