"""
The connections of the door: each logs in, and then has sessions, until one side ends it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial
from typing import Any

from twisted.conch.interfaces import IConchUser
from twisted.conch.ssh.transport import (
    DISCONNECT_BY_APPLICATION,
    DISCONNECT_TOO_MANY_CONNECTIONS,
)
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from twisted_exec.program.turns import SharedTurns, ShortTurns
from twisted_exec.ssh.connection import Connection, User
from twisted_exec.ssh.key_exchange import EXCHANGES
from twisted_exec.ssh.login import PublicKeyLogin
from twisted_exec.ssh.people import Credential, IPeople, LoginRefused, Person
from twisted_exec.ssh.transport import HostKey, ModernFactory, ModernTransport
from twisted_exec.ssh.user_certificate import credential_text
from twisted_exec.sshd.bounded_log import BoundedLog
from twisted_exec.sshd.door_login import DoorLogin, check_person
from twisted_exec.sshd.limits import EVICTED, Admission, Limits
from twisted_exec.sshd.metrics import DoorMetrics, Refusal
from twisted_exec.sshd.sessions import DoorSessions
from twisted_exec.tls.turns import IFramed, origin_of

STRANGERS_SHARE = 0.25
"""The largest part of the time for all who have not logged in: an exchange of keys takes as much as hundreds of keys."""
_log = Logger()
UNKNOWN = "nobody has this key"
"""In the log, once for a connection that has shown only such keys."""

FAREWELL_SECONDS = 0.3
"""Time for sessions that the door ends to print why."""

CLOSING_SECONDS = 2.0
"""Time for a client to read the last message, and to close the connection."""
MOST_CLOSING = 100
"""Connections that wait for that; a further one ends the oldest of them."""


class Phase(Enum):
    """The phases of a connection."""

    STRANGER = "stranger"
    """It has not logged in."""
    OPEN = "open"
    ENDING = "ending"
    """The door ends it; its sessions print why."""
    CLOSING = "closing"
    """The last message is sent; what the client sends is dropped."""
    OVER = "over"


@implementer(IFramed)
class DoorConnection(ModernTransport):
    """
    One connection.

    :ivar origin: the address of the client, see :func:`~twisted_exec.tls.turns.origin_of`.
    """

    factory: Door

    def __init__(self, host_keys: Sequence[HostKey], clock: IReactorTime) -> None:
        super().__init__(host_keys, clock)
        self.phase = Phase.STRANGER
        self.origin = self.source_address = ""
        self.person: Person | None = None
        self.sessions: DoorSessions | None = None
        self._early: list[bytes] = []  # of a stranger, until its turn
        self._has_offered = False
        self.unknown: Credential | None = None  # the last key that nobody has

    # Of the transport.

    def connectionMade(self) -> None:
        door, peer = self.factory, self.transport.getPeer()
        self.origin = origin_of(peer)
        self.source_address = getattr(peer, "host", "")
        self.login_seconds = door.login_seconds
        self.supportedKeyExchanges = [*door.exchanges]
        super().connectionMade()
        if refusal := door.admission.enter(self):
            door.metrics.refused(Refusal.CONNECTIONS)
            door.strangers_log.info(
                "a connection from {address} is refused: {why}",
                address=self.source_address,
                why=refusal,
            )
            self._close(refusal, DISCONNECT_TOO_MANY_CONNECTIONS)
            return
        door.connections[self] = None

    def sendKexInit(self) -> None:
        if self._has_offered:
            super().sendKexInit()

    def dataReceived(self, data: bytes) -> None:
        if self.phase is Phase.STRANGER:
            self._early.append(data)
            self.transport.pauseProducing()
            self.factory.turns.soon(self._take_turn, self.origin)
        elif self.phase is Phase.OPEN or self.phase is Phase.ENDING:
            super().dataReceived(data)

    def _take_turn(self) -> None:
        """Handle what a stranger has sent, such as the exchange of keys."""
        early, self._early = b"".join(self._early), []
        if not self._has_offered:
            self._has_offered = True  # not before: most of what connects says nothing
            self.sendKexInit()
        super().dataReceived(early)
        if self.phase is not Phase.OVER:
            self.transport.resumeProducing()

    def frame_rest(self, size: int) -> int | None:
        """See :class:`IFramed`; strangers have turns of their own."""
        return None if self.phase is Phase.STRANGER else self.missing_bytes

    def connectionLost(self, reason: Failure | None = None) -> None:
        if self.phase is Phase.OVER:
            return
        self.phase = Phase.OVER
        if self.person is not None:
            _log.info(
                "the connection of {user} from {address} is over",
                user=self.person.user,
                address=self.source_address,
            )
        elif self.unknown is not None:
            self.factory.refused(self.unknown, UNKNOWN, self)
        self.factory.turns.cancel(self._take_turn)
        self.factory.left(self)
        super().connectionLost(reason)

    # Of the login.

    def _too_late(self) -> None:
        self.factory.metrics.refused(Refusal.GRACE)
        super()._too_late()

    def evict(self) -> None:
        self.factory.metrics.refused(Refusal.EVICTED)
        self.end(EVICTED)

    def serve(self, person: Person, target: str) -> DoorSessions:
        """
        Begin to serve a user.

        :raises LoginRefused: the user may not enter.
        """
        check_person(person)
        door, user = self.factory, person.user
        if refusal := door.admission.log_in(user):
            door.metrics.refused(Refusal.USER)
            raise LoginRefused(refusal)
        door.admission.leave(self)
        self.sessions = DoorSessions(
            door.login,
            person,
            target,
            door.reactor,
            lambda: door.admission.begin(user),
            lambda: door.admission.end(user),
            door.users_log,
        )
        self.phase, self.person = Phase.OPEN, person
        door.metrics.logged_in()
        _log.info(
            "{user} has logged in from {address} with the key {key}{certificate}",
            user=user,
            address=self.source_address,
            key=person.fingerprint,
            certificate=f" and the certificate {person.certificate}" if person.certificate else "",
        )
        return self.sessions

    # The end.

    def end(self, line: str, code: int = DISCONNECT_BY_APPLICATION) -> None:
        """End the sessions and the connection, within a second; the user reads why."""
        if self.phase not in (Phase.STRANGER, Phase.OPEN):
            return
        self.phase = Phase.ENDING
        sessions = self.sessions
        if sessions is None or not sessions.count:
            self._close(line, code)
            return
        sessions.end(line)
        self._timer("farewell", FAREWELL_SECONDS, partial(self._close, line, code))

    def sendDisconnect(self, reason: int, desc: bytes | str) -> None:
        """End the connection for an error of the protocol."""
        self._close(desc if isinstance(desc, str) else desc.decode("utf-8", "replace"), reason)

    def _close(self, line: str, code: int) -> None:
        if self.phase in (Phase.CLOSING, Phase.OVER):
            return
        super().sendDisconnect(code, line.encode())

    def _end(self) -> None:
        self.phase = Phase.CLOSING
        self.factory.turns.cancel(self._take_turn)
        self._is_over = True
        self.transport.unregisterProducer()
        # The client closes the connection: a close by the door, while the client still sends, would take the last
        # message away.
        self.transport.loseWriteConnection()
        self.transport.resumeProducing()
        self._timer("end", CLOSING_SECONDS, self.transport.abortConnection)
        self.factory.admission.leave(self)
        self.factory.closing(self)


class Door(ModernFactory):
    """
    Makes the connections, and watches over them.

    :param exchanges: names of key exchanges, the best one first.
    :ivar connections: those that were admitted, the oldest first.
    """

    def __init__(
        self,
        login: DoorLogin,
        people: IPeople,
        limits: Limits,
        metrics: DoorMetrics,
        reactor: Any,
        *,
        keys: Callable[[], Sequence[HostKey]],
        login_seconds: float,
        exchanges: Sequence[bytes] = (*EXCHANGES,),
        now: Callable[[], float] = time.time,
    ) -> None:
        self.login, self.people, self.reactor, self.metrics = login, people, reactor, metrics
        self.admission = Admission(limits)
        self.turns = SharedTurns(reactor, STRANGERS_SHARE)
        self.login_seconds, self.now, self._keys = login_seconds, now, keys
        self.exchanges = exchanges
        self.connections: dict[DoorConnection, None] = {}
        self._closing: dict[DoorConnection, None] = {}
        self.strangers_log, self.users_log = BoundedLog(reactor), BoundedLog(reactor)
        super().__init__(reactor)
        self.protocol = DoorConnection
        self.services = {
            b"ssh-userauth": lambda: PublicKeyLogin(people, self, now),  # type: ignore[dict-item]
            b"ssh-connection": Connection,
        }

    def host_keys(self) -> Sequence[HostKey]:
        return self._keys()

    def enter(
        self, person: Person, target: str, transport: ModernTransport
    ) -> tuple[IConchUser, Callable[[], None]]:
        """See :class:`~twisted_exec.ssh.login.Entrance`."""
        assert isinstance(transport, DoorConnection)
        sessions = transport.serve(person, target)
        return User(sessions, self.reactor), lambda: None

    def refused(
        self, credential: Credential, why: str, transport: ModernTransport, user: str = ""
    ) -> None:
        """See :class:`~twisted_exec.ssh.login.Entrance`; a client may show several keys until one is known."""
        assert isinstance(transport, DoorConnection)
        if not why:
            transport.unknown = credential
            return
        transport.unknown = None
        is_known = why != UNKNOWN
        self.metrics.failed(is_known)
        log = self.users_log if is_known else self.strangers_log
        log.info(
            "ssh login from {address} refused: {why} ({credential})",
            address=credential.source_address,
            why=why,
            credential=credential_text(credential, user),
        )

    def closing(self, connection: DoorConnection) -> None:
        """Take note of a connection whose client has to close it."""
        if len(self._closing) >= MOST_CLOSING:
            next(iter(self._closing)).transport.abortConnection()
        self._closing[connection] = None

    def left(self, connection: DoorConnection) -> None:
        """Forget a connection that is over."""
        self.connections.pop(connection, None)
        self._closing.pop(connection, None)
        self.admission.leave(connection)
        if connection.person is not None:
            self.admission.log_out(connection.person.user)

    async def review(self) -> None:
        """End the connections of users whose login has ended."""
        turns = ShortTurns(self.reactor, is_urgent=True)
        for connection in list(self.connections):
            await turns.breathe()
            person = connection.person
            if person is None or connection.phase is not Phase.OPEN:
                continue
            if reason := self.people.reason_to_end(person, self.now()):
                _log.info("{user}: {reason}", user=person.user, reason=reason)
                self.metrics.refused(Refusal.WITHDRAWN)
                connection.end(reason)

    def end_all(self, line: str) -> None:
        """End all connections; the users read why."""
        for connection in list(self.connections):
            connection.end(line)

    def abort_all(self) -> None:
        """End all connections now."""
        for connection in list(self.connections):
            connection.transport.abortConnection()
