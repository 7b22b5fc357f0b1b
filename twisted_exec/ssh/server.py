"""
An SSH server for connections whose user is known: those on a pipe of the user's own process.

Nobody logs in: whoever has the pipe can run this program.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from twisted.conch.interfaces import IConchUser
from twisted.conch.ssh.keys import Key
from twisted.conch.ssh.userauth import SSHUserAuthServer
from twisted.cred.checkers import AllowAnonymousAccess
from twisted.cred.credentials import Anonymous
from twisted.cred.portal import IRealm, Portal
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure
from zope.interface import Interface, implementer

from twisted_exec.ssh.channel import Sessions
from twisted_exec.ssh.connection import Connection, User
from twisted_exec.ssh.door_keys import DoorKey
from twisted_exec.ssh.transport import ModernFactory, ModernTransport


class OneConnection(ModernFactory):
    """
    Makes the server's end of one connection.

    :ivar lost: fires when the connection is lost.
    """

    def __init__(self, key: Ed25519PrivateKey, sessions: Sessions, clock: IReactorTime) -> None:
        super().__init__(clock)
        self._key = DoorKey(Key(key))
        self.services = {b"ssh-userauth": _Login, b"ssh-connection": Connection}
        self.portal = Portal(_Realm(sessions, clock), [AllowAnonymousAccess()])
        self.protocol = _Transport
        self.lost: Deferred[None] = Deferred()

    def host_keys(self) -> Sequence[DoorKey]:
        return [self._key]


class _Transport(ModernTransport):
    ourVersionString = b"SSH-2.0-twisted_exec"

    def connectionLost(self, reason: Failure | None = None) -> None:
        super().connectionLost(reason)
        lost: Deferred[None] = self.factory.lost  # type: ignore[attr-defined]
        lost.callback(None)


class _Login(SSHUserAuthServer):
    transport: Any

    def serviceStarted(self) -> None:
        self.clock = self.transport.clock
        super().serviceStarted()
        self.supportedAuthentications.append(b"none")

    def auth_none(self, packet: bytes) -> Deferred[Any]:
        """Accept: the peer is the user's own ssh."""
        self.transport.logged_in()
        login: Deferred[Any] = self.portal.login(Anonymous(), None, IConchUser)
        return login


@implementer(IRealm)
class _Realm:
    def __init__(self, sessions: Sessions, clock: IReactorTime) -> None:
        self._sessions, self._clock = sessions, clock

    def requestAvatar(
        self, avatarId: object, mind: object, *interfaces: object
    ) -> tuple[type[Interface], object, Callable[[], None]]:
        return IConchUser, User(self._sessions, self._clock), lambda: None
