"""
An SSH server for connections whose user is known: those on a pipe of the user's own process.

Nobody logs in: whoever has the pipe can run this program.  The key exchange, ciphers and MACs are
Conch's, without those that ssh-audit calls weak.  Conch has neither AES-GCM nor encrypt-then-MAC nor strict key exchange,
which a server on a network would need.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from twisted.conch.error import ConchError
from twisted.conch.interfaces import IConchUser
from twisted.conch.ssh.connection import (
    OPEN_ADMINISTRATIVELY_PROHIBITED,
    OPEN_RESOURCE_SHORTAGE,
    OPEN_UNKNOWN_CHANNEL_TYPE,
    SSHConnection,
)
from twisted.conch.ssh.factory import SSHFactory
from twisted.conch.ssh.keys import Key
from twisted.conch.ssh.transport import SSHServerTransport
from twisted.conch.ssh.userauth import SSHUserAuthServer
from twisted.cred.checkers import AllowAnonymousAccess
from twisted.cred.credentials import Anonymous
from twisted.cred.portal import IRealm, Portal
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure
from zope.interface import Interface, implementer

from twisted_exec.ssh.channel import NO_FORWARDING, SessionChannel, Sessions

MOST_SESSIONS = 10
"""Sessions of one connection at a time, as ``MaxSessions`` of OpenSSH's server."""
LOGIN_SECONDS = 60

KEY_EXCHANGES = (
    b"mlkem768x25519-sha256",
    b"curve25519-sha256",
    b"curve25519-sha256@libssh.org",
)
CIPHERS = (b"aes256-ctr", b"aes192-ctr", b"aes128-ctr")
MACS = (b"hmac-sha2-512", b"hmac-sha2-256")

_FORWARDED = (b"direct-tcpip", b"direct-streamlocal@openssh.com")


class OneConnection(SSHFactory):
    """
    Makes the server's end of one connection.

    :ivar lost: fires when the connection is lost.
    """

    noisy = False
    primes = None

    def __init__(self, key: Ed25519PrivateKey, sessions: Sessions, clock: IReactorTime) -> None:
        host_key = Key(key)
        self.publicKeys = {host_key.sshType(): host_key.public()}
        self.privateKeys = {host_key.sshType(): host_key}
        self.services = {b"ssh-userauth": _Login, b"ssh-connection": _Connection}
        self.portal = Portal(_Realm(sessions, clock), [AllowAnonymousAccess()])
        self.protocol = _Transport
        self.lost: Deferred[None] = Deferred()


class _Transport(SSHServerTransport):
    ourVersionString = b"SSH-2.0-twisted_exec"
    supportedCiphers = [*CIPHERS]
    supportedMACs = [*MACS]
    supportedCompressions = [b"none"]
    supportedKeyExchanges = [
        each for each in KEY_EXCHANGES if each in SSHServerTransport.supportedKeyExchanges
    ]

    def connectionLost(self, reason: Failure | None = None) -> None:
        super().connectionLost(reason)
        lost: Deferred[None] = self.factory.lost  # type: ignore[attr-defined]
        lost.callback(None)


class _Login(SSHUserAuthServer):
    loginTimeout = LOGIN_SECONDS

    def serviceStarted(self) -> None:
        super().serviceStarted()
        self.supportedAuthentications.append(b"none")

    def auth_none(self, packet: bytes) -> Deferred[Any]:
        """Accept: the peer is the user's own ssh."""
        login: Deferred[Any] = self.portal.login(Anonymous(), None, IConchUser)
        return login


@implementer(IRealm)
class _Realm:
    def __init__(self, sessions: Sessions, clock: IReactorTime) -> None:
        self._sessions, self._clock = sessions, clock

    def requestAvatar(
        self, avatarId: object, mind: object, *interfaces: object
    ) -> tuple[type[Interface], object, Callable[[], None]]:
        return IConchUser, _User(self._sessions, self._clock), lambda: None


@implementer(IConchUser)
class _User:
    def __init__(self, sessions: Sessions, clock: IReactorTime) -> None:
        self._sessions, self._clock = sessions, clock
        self.conn: Any = None  # Conch sets it

    def lookupChannel(
        self, channelType: bytes, windowSize: int, maxPacket: int, data: bytes
    ) -> SessionChannel:
        if channelType in _FORWARDED:
            raise ConchError(NO_FORWARDING, OPEN_ADMINISTRATIVELY_PROHIBITED)
        if channelType != SessionChannel.name or not maxPacket:
            raise ConchError("there are only sessions", OPEN_UNKNOWN_CHANNEL_TYPE)
        if len(self.conn.channels) >= MOST_SESSIONS:
            why = f"a connection has at most {MOST_SESSIONS} sessions at a time"
            raise ConchError(why, OPEN_RESOURCE_SHORTAGE)
        return SessionChannel(
            self._sessions,
            self._clock,
            remoteWindow=windowSize,
            remoteMaxPacket=maxPacket,
            data=data,
            avatar=self,
        )

    def lookupSubsystem(self, subsystem: bytes, data: bytes) -> None:
        return None

    def gotGlobalRequest(self, requestType: bytes, data: bytes) -> bool:
        return False  # such as forwarding of ports


class _Connection(SSHConnection):
    def adjustWindow(self, channel: Any, bytesToAdd: int) -> None:
        if not channel.withholds_window():
            super().adjustWindow(channel, bytesToAdd)
