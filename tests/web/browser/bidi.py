"""
WebDriver BiDi: JSON messages over a WebSocket; https://w3c.github.io/webdriver-bidi/ describes them.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, Ping, Request, TextMessage

from .abstract_page import PageError

Message = dict[str, Any]


class BiDi(Protocol):
    """
    A connection to a browser.

    :param host: and port, for the handshake.
    :param listener: is called with the name and the parameters of each event.
    :ivar opened: fires when commands can be sent.
    """

    def __init__(self, host: str, listener: Callable[[str, Message], None]) -> None:
        self._host, self._listener = host, listener
        self._frames = WSConnection(ConnectionType.CLIENT)
        self._numbers = itertools.count(1)
        self._answers: dict[int, Deferred[Message]] = {}
        self._text: list[str] = []
        self.opened: Deferred[None] = Deferred()

    def call(self, method: str, **parameters: object) -> Deferred[Message]:
        """Send a command; fires with the result, or fails with :class:`PageError`."""
        number, answer = next(self._numbers), Deferred[Message]()
        self._answers[number] = answer
        message = json.dumps({"id": number, "method": method, "params": parameters})
        self._write(self._frames.send(TextMessage(message)))
        return answer

    def connectionMade(self) -> None:
        self._write(self._frames.send(Request(host=self._host, target="/session")))

    def dataReceived(self, data: bytes) -> None:
        self._frames.receive_data(data)
        for event in self._frames.events():
            if isinstance(event, AcceptConnection):
                self.opened.callback(None)
            elif isinstance(event, Ping):
                self._write(self._frames.send(event.response()))
            elif isinstance(event, TextMessage):
                self._text.append(event.data)
                if event.message_finished:
                    text, self._text = "".join(self._text), []
                    self._message_received(json.loads(text))

    def _message_received(self, message: Message) -> None:
        if message["type"] == "event":
            self._listener(message["method"], message["params"])
            return
        answer = self._answers.pop(message["id"])
        if message["type"] == "error":
            answer.errback(PageError(f"{message['error']}: {message['message']}"))
        else:
            answer.callback(message["result"])

    def _write(self, data: bytes) -> None:
        assert self.transport is not None
        self.transport.write(data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        answers, self._answers = self._answers, {}
        for answer in answers.values():
            answer.errback(PageError("the browser has ended"))
