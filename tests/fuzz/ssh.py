"""
What must hold for any bytes that reach the ssh server, or its lists of keys.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from twisted.conch.ssh.common import NS
from twisted.conch.ssh.keys import Key
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport

from tests.ssh.authority import NOW, Authority, blob_of
from tests.ssh.test_revocation import HEADER, section
from twisted_exec.ssh.certificate import CertificateError, read_certificate
from twisted_exec.ssh.channel import ChannelEnd
from twisted_exec.ssh.connection import Connection, User
from twisted_exec.ssh.door_keys import DoorKey
from twisted_exec.ssh.login import PublicKeyLogin
from twisted_exec.ssh.login_file import LoginFile, Logins
from twisted_exec.ssh.packet_ciphers import NoCipher
from twisted_exec.ssh.people import Credential, LoginRefused, Person
from twisted_exec.ssh.public_keys import PublicKeyError, key_of
from twisted_exec.ssh.revocation import RevocationError, parse_revocations
from twisted_exec.ssh.transport import MOST_PACKET_BYTES, Exchange, ModernFactory
from twisted_exec.ssh.user_certificate import certificate_text, certified_user

_KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
AUTHORITY = Authority(Ed25519PrivateKey.from_private_bytes(bytes(range(1, 33))))
_CERTIFICATE = read_certificate(AUTHORITY.certify(_KEY, b"ada"))


def certificates(split: int, data: bytes) -> None:
    """A certificate is of one user with a name, or it is refused with a line that can be printed."""
    try:
        read = read_certificate(data)
        text = certified_user(read, "192.0.2.7", NOW) + certificate_text(read)
    except (CertificateError, LoginRefused) as problem:
        text = str(problem)
    assert text.isprintable() and len(text) < 1000


def revocations(split: int, data: bytes) -> None:
    """A list revokes or not, or it is refused with a line that can be printed."""
    try:
        found = parse_revocations(data)
    except RevocationError as problem:
        assert str(problem).isprintable() and len(str(problem)) < 300
    else:
        assert found.revokes(_CERTIFICATE) in (True, False)


def keys(split: int, data: bytes) -> None:
    """There is one form of a key."""
    try:
        assert key_of(data).blob() == data
    except PublicKeyError as problem:
        assert str(problem).isprintable() and len(str(problem)) < 300


class _Server(ModernFactory):
    def __init__(self) -> None:
        super().__init__(Clock())
        people = LoginFile("", self.clock)
        people._logins, people._problem = Logins({AUTHORITY.blob: ("people",)}), ""
        login: Any = partial(PublicKeyLogin, people, self, lambda: NOW)
        self.services = {b"ssh-userauth": login, b"ssh-connection": Connection}

    def host_keys(self) -> Sequence[DoorKey]:
        return [DoorKey(Key(_KEY))]

    def refused(self, credential: Credential, why: str, transport: object) -> None:
        """Nothing is logged."""

    def enter(self, person: Person, target: str, transport: object) -> Any:
        return User(self, self.clock), lambda: None

    def begin(self, channel: object, request: object) -> ChannelEnd:
        return ChannelEnd()


def streams(split: int, data: bytes) -> None:
    """Nothing is raised by what a stranger sends, and little is kept of it."""
    server, transport = _Server().buildProtocol(None), StringTransport()
    server.makeConnection(transport)
    size = max(1, split)
    for start in range(0, len(data), size):
        server.dataReceived(data[start : start + size])
        assert len(server._input) <= MOST_PACKET_BYTES
    server.connectionLost()
    assert server.clock.getDelayedCalls() == []


def _messages(is_user: bool) -> Callable[[int, bytes], None]:
    def messages(split: int, data: bytes) -> None:
        """Nothing is raised by messages, each with its length before it."""
        server, transport = _Server().buildProtocol(None), StringTransport()
        server.makeConnection(transport)
        server.gotVersion, server.otherVersionString = True, b"SSH-2.0-x"
        server._has_keys, server.sessionID = True, bytes(32)
        server._exchange = Exchange.NONE
        server.dispatchMessage(5, NS(b"ssh-userauth"))
        if is_user:
            server.logged_in()
            server.avatar, server.logoutFunction = User(server.factory, server.clock), lambda: None
            server.setService(Connection())
            server.dispatchMessage(90, NS(b"session") + struct.pack(">3L", 0, 1 << 20, 1 << 15))
        while len(data) > 2 and not server._is_over:
            number, length, data = data[0], data[1] * max(1, split), data[2:]
            message, data = data[:length], data[length:]
            server.dispatchMessage(number, message)
            server.clock.advance(0)
        server.connectionLost()
        assert server.clock.getDelayedCalls() == []

    return messages


TARGETS: dict[str, Callable[[int, bytes], None]] = {
    "ssh certificates": certificates,
    "ssh keys": keys,
    "ssh revocations": revocations,
    "ssh strangers": _messages(False),
    "ssh streams": streams,
    "ssh users": _messages(True),
}


def seeds() -> Iterator[tuple[str, bytes, int]]:
    """The names of targets, each with data and how that is split."""
    yield (
        "ssh certificates",
        AUTHORITY.certify(_KEY, b"ada", options={b"source-address": b"::/0"}),
        1,
    )
    yield "ssh certificates", AUTHORITY.certify(_KEY, b"ada", b"", valid=(0, 1)), 1
    for name in (b"sk-ssh-ed25519@openssh.com", b"ssh-ed25519"):
        yield "ssh keys", NS(name) + blob_of(_KEY)[15:] + (NS(b"ssh:") if b"sk" in name else b""), 1
    yield "ssh keys", NS(b"ecdsa-sha2-nistp256") + NS(b"nistp256") + NS(b"\4" + bytes(64)), 1
    yield "ssh keys", NS(b"ssh-rsa") + NS(b"\1\0\1") + NS(b"\0" + b"\xff" * 256), 1
    numbers = (
        section(0x20, bytes(8)) + section(0x21, bytes(16)) + section(0x22, bytes(8) + NS(b"x"))
    )
    listed = section(1, NS(b"") + NS(b"") + numbers + section(0x23, NS(b"ada@laptop")))
    yield "ssh revocations", HEADER + listed + section(2, NS(blob_of(_KEY))), 1
    yield "ssh revocations", HEADER + section(3, NS(bytes(20))) + section(5, NS(bytes(32))), 1
    yield "ssh revocations", AUTHORITY.line.encode(), 1
    server, transport = _Server().buildProtocol(None), StringTransport()
    server.makeConnection(transport)
    offer = transport.value().partition(b"\n")[2]
    share = b"".join(NoCipher().seal(1, 30, NS(bytes(31) + b"\1")))
    yield "ssh streams", b"SSH-2.0-x\r\n" + offer + share, 7
    asked = b"".join(map(NS, (b"vms/demo", b"ssh-connection", b"publickey"))) + b"\0"
    asked += NS(b"ssh-ed25519") + NS(blob_of(_KEY))
    yield "ssh strangers", bytes((50, len(asked))) + asked, 1
    certified = AUTHORITY.certify(_KEY, b"ada", extensions=())
    asked = asked[:-55] + NS(certified)
    asked = asked.replace(NS(b"ssh-ed25519"), NS(b"ssh-ed25519-cert-v01@openssh.com"), 1)
    asked += bytes(-len(asked) % 4)
    yield "ssh strangers", bytes((50, len(asked) // 4)) + asked, 4
    messages = [
        (98, bytes(4) + NS(b"pty-req") + b"\1" + NS(b"xterm") + bytes(16) + NS(b"")),
        (98, bytes(4) + NS(b"env") + b"\1" + NS(b"LANG") + NS(b"C")),
        (98, bytes(4) + NS(b"exec") + b"\1" + NS(b"ls")),
        (98, bytes(4) + NS(b"window-change") + b"\0" + bytes(16)),
        (98, bytes(4) + NS(b"break") + b"\1" + bytes(4)),
        (93, bytes(4) + bytes(4)),
        (94, bytes(4) + NS(b"ls")),
        (95, bytes(8) + NS(b"ls")),
        (80, NS(b"tcpip-forward") + b"\1" + NS(b"") + bytes(4)),
        (90, NS(b"direct-tcpip") + bytes(12) + NS(b"") + bytes(4)),
        (96, bytes(4)),
        (97, bytes(4)),
        (20, offer[6:]),
    ]
    for number, content in messages:
        padded = content + bytes(-len(content) % 4)
        yield "ssh users", bytes((number, min(255, len(padded) // 4))) + padded, 4
