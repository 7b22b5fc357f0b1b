"""
The Chrome DevTools Protocol over pipes: JSON messages that each end with a zero byte.

Chromium reads them from descriptor 3 and writes them to descriptor 4
(``--remote-debugging-pipe``).  It ends when the pipes close, so a killed test leaves no browser.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from tests.flows.programs import Program

from .abstract_page import PageError

READ, WRITE = 3, 4
"""Descriptors of Chromium."""
DESCRIPTORS: dict[int, str | int] = {0: "w", 1: "r", 2: "r", READ: "w", WRITE: "r"}

Message = dict[str, Any]
Listener = Callable[[str, Message], None]


class DevToolsError(PageError):
    """The browser refused a command, or the page threw an exception."""


class BrowserEndedError(Exception):
    """The browser ended before it answered."""


class DevTools(Program):
    """A connection to a browser, which is the program."""

    def __init__(self, argv: Sequence[str]) -> None:
        super().__init__(argv)
        self._received_bytes = bytearray()
        self._numbers = itertools.count(1)
        self._answers: dict[int, Deferred[Message]] = {}
        self._listeners: dict[str, Listener] = {}

    def listen(self, session: str, listener: Listener) -> None:
        """Pass the events of a session on; the session ``""`` is the browser's own."""
        self._listeners[session] = listener

    def call(self, method: str, session: str = "", **parameters: object) -> Deferred[Message]:
        """
        Send a command.

        :return: fires with the result; fails with :class:`DevToolsError` or
            :class:`BrowserEndedError`.
        """
        answer: Deferred[Message] = Deferred()
        if self.exit_code is not None:
            answer.errback(self._error())
            return answer
        number = next(self._numbers)
        self._answers[number] = answer
        message: Message = {"id": number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        assert self.transport is not None
        self.transport.writeToChild(READ, json.dumps(message).encode() + b"\0")
        return answer

    def childDataReceived(self, childFD: int, data: bytes) -> None:
        if childFD != WRITE:
            super().childDataReceived(childFD, data)
            return
        self._received_bytes += data
        if b"\0" not in data:
            return
        *messages, rest = self._received_bytes.split(b"\0")
        self._received_bytes = rest
        for message in messages:
            self._message_received(json.loads(message))

    def _message_received(self, message: Message) -> None:
        if "id" not in message:
            listener = self._listeners.get(message.get("sessionId", ""))
            if listener is not None:
                listener(message["method"], message["params"])
            return
        answer = self._answers.pop(message["id"])
        if "error" in message:
            answer.errback(DevToolsError(message["error"]["message"]))
        else:
            answer.callback(message["result"])

    def resume(self, size: int) -> None:
        """Read again, after :meth:`pause`, and forget whoever listened before it."""
        self._listeners.clear()
        super().resume(size)

    def processEnded(self, reason: Failure) -> None:
        super().processEnded(reason)
        answers, self._answers = self._answers, {}
        for answer in answers.values():
            answer.errback(self._error())

    def _error(self) -> BrowserEndedError:
        return BrowserEndedError(self.output[-10_000:].decode(errors="replace"))
