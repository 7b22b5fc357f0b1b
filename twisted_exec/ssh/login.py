"""
The login of an SSH server (RFC 4252): public keys and certificates alone.

The user name of ssh is not who logs in: the key says that.  It names the target, such as a machine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from twisted.conch.interfaces import IConchUser
from twisted.conch.ssh.common import NS, getNS
from twisted.conch.ssh.transport import DISCONNECT_NO_MORE_AUTH_METHODS_AVAILABLE
from twisted.conch.ssh.userauth import (
    MSG_USERAUTH_BANNER,
    MSG_USERAUTH_FAILURE,
    MSG_USERAUTH_PK_OK,
    MSG_USERAUTH_REQUEST,
    MSG_USERAUTH_SUCCESS,
    SSHUserAuthServer,
)
from twisted.internet.address import IPv4Address, IPv6Address

from twisted_exec.ssh.certificate import is_certificate, read_certificate
from twisted_exec.ssh.people import Credential, IPeople, LoginRefused, Person, UnknownKey
from twisted_exec.ssh.public_keys import key_of
from twisted_exec.ssh.transport import ModernTransport
from twisted_exec.ssh.user_signature import is_algorithm_of, is_signed

ONLY_KEYS = "log in with an ssh certificate or a key: there are no passwords here"
"""For clients that try another method."""
_CONNECTION = b"ssh-connection"
_METHOD = b"publickey"
_MOST_ATTEMPTS = 6
_MOST_TARGET_BYTES = 512


class Entrance(Protocol):
    """What is behind a login."""

    def enter(
        self, person: Person, target: str, transport: ModernTransport
    ) -> tuple[IConchUser, Callable[[], None]]:
        """
        Return the user of the connection, and what is called when the connection is lost.

        :param target: the user name of ssh; any text without control characters.
        :raises LoginRefused: the user may not enter; the sentence is for the user.
        """

    def refused(
        self, credential: Credential, why: str, transport: ModernTransport, user: str = ""
    ) -> None:
        """
        Take note of a login that is refused.

        :param why: a sentence for the user, who has the private key; empty for a key that no source knows.
        :param user: the owner of the key; empty if it is not known, or if the certificate says it.
        """


class PublicKeyLogin(SSHUserAuthServer):
    """
    Logs in one connection.

    The time for it is bounded by its transport.

    :param wall_clock: returns seconds since 1970.
    """

    transport: Any
    most_attempts = _MOST_ATTEMPTS

    def __init__(
        self, people: IPeople, entrance: Entrance, wall_clock: Callable[[], float]
    ) -> None:
        self._people, self._entrance, self._now = people, entrance, wall_clock
        self._user: bytes | None = None
        self._attempts = 0
        self._has_told = self._is_done = False

    def serviceStarted(self) -> None:
        """There is nothing to begin."""

    def serviceStopped(self) -> None:
        """There is nothing to end."""

    def ssh_USERAUTH_REQUEST(self, packet: bytes) -> None:
        user, service, method, rest = getNS(packet, 3)
        if service != _CONNECTION or len(user) > _MOST_TARGET_BYTES:
            self._fail()
        elif self._user not in (None, user):
            self._disconnect("a login has one user name")
        elif method == _METHOD:
            self._user = user
            self._public_key(user, rest)
        else:
            self._user = user
            if method != b"none":
                self._tell(ONLY_KEYS)
            self._fail()

    def _public_key(self, user: bytes, packet: bytes) -> None:
        is_signed_now, (algorithm, blob, rest) = packet[:1] == b"\1", getNS(packet[1:], 2)
        refusal: LoginRefused | None = None
        person: Person | None = None
        if not is_algorithm_of(algorithm, blob):
            self._fail()
            return
        credential = Credential(algorithm, blob, self._address())
        try:
            person = self._people.identify(algorithm, blob, credential.source_address, self._now())
        except UnknownKey:
            self._entrance.refused(credential, "", self.transport)
            self._fail()
            return
        except LoginRefused as error:
            # The sentence is for the owner alone, so the client must sign first.
            refusal = error
        if not is_signed_now:
            self.transport.sendPacket(MSG_USERAUTH_PK_OK, NS(algorithm) + NS(blob))
            return
        message = b"".join(
            (
                NS(self.transport.sessionID),
                bytes((MSG_USERAUTH_REQUEST,)),
                *map(NS, (user, _CONNECTION, _METHOD)),
                b"\1",
                *map(NS, (algorithm, blob)),
            )
        )
        key = read_certificate(blob).key if is_certificate(blob) else key_of(blob)
        if not is_signed(algorithm, key, getNS(rest)[0], message):
            self._fail()
        elif person is None:
            self._refuse(credential, str(refusal), refusal.user if refusal else "")
        else:
            self._enter(person, user, credential)

    def _enter(self, person: Person, user: bytes, credential: Credential) -> None:
        try:
            target = user.decode()
            if not target.isprintable():
                raise ValueError
            avatar, logout = self._entrance.enter(person, target, self.transport)
        except ValueError:
            self._refuse(
                credential, "the user name of ssh is the machine: NAMESPACE/NAME", person.user
            )
        except LoginRefused as error:
            self._refuse(credential, str(error), person.user)
        else:
            self._is_done = True
            self.transport.logged_in()
            self.transport.avatar, self.transport.logoutFunction = avatar, logout
            service = self.transport.factory.getService(self.transport, _CONNECTION)
            self.transport.sendPacket(MSG_USERAUTH_SUCCESS, b"")
            self.transport.setService(service())

    def _address(self) -> str:
        peer = self.transport.transport.getPeer()
        return peer.host if isinstance(peer, IPv4Address | IPv6Address) else ""

    def _refuse(self, credential: Credential, sentence: str, user: str) -> None:
        self._entrance.refused(credential, sentence, self.transport, user)
        self._has_told = False
        self._tell(sentence)
        self._fail()

    def _tell(self, sentence: str) -> None:
        if not self._has_told:
            self._has_told = True
            self.transport.sendPacket(MSG_USERAUTH_BANNER, NS(f"{sentence}\n") + NS(b""))

    def _fail(self) -> None:
        self._attempts += 1
        if self._attempts > self.most_attempts:
            self._disconnect("too many attempts; choose a key: ssh -o IdentitiesOnly=yes -i KEY")
        else:
            self.transport.sendPacket(MSG_USERAUTH_FAILURE, NS(_METHOD) + b"\0")

    def _disconnect(self, sentence: str) -> None:
        self.transport.sendDisconnect(DISCONNECT_NO_MORE_AUTH_METHODS_AVAILABLE, sentence)
