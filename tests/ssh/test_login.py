"""
Tests for ``twisted_exec.ssh.login`` and ``twisted_exec.ssh.user_signature``.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from twisted.internet.task import Clock
from twisted.test.iosim import FakeTransport, IOPump, connect
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from tests import needs

if (skip := needs.conch()) is None:
    from cryptography.hazmat.primitives.asymmetric import ec, rsa
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from twisted.conch.interfaces import IConchUser
    from twisted.conch.ssh.common import NS, getNS
    from twisted.conch.ssh.keys import Key
    from twisted.conch.ssh.service import SSHService
    from twisted.conch.ssh.transport import MSG_DISCONNECT, MSG_SERVICE_REQUEST
    from twisted.conch.ssh.userauth import (
        MSG_USERAUTH_BANNER,
        MSG_USERAUTH_FAILURE,
        MSG_USERAUTH_PK_OK,
        MSG_USERAUTH_REQUEST,
        MSG_USERAUTH_SUCCESS,
    )

    from tests.ssh.authority import NOW, Authority, blob_of
    from tests.ssh.client import PlainClient
    from twisted_exec.ssh.door_keys import DoorKey
    from twisted_exec.ssh.login import ONLY_KEYS, PublicKeyLogin
    from twisted_exec.ssh.people import Credential, IPeople, LoginRefused, Person, UnknownKey
    from twisted_exec.ssh.transport import ModernFactory

    @implementer(IPeople)
    class People:
        """Knows blobs, and refuses some of them."""

        def __init__(self) -> None:
            self.users: dict[bytes, str] = {}
            self.refused: dict[bytes, str] = {}
            self.asked: list[tuple[bytes, str, float]] = []

        def identify(
            self, algorithm: bytes, key_blob: bytes, source_address: str, now: float
        ) -> Person:
            self.asked.append((algorithm, source_address, now))
            if key_blob in self.refused:
                raise LoginRefused(self.refused[key_blob])
            if key_blob not in self.users:
                raise UnknownKey("a sentence for nobody")
            return Person(self.users[key_blob], (), "SHA256:x")

        def reason_to_end(self, person: Person, now: float) -> str | None:
            return None

    class Service(SSHService):
        """What is behind the login."""

        name = b"ssh-connection"

    @implementer(IConchUser)
    class User:
        """The user of a connection."""

    class Factory(ModernFactory):
        """Has one host key."""

        def __init__(self, clock: Clock, login: Callable[[], PublicKeyLogin]) -> None:
            super().__init__(clock)
            self.key = DoorKey(Key(Ed25519PrivateKey.generate()))
            self.services = {b"ssh-userauth": login, b"ssh-connection": Service}

        def host_keys(self) -> Sequence[DoorKey]:
            return [self.key]


class LoginTests(SynchronousTestCase):
    """A client that is connected, and wants to log in."""

    skip = skip

    def setUp(self) -> None:
        self.clock, self.people = Clock(), People()
        self.entered: list[tuple[str, str]] = []
        self.refusal = ""
        self.refusals: list[tuple[bytes, str]] = []
        self.left = 0
        self.connect()

    def connect(self) -> None:
        login = partial(PublicKeyLogin, self.people, self, lambda: NOW)
        server: Any = Factory(self.clock, login).buildProtocol(None)
        self.server, self.client = server, PlainClient()
        self.pump: IOPump = connect(
            server,
            FakeTransport(server, isServer=True),
            self.client,
            FakeTransport(self.client, isServer=False),
        )
        self.addCleanup(self.end)
        self.pump.flush()
        self.send(MSG_SERVICE_REQUEST, NS(b"ssh-userauth"))

    def end(self) -> None:
        self.client.transport.loseConnection()
        self.pump.flush()

    def refused(self, credential: Credential, why: str, transport: object, user: str = "") -> None:
        self.refusals.append((credential.key_blob, why))

    def enter(self, person: Person, target: str, transport: object) -> Any:
        if self.refusal:
            raise LoginRefused(self.refusal)
        self.entered.append((person.user, target))
        return User(), self.leave

    def leave(self) -> None:
        self.left += 1

    def send(self, number: int, payload: bytes) -> list[int]:
        """Send a message; return the numbers of the answers."""
        before = len(self.client.messages)
        self.client.send(number, payload)
        self.pump.flush()
        return [each for each, _ in self.client.messages[before:]]

    def request(self, method: bytes, rest: bytes, user: bytes, service: bytes) -> list[int]:
        content = b"".join(map(NS, (user, service, method))) + rest
        return self.send(MSG_USERAUTH_REQUEST, content)

    def log_in(
        self,
        private: Any,
        blob: bytes,
        algorithm: bytes,
        *,
        user: bytes = b"vms/demo",
        sign: Callable[[bytes], bytes] | None = None,
        is_signed: bool = True,
    ) -> list[int]:
        """Ask with a key, or sign with it; return the numbers of the answers."""
        parts = NS(algorithm) + NS(blob)
        rest = bytes((is_signed,)) + parts
        if is_signed:
            head = b"".join(map(NS, (user, b"ssh-connection", b"publickey")))
            session = self.client.sessionID
            assert session is not None
            message = NS(session) + bytes((MSG_USERAUTH_REQUEST,)) + head + rest
            plain = algorithm.removesuffix(b"-cert-v01@openssh.com")
            signature = sign(message) if sign else Key(private).sign(message, plain)
            rest += NS(signature)
        return self.request(b"publickey", rest, user, b"ssh-connection")

    def banners(self) -> list[str]:
        payloads = self.client.received(MSG_USERAUTH_BANNER)
        return [getNS(payload)[0].decode() for payload in payloads]

    def known(self, blob: bytes) -> bytes:
        self.people.users[blob] = "ada"
        return blob

    def test_types(self) -> None:
        """Keys and certificates of each type log in, as the user of the key and to the target of the name."""
        for private, algorithms in (
            (Ed25519PrivateKey.generate(), [b"ssh-ed25519"]),
            (ec.generate_private_key(ec.SECP256R1()), [b"ecdsa-sha2-nistp256"]),
            (ec.generate_private_key(ec.SECP384R1()), [b"ecdsa-sha2-nistp384"]),
            (ec.generate_private_key(ec.SECP521R1()), [b"ecdsa-sha2-nistp521"]),
            (rsa.generate_private_key(65537, 2048), [b"rsa-sha2-256", b"rsa-sha2-512"]),
        ):
            certificate = Authority().certify(private, b"ada")
            for algorithm in algorithms:
                for blob, name in (
                    (blob_of(private), algorithm),
                    (certificate, algorithm + b"-cert-v01@openssh.com"),
                ):
                    self.known(blob)
                    self.connect()
                    answers = self.log_in(private, blob, name, is_signed=False)
                    self.assertEqual(answers, [MSG_USERAUTH_PK_OK])
                    answers = self.log_in(private, blob, name)
                    self.assertEqual(answers, [MSG_USERAUTH_SUCCESS], name)
                    self.assertEqual(self.entered.pop(), ("ada", "vms/demo"))
                    self.assertEqual(self.people.asked[-1], (name, "", NOW))
                    self.assertIsInstance(self.server.service, Service)
                    self.assertTrue(self.server.is_logged_in)
                    left = self.left
                    self.end()
                    self.assertEqual(self.left, left + 1)

    def test_no_signature(self) -> None:
        """A known key without its private key is of no use."""
        private, other = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
        blob = self.known(blob_of(private))
        for sign in (
            Key(other).sign,
            lambda message: Key(private).sign(message + b"x"),
            lambda message: NS(b"ssh-ed25519") + NS(bytes(64)),
            lambda message: NS(b"ssh-ed25519"),
            lambda message: b"",
            lambda message: Key(private).sign(message) + b"x",
        ):
            self.connect()
            answers = self.log_in(None, blob, b"ssh-ed25519", sign=sign)
            self.assertEqual((answers, self.entered), ([MSG_USERAUTH_FAILURE], []))

    def test_sha1(self) -> None:
        """A signature of RSA with SHA-1 is refused, under whatever name."""
        private = rsa.generate_private_key(65537, 2048)
        blob = self.known(blob_of(private))
        sha1 = partial(Key(private).sign, signatureType=b"ssh-rsa")
        for algorithm in (b"ssh-rsa", b"rsa-sha2-256", b"rsa-sha2-512"):
            answers = self.log_in(None, blob, algorithm, sign=sha1)
            self.assertEqual(answers, [MSG_USERAUTH_FAILURE])

    def test_security_key(self) -> None:
        """A security key logs in if its user has touched it."""
        private = Ed25519PrivateKey.generate()
        name = b"sk-ssh-ed25519@openssh.com"
        blob = self.known(NS(name) + blob_of(private)[15:] + NS(b"ssh:"))

        def sign(flags: int, message: bytes, application: bytes = b"ssh:") -> bytes:
            tail = struct.pack(">BL", flags, 7)
            digests = [hashlib.sha256(each).digest() for each in (application, message)]
            return NS(name) + NS(private.sign(digests[0] + tail + digests[1])) + tail

        for by, is_served in (
            (partial(sign, 1), True),
            (partial(sign, 5), True),
            (partial(sign, 0), False),
            (partial(sign, 4), False),
            (partial(sign, 1, application=b"ssh:x"), False),
            (lambda message: sign(1, message)[:-1], False),
            (lambda message: sign(1, message) + b"x", False),
            (lambda message: sign(0, message)[:-5] + struct.pack(">BL", 1, 7), False),
        ):
            self.connect()
            answers = self.log_in(None, blob, name, sign=by)
            self.assertEqual(answers == [MSG_USERAUTH_SUCCESS], is_served)

    def test_security_key_of_nist(self) -> None:
        """So does one with ECDSA."""
        private = ec.generate_private_key(ec.SECP256R1())
        name = b"sk-ecdsa-sha2-nistp256@openssh.com"
        blob = self.known(NS(name) + blob_of(private)[23:] + NS(b"ssh:"))

        def sign(flags: int, message: bytes) -> bytes:
            tail = struct.pack(">BL", flags, 7)
            digests = [hashlib.sha256(each).digest() for each in (b"ssh:", message)]
            signed = Key(private).sign(digests[0] + tail + digests[1])
            return NS(name) + NS(getNS(signed, 2)[1]) + tail

        self.assertEqual(
            self.log_in(None, blob, name, sign=partial(sign, 0)), [MSG_USERAUTH_FAILURE]
        )
        answers = self.log_in(None, blob, name, sign=partial(sign, 1))
        self.assertEqual(answers, [MSG_USERAUTH_SUCCESS])

    def test_refused(self) -> None:
        """A sentence about a key is for its owner alone, behind the signature."""
        private = Ed25519PrivateKey.generate()
        blob = blob_of(private)
        self.people.refused[blob] = "your ssh certificate has expired"
        self.assertEqual(
            self.log_in(private, blob, b"ssh-ed25519", is_signed=False), [MSG_USERAUTH_PK_OK]
        )
        forge = Key(Ed25519PrivateKey.generate()).sign
        self.log_in(None, blob, b"ssh-ed25519", sign=forge)
        self.assertEqual(self.banners(), [])
        answers = self.log_in(private, blob, b"ssh-ed25519")
        self.assertEqual(answers, [MSG_USERAUTH_BANNER, MSG_USERAUTH_FAILURE])
        self.assertEqual(self.banners(), ["your ssh certificate has expired\n"])
        self.assertEqual(self.refusals, [(blob, "your ssh certificate has expired")])

    def test_stranger(self) -> None:
        """A stranger learns nothing: neither a sentence, nor by which name a user exists."""
        private = Ed25519PrivateKey.generate()
        for is_signed in (False, True):
            answers = self.log_in(private, blob_of(private), b"ssh-ed25519", is_signed=is_signed)
            self.assertEqual(answers, [MSG_USERAUTH_FAILURE])
        self.assertEqual(self.banners(), [])

    def test_not_entered(self) -> None:
        """What is behind the login may refuse, too, and so does a name that cannot be a target."""
        private = Ed25519PrivateKey.generate()
        blob = self.known(blob_of(private))
        self.refusal = "you have too many connections"
        self.log_in(private, blob, b"ssh-ed25519")
        self.assertEqual(self.banners(), ["you have too many connections\n"])
        self.refusal = ""
        for user in (b"\xff", b"a\0b", b"a\x1b[2J", "a\u202eb".encode()):
            self.connect()
            self.log_in(private, blob, b"ssh-ed25519", user=user)
            self.assertEqual(
                self.banners(), ["the user name of ssh is the machine: NAMESPACE/NAME\n"]
            )
        self.assertEqual((self.entered, self.server.is_logged_in), ([], False))

    def test_other_methods(self) -> None:
        """Other methods are answered with what there is, and a sentence for those who typed a password."""
        self.assertEqual(
            self.request(b"none", b"", b"x", b"ssh-connection"), [MSG_USERAUTH_FAILURE]
        )
        [failure] = self.client.received(MSG_USERAUTH_FAILURE)
        self.assertEqual(failure, NS(b"publickey") + b"\0")
        self.assertEqual(self.banners(), [])
        for method in (b"password", b"keyboard-interactive", b"hostbased", b"gssapi-with-mic"):
            self.request(method, b"\0" + NS(b"secret"), b"x", b"ssh-connection")
        self.assertEqual(self.banners(), [f"{ONLY_KEYS}\n"])

    def test_attempts(self) -> None:
        """The attempts of a connection are bounded, whatever they are."""
        private = Ed25519PrivateKey.generate()
        self.request(b"none", b"", b"x", b"ssh-connection")
        for _ in range(6):
            self.log_in(private, blob_of(private), b"ssh-ed25519", user=b"x")
        [message] = self.client.received(MSG_DISCONNECT)
        self.assertIn(b"too many attempts", message)
        self.assertTrue(self.client.is_lost)

    def test_other_user(self) -> None:
        """A login has one user name, and is for sessions alone."""
        self.request(b"none", b"", b"x", b"ssh-userauth")
        self.assertEqual(len(self.client.received(MSG_USERAUTH_FAILURE)), 1)
        self.request(b"none", b"", b"x", b"ssh-connection")
        self.request(b"none", b"", b"y", b"ssh-connection")
        [message] = self.client.received(MSG_DISCONNECT)
        self.assertIn(b"a login has one user name", message)

    def test_malformed(self) -> None:
        """A request that is cut off ends the connection."""
        private = Ed25519PrivateKey.generate()
        blob = self.known(blob_of(private))
        good = b"".join(map(NS, (b"x", b"ssh-connection", b"publickey"))) + b"\1"
        good += NS(b"ssh-ed25519") + NS(blob)
        for size in (0, 3, 20, 40, len(good)):
            self.connect()
            self.send(MSG_USERAUTH_REQUEST, good[:size])
            self.assertTrue(self.client.is_lost or self.client.received(MSG_USERAUTH_FAILURE))
        self.assertEqual(self.entered, [])

    def test_behind_login(self) -> None:
        """Behind the login there is no other."""
        private = Ed25519PrivateKey.generate()
        blob = self.known(blob_of(private))
        self.log_in(private, blob, b"ssh-ed25519")
        self.assertEqual(
            self.log_in(private, blob, b"ssh-ed25519"), [3]
        )  # which is not implemented
        self.assertEqual(self.entered, [("ada", "vms/demo")])
