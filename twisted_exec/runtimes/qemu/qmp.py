"""
QMP, QEMU's control protocol.

Source: QEMU, ``docs/interop/qmp-spec.rst``.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone
from twisted.internet.protocol import connectionDone
from twisted.protocols.basic import LineOnlyReceiver
from twisted.python.failure import Failure


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
