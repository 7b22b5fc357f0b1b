"""
The client through which a predecessor goes on with its store.

It connects again, for :data:`LOST_SECONDS`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime, IStreamClientEndpoint
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from twisted_exec.api.encoded import json_of
from twisted_exec.api.status import GatewayTimeout, ServiceUnavailable, message_of
from twisted_exec.storage import history
from twisted_exec.storage.handover.messages import (
    PROTOCOL_VERSION,
    Answer,
    Change,
    Current,
    Decoder,
    Hello,
    Item,
    ListBegin,
    ListEnd,
    Message,
    Request,
    encode,
    error_of,
    object_of,
)
from twisted_exec.storage.handover.place import is_same_user
from twisted_exec.storage.history import History
from twisted_exec.storage.interfaces import ADDED, DELETED, MODIFIED, Event, Object
from twisted_exec.storage.writer import CURRENT, PROBE, Write
from twisted_exec.wire.errors import RemoteProtocolError

LOST_SECONDS = 10.0
"""How long the successor may be out of reach."""
ANSWER_SECONDS = 10.0
"""After so long without an answer, at most twice as long, the connection counts as lost."""

_FIRST_RETRY_SECONDS, _LONGEST_RETRY_SECONDS = 0.05, 0.5
_WAITING_WRITES = 10_000


@dataclass
class _Sent:
    """A write that waits for its answer, and the changes of its object meanwhile, by version."""

    write: Write
    changes: dict[int, Object] = field(default_factory=dict)


class _Connection(Protocol):
    transport: Any

    def __init__(self, client: SuccessorClient) -> None:
        self._client = client
        self._decoder = Decoder()

    def connectionMade(self) -> None:
        if not self._client.is_trusted(self.transport):
            self._client.log.error("another user listens at the socket of the store; not trusted")
            self.transport.abortConnection()
            return
        self.send(Hello(PROTOCOL_VERSION, self._client.history.version))

    def dataReceived(self, data: bytes) -> None:
        try:
            for message, body in self._decoder.feed(data):
                self._client.received(message, body)
        except RemoteProtocolError as error:
            self._client.log.error("the successor broke the protocol: {why}", why=error)
            self.transport.abortConnection()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._client.connection_lost(self)

    def send(self, message: Message, body: bytes = b"") -> None:
        self.transport.write(encode(message, body))


class SuccessorClient:
    """
    Follows the store of the successor, and writes to it.

    :param copy: the history to keep current; it is as new as the store's file was.
    """

    log = Logger()

    def __init__(
        self,
        copy: History,
        endpoint: IStreamClientEndpoint,
        clock: IReactorTime,
        *,
        is_trusted: Callable[[object], bool] = is_same_user,
    ) -> None:
        self.is_trusted = is_trusted
        self.history, self._endpoint, self._clock = copy, endpoint, clock
        self._waiting: deque[Write] = deque()
        self._sent: dict[int, _Sent] = {}
        self._number = 0
        self._list: list[tuple[str, Object]] | None = None
        self._connection: _Connection | None = None
        self._is_current = False
        self._ended: Deferred[None] | None = None  # the present connection
        self._limit: IDelayedCall | None = None  # until the successor is lost
        self._answers_due: IDelayedCall | None = None
        self._connecting: Deferred[None] | None = None
        self._lost: Deferred[str] = Deferred()
        self._problem = ""
        self._retry_seconds = _FIRST_RETRY_SECONDS

    def start(self) -> Deferred[str]:
        """
        Connect.

        :return: fires with the reason when the successor is lost for good, or at :meth:`stop`;
            writes fail then.
        """
        self._disconnected()
        self._connecting = Deferred.fromCoroutine(self._stay_connected())
        self._connecting.addErrback(self._failed)
        return self._lost

    def add(self, write: Write) -> None:
        """Make a write, now or when the successor is in reach."""
        if self._problem:
            write.done.errback(ServiceUnavailable(self._problem))
        elif len(self._waiting) + len(self._sent) >= _WAITING_WRITES:
            write.done.errback(
                ServiceUnavailable("too many writes are waiting", retry_after_seconds=1)
            )
        elif self._is_current:
            self._send(write)
        else:
            self._waiting.append(write)

    def stop(self) -> None:
        """Disconnect; writes without an answer fail."""
        self._give_up("the store is closed")

    # Connections

    async def _stay_connected(self) -> None:
        factory = Factory.forProtocol(lambda: _Connection(self))
        factory.noisy = False
        while True:
            try:
                connection = await self._endpoint.connect(factory)
            except CancelledError:
                raise
            except Exception as error:
                self.log.debug("no successor yet: {why}", why=message_of(error))
            else:
                assert isinstance(connection, _Connection), "the factory makes nothing else"
                self._connection, self._ended = connection, Deferred()
                await self._ended
            await deferLater(self._clock, self._retry_seconds)
            self._retry_seconds = min(self._retry_seconds * 2, _LONGEST_RETRY_SECONDS)

    def connection_lost(self, connection: _Connection) -> None:
        ended, self._ended = self._ended, None
        self._connection, self._list = None, None
        self._disconnected()
        if ended is not None:
            ended.callback(None)

    def _disconnected(self) -> None:
        self._is_current = False
        _cancel(self._answers_due)
        sent, self._sent = self._sent, {}
        for each in sent.values():
            each.write.done.errback(
                GatewayTimeout(
                    "the store did not say whether it has written this: look before trying again",
                    retry_after_seconds=1,
                )
            )
        if not self._problem and (self._limit is None or not self._limit.active()):
            why = "the process that took this one's place cannot be reached"
            self._limit = self._clock.callLater(LOST_SECONDS, self._give_up, why)

    def _give_up(self, why: str) -> None:
        if self._problem:
            return
        self._problem = why
        _cancel(self._limit)
        if self._connecting is not None:
            self._connecting.cancel()
        if self._connection is not None:
            self._connection.transport.abortConnection()
        self._disconnected()
        waiting, self._waiting = self._waiting, deque()
        for each in waiting:
            each.done.errback(ServiceUnavailable(why))
        self._lost.callback(why)

    def _failed(self, failure: Failure) -> None:
        if not failure.check(CancelledError):
            self.log.failure("following the successor failed", failure)
            self._give_up("the store failed, see the log")

    # Messages

    def received(self, message: Message, body: bytes) -> None:
        """
        Handle a message of the successor.

        :raises RemoteProtocolError: it is not valid.
        """
        if isinstance(message, Change):
            self._apply(message, body)
        elif isinstance(message, Answer):
            self._answer(message)
        elif isinstance(message, ListBegin):
            self._list = []
        elif isinstance(message, Item) and self._list is not None:
            self._list.append((message.table, object_of(body)))
        elif isinstance(message, ListEnd) and self._list is not None:
            listed, self._list = self._list, None
            self.history.start_over(listed, message.version)
        elif isinstance(message, Current):
            self._current()
        else:
            raise RemoteProtocolError(f"{type(message).__name__} is not expected")

    def _current(self) -> None:
        self._is_current, self._retry_seconds = True, _FIRST_RETRY_SECONDS
        _cancel(self._limit)
        waiting, self._waiting = self._waiting, deque()
        for write in waiting:
            self._send(write)

    def _apply(self, change: Change, body: bytes) -> None:
        if change.version <= self.history.version:
            raise RemoteProtocolError(f"change {change.version} was reported before")
        obj = object_of(body)
        key = history.key_of(obj)
        event = Event(change.type, obj, self.history.at(change.table, key), change.version)
        is_known = event.previous is not None
        if change.type not in (ADDED, MODIFIED, DELETED) or is_known == (change.type == ADDED):
            raise RemoteProtocolError(f"change {change.version} does not fit the copy")
        for each in self._sent.values():
            write = each.write
            if write.change not in (CURRENT, PROBE) and history.key_of(write.obj) == key:
                each.changes[change.version] = obj
        self.history.apply(change.table, event)

    def _send(self, write: Write) -> None:
        if self._connection is None:
            self._waiting.append(write)
            return
        self._number += 1
        self._sent[self._number] = _Sent(write)
        is_read = write.change in (CURRENT, PROBE)
        body = b"" if is_read else json_of(write.obj)
        self._connection.send(Request(self._number, write.change, asdict(write.resource)), body)
        if self._answers_due is None or not self._answers_due.active():
            self._expect_answers()

    def _answer(self, answer: Answer) -> None:
        sent = self._sent.pop(answer.number, None)
        if sent is None:
            raise RemoteProtocolError(f"an answer to no request: {answer.number}")
        write = sent.write
        if answer.status is not None:
            write.done.errback(error_of(answer.status))
        elif write.change in (CURRENT, PROBE):
            write.done.callback({})
        else:
            # A list may have taken the place of the change.
            obj = sent.changes.get(answer.version)
            write.done.callback(obj or history.versioned(write.obj, answer.version))

    def _expect_answers(self) -> None:
        latest = self._number
        self._answers_due = self._clock.callLater(ANSWER_SECONDS, self._look_for_answers, latest)

    def _look_for_answers(self, latest: int) -> None:
        if any(number <= latest for number in self._sent):
            if self._connection is not None:
                self._connection.transport.abortConnection()
        elif self._sent:
            self._expect_answers()


def _cancel(call: IDelayedCall | None) -> None:
    if call is not None and call.active():
        call.cancel()
