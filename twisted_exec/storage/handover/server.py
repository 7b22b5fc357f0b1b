"""
The server of a store for predecessors: processes that used the same file before.

Only processes of the same user are served (``SO_PEERCRED``), because objects are secret and writes
need no permission.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IAddress, IListeningPort, IPushProducer
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from twisted_exec.api.encoded import json_of
from twisted_exec.api.status import APIError, BadRequest, InternalError, message_of
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
    object_of,
    resource_of,
)
from twisted_exec.storage.handover.place import SocketPlace, is_same_user
from twisted_exec.storage.history import History
from twisted_exec.storage.interfaces import (
    ADDED,
    DELETED,
    MODIFIED,
    Event,
    IStorage,
    Object,
    StorageError,
)
from twisted_exec.storage.writer import CURRENT, PROBE
from twisted_exec.wire.errors import RemoteProtocolError

MAX_REQUESTS = 512
_MAX_PREDECESSORS = 64
_STOP_SECONDS = 2.0


@implementer(IPushProducer)
class _Predecessor(Protocol):
    """One predecessor, and the producer of its transport."""

    transport: Any

    def __init__(self, server: StoreServer) -> None:
        self._server = server
        self._history, self._storage = server.history, server.storage
        self._decoder = Decoder()
        self._sent = -1
        """Version of the last change that was sent; negative before the first message."""
        self._is_live = self._is_paused = self._is_stopping = False
        self._items: Iterator[tuple[str, Object]] | None = None
        self._listed = 0
        self._answers: deque[Answer] = deque()
        """Answers that wait until the changes before them are sent."""
        self._requests = 0
        self._unfollow: Callable[[], None] = lambda: None

    def connectionMade(self) -> None:
        self._server.predecessors.add(self)
        if not self._server.is_trusted(self.transport):
            self._server.log.warn("another user connects to the socket of the store; refused")
            self.transport.abortConnection()
            return
        self.transport.registerProducer(self, True)

    def dataReceived(self, data: bytes) -> None:
        if self._is_stopping:
            return  # loseConnection reads on
        try:
            for message, body in self._decoder.feed(data):
                self._handle(message, body)
        except RemoteProtocolError as error:
            self._server.log.error("a predecessor broke the protocol: {why}", why=error)
            self.transport.abortConnection()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._unfollow()
        self._is_paused = True
        self._server.gone(self)

    def stop(self) -> None:
        self._is_stopping = True
        self.transport.pauseProducing()
        self._close_if_idle()

    # Requests

    def _handle(self, message: Message, body: bytes) -> None:
        if isinstance(message, Hello) and self._sent < 0 <= message.since:
            if message.protocol != PROTOCOL_VERSION:
                raise RemoteProtocolError(f"version {message.protocol} of the protocol is unknown")
            self._sent = message.since
            self._unfollow = self._history.follow(self._changed)
            self._catch_up()
        elif isinstance(message, Request) and self._sent >= 0:
            self._begin(message, body)
        else:
            raise RemoteProtocolError(f"{type(message).__name__} is not expected")

    def _begin(self, request: Request, body: bytes) -> None:
        self._requests += 1
        if self._requests >= MAX_REQUESTS:
            self.transport.pauseProducing()
        Deferred.fromCoroutine(self._execute(request, body)).addCallback(self._answer)

    async def _execute(self, request: Request, body: bytes) -> Answer:
        try:
            return Answer(request.number, await self._make(request, body))
        except APIError as refusal:
            return Answer(request.number, status=refusal.to_status())
        except RemoteProtocolError as error:
            return Answer(request.number, status=BadRequest(str(error)).to_status())
        except Exception:
            self._server.log.failure("a request of a predecessor failed")
            problem = InternalError("the store failed, see the log")
            return Answer(request.number, status=problem.to_status())

    async def _make(self, request: Request, body: bytes) -> int:
        storage = self._storage
        if request.change == PROBE:
            await storage.probe()
            return 0
        if request.change == CURRENT:
            return await storage.current()
        methods = {ADDED: storage.create, MODIFIED: storage.update, DELETED: storage.delete}
        if request.change not in methods:
            raise BadRequest(f"a store cannot do {request.change!r}")
        obj = await methods[request.change](resource_of(request.resource), object_of(body))
        return int(obj["metadata"]["resourceVersion"])

    def _answer(self, answer: Answer) -> None:
        self._requests -= 1
        if self._requests == MAX_REQUESTS - 1 and not self._is_stopping:
            self.transport.resumeProducing()
        if self._is_live:
            self._send(answer)
        else:
            self._answers.append(answer)
        self._close_if_idle()

    def _close_if_idle(self) -> None:
        if self._is_stopping and not self._requests and not self._answers:
            self.transport.unregisterProducer()
            self.transport.loseConnection()

    # Changes

    def _changed(self, table: str, event: Event | None) -> None:
        if event is None:
            self._is_live = False
            self._send_list()
            self._catch_up()
        elif self._is_live:
            self._report(table, event)

    def _report(self, table: str, event: Event) -> None:
        self._sent = event.version
        self._send(Change(table, event.type, event.version), json_of(event.obj))

    def _catch_up(self) -> None:
        while not self._is_paused and not self._is_live:
            if self._items is not None:
                self._send_item(self._items)
            elif self._sent != self._history.version:
                self._send_changes()
            else:
                self._is_live = True
                self._send(Current())
                while self._answers:
                    self._send(self._answers.popleft())
                self._close_if_idle()

    def _send_list(self) -> None:
        self._listed = self._history.version
        self._items = iter(self._history.without(()))
        self._send(ListBegin())

    def _send_item(self, items: Iterator[tuple[str, Object]]) -> None:
        item = next(items, None)
        if item is None:
            self._items, self._sent = None, self._listed
            self._send(ListEnd(self._listed))
        else:
            table, obj = item
            self._send(Item(table), json_of(obj))

    def _send_changes(self) -> None:
        try:
            changes = self._history.changes_after(self._sent)
        except APIError:  # forgotten, or the file is older than the predecessor's copy
            self._send_list()
            return
        for table, event in changes:
            # Not buffered: the rest is read from the history when the predecessor takes more.
            if self._is_paused:
                return
            self._report(table, event)

    def _send(self, message: Message, body: bytes = b"") -> None:
        self.transport.write(encode(message, body))

    # As a producer of changes

    def pauseProducing(self) -> None:
        self._is_paused, self._is_live = True, False

    def resumeProducing(self) -> None:
        self._is_paused = False
        if self._sent >= 0:
            self._catch_up()

    def stopProducing(self) -> None:
        self._is_paused = True


class StoreServer(Factory):
    """Serves predecessors; meanwhile no other process may use the store's file."""

    noisy = False
    log = Logger()

    def __init__(
        self,
        path: str,
        storage: IStorage,
        history: History,
        reactor: Any,
        *,
        is_trusted: Callable[[object], bool] = is_same_user,
    ) -> None:
        self.is_trusted = is_trusted
        self._path, self._reactor = path, reactor
        self.storage, self.history = storage, history
        self.predecessors: set[_Predecessor] = set()
        self._place: SocketPlace | None = None
        self._port: IListeningPort | None = None
        self._empty: Deferred[None] | None = None

    def start(self) -> None:
        """
        Listen at the socket of the store.

        :raises StorageError: it cannot listen.
        """
        self._place = SocketPlace(self._path)
        try:
            self._place.remove_stale()
            # Not a listening socket of the program, which it would hand over: each server opens
            # this socket after it has locked the store.
            self._port = self._reactor.listenUNIX(self._place.path, self, mode=0o600)
        except CannotListenError as error:
            self._place.close()
            why = message_of(error.socketError)
            raise StorageError(f"cannot listen beside the store {self._path}: {why}") from None
        except StorageError:
            self._place.close()
            raise

    def buildProtocol(self, addr: IAddress | None) -> Protocol | None:
        if len(self.predecessors) >= _MAX_PREDECESSORS:
            return None
        return _Predecessor(self)

    def gone(self, predecessor: _Predecessor) -> None:
        self.predecessors.discard(predecessor)
        if self._empty is not None and not self.predecessors:
            empty, self._empty = self._empty, None
            empty.callback(None)

    async def stop(self) -> None:
        """
        Stop listening; close the connections when their requests are answered, or after 2 seconds.
        """
        port, self._port = self._port, None
        if port is not None:
            await maybeDeferred(port.stopListening)
        if self.predecessors:
            empty = self._empty = Deferred[None]()
            for each in list(self.predecessors):
                each.stop()
            limit = self._reactor.callLater(_STOP_SECONDS, self._abort)
            await empty
            if limit.active():
                limit.cancel()
        if self._place is not None:
            self._place.close()

    def _abort(self) -> None:
        for each in list(self.predecessors):
            each.transport.abortConnection()
