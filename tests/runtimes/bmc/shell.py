"""
The shell of the small BMC over SSH: a prompt, a command that enters the console, and the vendor's way out of it.

It is a server of Conch, because a real ``sshd`` checks passwords of accounts of the host only.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

try:
    import bcrypt  # noqa: F401
except ImportError:
    # Conch needs it only for keys with a passphrase, and imports it always.
    sys.modules["bcrypt"] = ModuleType("bcrypt")

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from twisted.conch.avatar import ConchUser
from twisted.conch.interfaces import IConchUser, ISession
from twisted.conch.ssh.common import NS, getNS
from twisted.conch.ssh.connection import SSHConnection
from twisted.conch.ssh.factory import SSHFactory
from twisted.conch.ssh.keys import Key
from twisted.conch.ssh.session import SSHSession, wrapProcessProtocol, wrapProtocol
from twisted.conch.ssh.userauth import SSHUserAuthServer
from twisted.cred.checkers import InMemoryUsernamePasswordDatabaseDontUse
from twisted.cred.credentials import UsernamePassword
from twisted.cred.portal import IRealm, Portal
from twisted.internet import reactor as _reactor
from twisted.internet.defer import Deferred
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure
from zope.interface import implementer

reactor: Any = _reactor

_INFO_REQUEST = 60
_MOST_ESCAPE = 16

Answer = Callable[["Shell"], None]


class ShellServer:
    """
    An SSH server on loopback.

    :param commands: of the shell; each is called with the :class:`Shell` when its line is complete. Other lines are
        answered with an error.
    :param prompt: of the shell; empty for a port that is the console.
    :param escapes: sequences of the console that lead back to the shell.
    :ivar methods: of logins, such as ``password``.
    :ivar question: of keyboard-interactive.
    :ivar logins: methods and passwords of all attempts.
    :ivar shells: the sessions, the newest last.
    """

    def __init__(
        self,
        commands: Mapping[bytes, Answer],
        *,
        prompt: bytes = b"",
        escapes: Sequence[bytes] = (),
        user: str = "root",
        password: str = "calvin-canary",
    ) -> None:
        self.commands, self.prompt, self.escapes = commands, prompt, escapes
        self.user, self.password = user, password
        self.methods = [b"keyboard-interactive"]
        self.question = b"Password: "
        self.greeting = b""
        self.logins: list[tuple[bytes, bytes]] = []
        self.shells: list[Shell] = []
        self._key = Key(Ed25519PrivateKey.generate())
        self._port: Any = None

    @property
    def shell(self) -> Shell:
        """The newest session."""
        return self.shells[-1]

    @property
    def port(self) -> int:
        number: int = self._port.getHost().port
        return number

    def listen(self) -> ShellServer:
        """Start listening on 127.0.0.1."""
        factory = SSHFactory()
        factory.noisy = False
        factory.publicKeys = {self._key.sshType(): self._key.public()}
        factory.privateKeys = {self._key.sshType(): self._key}
        factory.services = {
            b"ssh-userauth": lambda: _Login(self),
            b"ssh-connection": SSHConnection,
        }
        checker = InMemoryUsernamePasswordDatabaseDontUse(**{self.user: self.password.encode()})
        factory.portal = Portal(_Realm(self), [checker])
        self._port = reactor.listenTCP(0, factory, interface="127.0.0.1")
        return self

    def known_hosts(self, key: Key | None = None) -> str:
        """Return the line of ``known_hosts`` for the server, by default with its key."""
        public = (key or self._key).public().toString("openssh").decode("ascii")
        return f"[127.0.0.1]:{self.port} {public}\n"

    async def stop(self) -> None:
        """Stop listening, and end all sessions."""
        port, self._port = self._port, None
        if port is not None:
            await port.stopListening()
        for shell in self.shells:
            shell.hang_up()


class Shell(Protocol):
    """
    One session: at the prompt, or at the console.

    :ivar typed: all input of the shell.
    :ivar got: all input of the console, which it echoes.
    """

    transport: Any

    def __init__(self, server: ShellServer) -> None:
        self._server = server
        self._line = b""
        self.typed = self.got = b""
        self.is_console = not server.prompt
        self.is_gone = False

    def connectionMade(self) -> None:
        self.says(self._server.greeting)
        if not self.is_console:
            self.ask()

    def dataReceived(self, data: bytes) -> None:
        for byte in (data[at : at + 1] for at in range(len(data))):
            if self.is_console:
                self._at_console(byte)
            else:
                self._at_prompt(byte)

    def _at_console(self, byte: bytes) -> None:
        self.got += byte
        self.says(byte)
        if self.got[-_MOST_ESCAPE:].endswith(tuple(self._server.escapes) or (b"\0never\0",)):
            self.fall_out()

    def _at_prompt(self, byte: bytes) -> None:
        self.typed += byte
        if byte != b"\r":
            self._line += byte
            self.says(byte)
            return
        self.says(b"\r\n")
        line, self._line = self._line, b""
        self._server.commands.get(line, _unknown)(self)

    # For commands and tests.

    def says(self, data: bytes) -> None:
        """Print something."""
        if data and not self.is_gone:
            self.transport.write(data)

    def ask(self) -> None:
        """Print the prompt."""
        self.says(b"\r\n" + self._server.prompt + b" ")

    def fall_out(self) -> None:
        """End the console; input goes to the shell from now on."""
        self.is_console = False
        self.ask()

    def hang_up(self) -> None:
        """End the session."""
        if not self.is_gone:
            self.transport.loseConnection()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.is_gone = True


def _unknown(shell: Shell) -> None:
    shell.says(b"unknown command\r\n")
    shell.ask()


def enters(banner: bytes = b"", greeting: bytes = b"") -> Answer:
    """Return a command that prints ``banner``, and enters the console, which prints ``greeting``."""

    def answer(shell: Shell) -> None:
        shell.is_console = True
        shell.says(banner + greeting)

    return answer


def prints(text: bytes) -> Answer:
    """Return a command that prints ``text``, and the prompt."""

    def answer(shell: Shell) -> None:
        shell.says(text)
        shell.ask()

    return answer


class _Login(SSHUserAuthServer):
    passwordDelay = 0

    def __init__(self, server: ShellServer) -> None:
        self._server = server
        self._asked: Deferred[Any] | None = None

    def serviceStarted(self) -> None:
        super().serviceStarted()
        self.supportedAuthentications = list(self._server.methods)

    def auth_password(self, packet: bytes) -> Deferred[Any]:
        self._server.logins.append((b"password", getNS(packet[1:])[0]))
        return super().auth_password(packet)

    def auth_keyboard_interactive(self, packet: bytes) -> Deferred[Any]:
        """RFC 4256."""
        question = NS(b"") + NS(b"") + NS(b"") + (1).to_bytes(4, "big")
        self._asked = Deferred()
        self.transport.sendPacket(_INFO_REQUEST, question + NS(self._server.question) + b"\0")
        return self._asked

    def ssh_USERAUTH_INFO_RESPONSE(self, packet: bytes) -> None:
        password = getNS(packet[4:])[0]
        self._server.logins.append((b"keyboard-interactive", password))
        asked, self._asked = self._asked, None
        if asked is not None:
            login = self.portal.login(UsernamePassword(self.user, password), None, IConchUser)
            login.chainDeferred(asked)


@implementer(IRealm)
class _Realm:
    def __init__(self, server: ShellServer) -> None:
        self._server = server

    def requestAvatar(self, avatarId: object, mind: object, *interfaces: object) -> Any:
        return IConchUser, _Avatar(self._server), lambda: None


@implementer(ISession)
class _Avatar(ConchUser):
    """A user, and the session of the user."""

    def __init__(self, server: ShellServer) -> None:
        super().__init__()
        self._server = server
        self.channelLookup[b"session"] = SSHSession

    def getPty(self, term: bytes, windowSize: object, modes: object) -> None:
        """Each session has one."""

    def openShell(self, proto: Any) -> None:
        shell = Shell(self._server)
        self._server.shells.append(shell)
        shell.makeConnection(wrapProcessProtocol(proto))
        proto.makeConnection(wrapProtocol(shell))

    def execCommand(self, proto: Any, command: bytes) -> None:
        self.openShell(proto)

    def windowChanged(self, newWindowSize: object) -> None:
        """The shell has no size."""

    def eofReceived(self) -> None:
        """The session goes on."""

    def closed(self) -> None:
        """The channel tells the shell."""
