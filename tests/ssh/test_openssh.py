"""
The server of ``twisted_exec.ssh`` with stock OpenSSH as its client.
"""

from __future__ import annotations

import os
import time
from base64 import b64encode
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.error import ProcessDone
from twisted.internet.protocol import ProcessProtocol
from twisted.python.failure import Failure
from twisted.trial.unittest import TestCase

from tests import needs
from tests.tiers import PROGRAMS

if (skip := needs.conch()) is None:
    from cryptography.hazmat.primitives.asymmetric import ec, rsa
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        SSHCertificateType,
    )
    from twisted.conch.interfaces import IConchUser
    from twisted.conch.ssh.keys import Key

    from tests.ssh.authority import Authority, line_of
    from twisted_exec.ssh.certificate import read_certificate
    from twisted_exec.ssh.channel import ChannelEnd, SessionChannel, SessionRequest
    from twisted_exec.ssh.connection import Connection, User
    from twisted_exec.ssh.door_keys import DoorKey, known_hosts
    from twisted_exec.ssh.login import PublicKeyLogin
    from twisted_exec.ssh.login_file import LoginFile
    from twisted_exec.ssh.people import Credential, Person
    from twisted_exec.ssh.transport import ModernFactory, ModernTransport

    class Session(ChannelEnd):
        """Sends back what it gets, in the client's pace, until the client has no more."""

        def __init__(self, channel: SessionChannel) -> None:
            self.channel = channel

        def received(self, data: bytes) -> None:
            self.channel.write(data)

        def full(self) -> None:
            self.channel.pauseProducing()

        def drained(self) -> None:
            self.channel.resumeProducing()

        def input_ended(self) -> None:
            self.channel.finish(7)

    class Server(ModernFactory):
        """A server whose sessions are echoes; or they print who has logged in."""

        def __init__(self, people: LoginFile) -> None:
            super().__init__(reactor)
            login = partial(PublicKeyLogin, people, self, time.time)
            self.services = {b"ssh-userauth": login, b"ssh-connection": Connection}
            self.first = Ed25519PrivateKey.generate()
            self.keys = [
                DoorKey(Key(self.first)),
                DoorKey(Key(rsa.generate_private_key(65537, 3072))),
            ]
            self.connections: list[tuple[Person, str, ModernTransport]] = []

        def host_keys(self) -> Sequence[DoorKey]:
            return self.keys

        def enter(
            self, person: Person, target: str, transport: ModernTransport
        ) -> tuple[IConchUser, Callable[[], None]]:
            self.connections.append((person, target, transport))
            return User(self, reactor), lambda: None

        def refused(
            self, credential: Credential, why: str, transport: ModernTransport, user: str = ""
        ) -> None:
            """Nothing is logged."""

        def begin(self, channel: SessionChannel, request: SessionRequest) -> ChannelEnd:
            person, target, _ = self.connections[-1]
            if request.command == "who":
                channel.write(f"{person.user} {' '.join(person.groups)} {target}".encode())
                channel.finish(0)
            return Session(channel)

    class Client(ProcessProtocol):
        """
        A process of ssh.

        :ivar over: fires with the exit code, the output and the errors.
        """

        def __init__(self, content: bytes | None) -> None:
            self.content = content
            self.output = self.errors = b""
            self.begun: Deferred[None] = Deferred()
            self.over: Deferred[tuple[int, bytes, str]] = Deferred()

        def connectionMade(self) -> None:
            if self.content is not None:
                self.transport.write(self.content)
                self.transport.closeStdin()

        def outReceived(self, data: bytes) -> None:
            if not self.output:
                self.begun.callback(None)
            self.output += data

        def errReceived(self, data: bytes) -> None:
            self.errors += data

        def processEnded(self, reason: Failure) -> None:
            code = 0 if reason.check(ProcessDone) else reason.value.exitCode
            self.over.callback((code, self.output, self.errors.decode()))


class OpenSSHTests(TestCase):
    """A server at loopback, and users with keys."""

    starts = PROGRAMS
    skip = needs.ssh()

    def setUp(self) -> None:
        self.directory = self.mktemp()
        os.makedirs(self.directory)
        self.authority = Authority()
        self.write("ca.pub", self.authority.line)
        self.write("revoked", "# none\n")
        self.ada = self.new_key("ada")
        self.write(
            "logins.yaml",
            "authorities: [{keys: ca.pub, groups: [people]}]\nrevoked: revoked\n"
            f"users: [{{user: ada, groups: [operators], keys: ['{line_of(self.ada)}']}}]\n",
        )
        self.people = LoginFile(self.path("logins.yaml"), reactor)
        self.people.load()
        self.server = Server(self.people)
        listening: Any = reactor.listenTCP(0, self.server, interface="127.0.0.1")
        self.addCleanup(listening.stopListening)
        self.port = listening.getHost().port
        self.write("known_hosts", known_hosts(self.server.keys, [("127.0.0.1", self.port)]))

    def path(self, name: str) -> str:
        return os.path.join(self.directory, name)

    def write(self, name: str, text: str) -> None:
        path = self.path(name)
        with open(path, "w", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            file.write(text + "\n")

    def new_key(self, name: str, private: Any = None) -> Any:
        """Write a private key, and return it."""
        private = private or Ed25519PrivateKey.generate()
        pem = private.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
        self.write(name, pem.decode())
        return private

    def certify(self, name: str, private: Any, seconds: float = 3600) -> None:
        """Write a certificate of Bob beside a key."""
        now = time.time()
        blob = self.authority.certify(private, b"bob", valid=(now - 7200, now + seconds))
        kind = line_of(private).split()[0] + "-cert-v01@openssh.com"
        self.write(f"{name}-cert.pub", f"{kind} {b64encode(blob).decode()}")

    def start(self, key: str, *words: str, content: bytes | None = b"") -> Client:
        """Start ssh."""
        command = ["ssh", "-F", "none", "-T", "-p", str(self.port), "-i", self.path(key)]
        for option in (
            "BatchMode=yes",
            "IdentitiesOnly=yes",
            "IdentityAgent=none",
            "StrictHostKeyChecking=yes",
            "GlobalKnownHostsFile=/dev/null",
            f"UserKnownHostsFile={self.path('known_hosts')}",
        ):
            command += ["-o", option]
        client = Client(content)
        command += [*words[:-1], "vms/demo@127.0.0.1", words[-1]]
        spawn: Any = reactor
        spawn.spawnProcess(client, "ssh", command, env=os.environ)
        return client

    async def test_logins(self) -> None:
        """Keys and certificates of each type log in."""
        self.assertEqual(await self.start("ada", "who").over, (0, b"ada operators vms/demo", ""))
        privates = (
            Ed25519PrivateKey.generate(),
            ec.generate_private_key(ec.SECP256R1()),
            rsa.generate_private_key(65537, 3072),
        )
        for number, private in enumerate(privates):
            name = f"bob{number}"
            self.certify(name, self.new_key(name, private))
            self.assertEqual(await self.start(name, "who").over, (0, b"bob people vms/demo", ""))

    async def test_new_keys(self) -> None:
        """Keys are exchanged again and again, by wish of either, and no byte is lost."""
        content = os.urandom(500_000)
        for rekey_bytes in (1 << 30, 50_000):
            self.patch(ModernTransport, "rekey_bytes", rekey_bytes)
            for cipher in ("aes128-gcm@openssh.com", "aes256-ctr"):
                words = ("-c", cipher, "-o", "RekeyLimit=64K", "cat")
                code, output, errors = await self.start("ada", *words, content=content).over
                self.assertEqual((code, output == content, errors), (7, True, ""))

    async def test_host_certificate(self) -> None:
        """A client that knows only the authority of hosts verifies the certificate."""
        [key, other] = self.server.keys
        now = time.time()
        blob = self.authority.certify(
            self.server.first,
            b"127.0.0.1",
            kind=SSHCertificateType.HOST,
            valid=(now - 60, now + 3600),
        )
        self.server.keys = [DoorKey(key.private, (blob, read_certificate(blob))), other]
        lines = known_hosts(self.server.keys, [("127.0.0.1", self.port)])
        self.write("known_hosts", lines.splitlines()[0])
        self.assertEqual((await self.start("ada", "who").over)[0], 0)
        self.server.keys = [key, other]
        code, _, errors = await self.start("ada", "who").over
        self.assertEqual(code, 255)
        self.assertIn("Host key verification failed", errors)

    async def test_refused(self) -> None:
        """Who is refused reads why, and a stranger only that it is so."""
        self.certify("bob", self.new_key("bob"), seconds=-10)
        code, _, errors = await self.start("bob", "who").over
        self.assertEqual(code, 255)
        self.assertIn("your ssh certificate has expired; get a new one\n", errors)
        self.new_key("eve")
        code, _, errors = await self.start("eve", "who").over
        self.assertEqual(code, 255)
        self.assertEqual(errors.strip(), "vms/demo@127.0.0.1: Permission denied (publickey).")

    async def test_revoked(self) -> None:
        """A certificate that is revoked ends the sessions with it, and the user reads why."""
        bob = self.new_key("bob")
        self.certify("bob", bob)
        client = self.start("bob", "cat", content=None)
        client.transport.write(b"hello\n")
        await client.begun
        [(person, _, transport)] = self.server.connections
        self.assertIsNone(self.people.reason_to_end(person, time.time()))
        self.write("revoked", line_of(bob))
        await self.people.look()
        reason = self.people.reason_to_end(person, time.time())
        assert reason is not None
        transport.sendDisconnect(11, reason)
        code, output, errors = await client.over
        self.assertEqual((code, output), (255, b"hello\n"))
        self.assertIn("your ssh key or certificate is revoked; get a new one", errors)
