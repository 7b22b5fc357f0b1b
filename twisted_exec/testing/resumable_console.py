"""
A console whose sessions can be resumed, as a client sees it: the protocol, without a machine.

:class:`ResumableConsole` is the factory of a :class:`~twisted_exec.testing.network.MemoryNetwork`'s
endpoint.  The test prints output, decides when the server sends an Ack, and lets sessions expire.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from twisted.internet.interfaces import IReactorTime
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.python.failure import Failure

from twisted_exec.api.status import APIError, Forbidden
from twisted_exec.streaming.http.websocket import ServerSocket, server_factory, start
from twisted_exec.streaming.interfaces import Break, Ending, Role, TerminalSize
from twisted_exec.streaming.remotecommand.message_carrier import ServerMessages
from twisted_exec.streaming.transports import swap_protocol
from twisted_exec.wire.channel import Channel
from twisted_exec.wire.endings import encode_ending
from twisted_exec.wire.errors import RemoteProtocolError
from twisted_exec.wire.marks import Ack, At, Attendance, Mark, Notice, encode_mark
from twisted_exec.wire.resize import Message, SizeDecoder
from twisted_exec.wire.resume import RESUME_HEADER, Position, Resumable, Resume, parse_request

Item = bytes | Break | Role | None


@dataclass
class _Session:
    """
    One user's session.

    :ivar keys: valid keys, each with the id of the session that it was issued for.
    :ivar settled: pieces of input; ``None`` after a restart of the server.
    """

    keys: dict[str, str]
    settled: int | None = 0
    connection: _Connection | None = None


class ResumableConsole(Factory):
    """
    The machine's end.

    :param agrees: lets clients resume their sessions, if they can.
    :param seconds: how long clients may resume a session, as the answer tells them.
    :ivar journals: everything that was printed, by epoch.
    :ivar oldest: offset of the first byte that is retained in the present journal.
    :ivar line: input in the order in which it reached the line.
    :ivar refusals: for the next requests: errors, or status codes, each with the seconds of its
        ``Retry-After``, or ``None``.
    :ivar greeting: marks that a faulty server sends first, instead of the right ones and the output
        so far.
    :ivar messages: messages to other users, in order.
    :ivar requests: the parsed headers of requests for a stream; ``None`` for a new session.
    :ivar heads: the first line and the headers of each request for a stream.
    :ivar state: the answer to requests for the screen in the form ``state``; ``None`` refuses them.
    :ivar answers: how many pings the clients have answered.
    """

    noisy = False

    def __init__(self, clock: IReactorTime, *, agrees: bool = True, seconds: int = 60) -> None:
        self.clock, self.agrees, self.seconds = clock, agrees, seconds
        self.epoch = f"{1:016x}"
        self.journals: dict[str, bytearray] = {self.epoch: bytearray()}
        self.oldest = 0
        self.line: list[Item] = []
        self.sizes: list[TerminalSize] = []
        self.messages: list[str] = []
        self.refusals: list[tuple[int, int | None] | APIError] = []
        self.greeting: bytes | None = None
        self.requests: list[Resume | None] = []
        self.heads: list[tuple[str, dict[str, str]]] = []
        self.connections: list[_Connection] = []
        self.sessions: list[_Session] = []
        self.state: dict[str, object] | None = None
        self.answers = 0
        self._issued = 0

    def buildProtocol(self, addr: object) -> Protocol:
        return _Asked(self)

    # For tests.

    @property
    def journal(self) -> bytearray:
        """The present journal."""
        return self.journals[self.epoch]

    @property
    def live(self) -> list[_Connection]:
        """The connections that a session uses at present."""
        return [each.connection for each in self.sessions if each.connection is not None]

    def print(self, data: bytes) -> None:
        """Print output."""
        self.journal.extend(data)
        for connection in self.live:
            connection.pump()

    def acknowledge(self) -> None:
        """Send an Ack over each connection."""
        for connection in self.live:
            connection.acknowledge()

    def notice(self, notice: Notice | str) -> None:
        """Send a message to each user."""
        mark = Notice(notice) if isinstance(notice, str) else notice
        for connection in self.live:
            connection.mark(mark)

    def ask(self) -> None:
        """Send a ping over each connection."""
        for connection in self.live:
            connection.carrier.ping()

    def attendance(self, attendance: Attendance) -> None:
        """Tell each user about the sessions, the writer and the recordings."""
        for connection in self.live:
            connection.mark(attendance)

    def end(self, ending: Ending) -> None:
        """End all sessions that have a connection."""
        for connection in self.live:
            connection.end(ending)

    def stop(self, reason: str) -> None:
        """Tell the clients that the server restarts; their sessions wait."""
        for connection in self.live:
            connection.stop(reason)

    def forget(self, offset: int) -> None:
        """Retain nothing before an offset."""
        self.oldest = max(self.oldest, min(offset, len(self.journal)))

    def expire(self) -> None:
        """End all sessions without a connection."""
        self.sessions = [each for each in self.sessions if each.connection is not None]

    def restart(self, *, new_journal: bool = False) -> None:
        """Lose all connections and counts, as a new server for the same machine."""
        for connection in self.live:
            connection.cut()
        for session in self.sessions:
            session.settled = None
        if new_journal:
            self.epoch = f"{len(self.journals) + 1:016x}"
            self.journals[self.epoch] = bytearray()
            self.oldest = 0

    # For connections.

    def issue(self) -> str:
        self._issued += 1
        return f"{self._issued:043d}"

    def session_of(self, resume: Resume) -> _Session | None:
        """Return the session that a key belongs to."""
        for session in self.sessions:
            if session.keys.get(resume.key) == resume.session:
                return session
        return None


class _Asked(Protocol):
    transport: Any

    def __init__(self, console: ResumableConsole) -> None:
        self._console, self._head = console, b""

    def dataReceived(self, data: bytes) -> None:
        self._head += data
        if b"\r\n\r\n" not in self._head:
            return
        first, *lines = self._head.split(b"\r\n\r\n")[0].decode("ascii").split("\r\n")
        headers = {name.lower(): value for name, value in (each.split(": ", 1) for each in lines)}
        if "upgrade" not in headers:
            self._show()
            return
        self._console.heads.append((first, headers))
        self._answer(headers)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Nothing was accepted, so nothing is lost."""

    def _answer(self, headers: dict[str, str]) -> None:
        console, value = self._console, headers.get(RESUME_HEADER.lower())
        if console.refusals:
            refusal = console.refusals.pop(0)
            if isinstance(refusal, APIError):
                self._send_refusal(refusal.to_status())
            else:
                self._refuse(*refusal)
            return
        try:
            resume = parse_request(value) if value is not None else None
        except RemoteProtocolError:
            self._refuse(400)
            return
        console.requests.append(resume)
        if resume is None:
            session = _Session({})
            console.sessions.append(session)
            epoch, offset = console.epoch, console.oldest
        else:
            match = console.session_of(resume)
            if match is None:
                self._refuse(404)
                return
            session, epoch, offset = match, resume.position.epoch, resume.position.offset
            if epoch == console.epoch and offset > len(console.journal):
                self._refuse(400)
                return
        self._accept(session, Position(epoch, offset), headers, resume, value is not None)

    def _accept(
        self,
        session: _Session,
        position: Position,
        headers: dict[str, str],
        resume: Resume | None,
        asks: bool,
    ) -> None:
        console = self._console
        name, key = f"s-{len(console.connections) + 1}", console.issue()
        answer = {"Audit-Id": name}
        if asks and console.agrees:
            answer[RESUME_HEADER] = Resumable(key, console.seconds).text()
        protocol = headers["sec-websocket-protocol"]
        socket = ServerSocket(headers["sec-websocket-key"], protocol, answer)
        connection = _Connection(console, session, position, is_marked=asks and console.agrees)
        connection.carrier = ServerMessages(socket, protocol, connection, console.clock)
        earlier, session.connection = session.connection, connection
        if earlier is not None:
            earlier.end(Ending("Resumed", "resumed over another connection"))
        session.keys = {key: name} | ({resume.key: resume.session} if resume is not None else {})
        connection.key = key
        console.connections.append(connection)
        factory = server_factory(console.clock, 1 << 20)
        protocol_of_socket: Any = start(socket, factory, connection.carrier, console.clock, 5)
        swap_protocol(self.transport, protocol_of_socket)
        protocol_of_socket.makeConnection(self.transport)

    def _show(self) -> None:
        if self._console.state is None:
            self._refuse(404)
            return
        body = json.dumps(self._console.state).encode()
        self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        self.transport.loseConnection()

    def _refuse(self, code: int, retry_after: int | None = None) -> None:
        status: dict[str, Any] = {"kind": "Status", "code": code, "message": f"refused with {code}"}
        if code == Forbidden.code:  # as our own servers decide
            status = Forbidden(status["message"]).to_status()
        self._send_refusal(
            status, b"" if retry_after is None else b"Retry-After: %d\r\n" % retry_after
        )

    def _send_refusal(self, status: dict[str, Any], more: bytes = b"") -> None:
        body = json.dumps(status).encode()
        self.transport.write(
            b"HTTP/1.1 %d X\r\n%sContent-Length: %d\r\n\r\n" % (status["code"], more, len(body))
            + body
        )
        self.transport.loseConnection()


class _Connection:
    carrier: ServerMessages
    key = ""

    def __init__(
        self, console: ResumableConsole, session: _Session, position: Position, *, is_marked: bool
    ) -> None:
        self._console, self._session, self._position = console, session, position
        self._is_marked = is_marked
        self._is_heard = self._left = False
        self._sizes = SizeDecoder()

    @property
    def _is_current(self) -> bool:
        return self._session.connection is self

    def mark(self, mark: Mark) -> None:
        if self._is_marked:
            self.carrier.send(Channel.RESIZE, encode_mark(mark))

    def acknowledge(self) -> None:
        self.mark(Ack(self._session.settled))

    def pump(self) -> None:
        console, at = self._console, self._position
        if at.epoch != console.epoch or at.offset < console.oldest:
            self._position = at = Position(console.epoch, console.oldest)
            self.mark(At(at, end=len(console.journal)))
        data = bytes(console.journal[at.offset :])
        self._position = Position(at.epoch, at.offset + len(data))
        self.carrier.send(Channel.STDOUT, data)

    def end(self, ending: Ending) -> None:
        self._leave()
        self.carrier.send_status(encode_ending(ending, self.carrier.protocol))
        self.carrier.close()

    def stop(self, reason: str) -> None:
        if self._is_current:
            self._session.connection = None
        self.acknowledge()
        self.carrier.restart(reason)

    def cut(self) -> None:
        if self._is_current:
            self._session.connection = None
        self.carrier.abort()

    def _leave(self) -> None:
        self._left = True
        if self._is_current:
            self._session.connection = None
            self._console.sessions.remove(self._session)

    # CarrierUser

    def connected(self) -> None:
        pass

    def opened(self) -> None:
        if self._console.greeting is not None:
            self.carrier.send(Channel.RESIZE, self._console.greeting)
            return
        self.acknowledge()
        if self._session.settled is None:
            self._session.settled = 0
        console, at = self._console, self._position
        if at.epoch == console.epoch and at.offset >= console.oldest:
            self.mark(At(at, end=len(console.journal)))
        self.pump()
        self.carrier.ping()

    def received(self, channel: Channel, data: bytes) -> None:
        self._hear()
        if not self._is_current:
            return
        if channel is Channel.STDIN:
            self._take(data, len(data))
        elif channel is Channel.RESIZE:
            for event in self._sizes.feed(data):
                if isinstance(event, TerminalSize):
                    self._console.sizes.append(event)
                elif isinstance(event, Message):
                    self._console.messages.append(event.text)
                else:
                    self._take(event, 1)

    def _take(self, item: Item, pieces: int) -> None:
        self._console.line.append(item)
        assert self._session.settled is not None
        self._session.settled += pieces

    def ended(self, channel: Channel) -> None:
        if channel is Channel.STDIN and self._is_current:
            self._take(None, 1)

    def pong_received(self) -> None:
        self._console.answers += 1
        self._hear()

    def _hear(self) -> None:
        if not self._is_heard and self._is_current:
            self._is_heard = True
            self._session.keys = {self.key: self._session.keys[self.key]}

    def failing(self, reason: str) -> None:
        self._leave()

    def close_received(self, code: int | None = None, reason: str = "") -> None:
        self._leave()

    def lost(self, reason: str) -> None:
        if self._is_current:
            self._session.connection = None
