"""
Tests for ``twisted_exec.ssh.transport``, with a client of Conch that has the same ciphers.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import product
from typing import Any

from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.test.iosim import FakeTransport, IOPump, connect
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from tests import needs

if (skip := needs.conch()) is None:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from twisted.conch.ssh.common import NS, getNS
    from twisted.conch.ssh.keys import Key
    from twisted.conch.ssh.service import SSHService
    from twisted.conch.ssh.transport import (
        DISCONNECT_MAC_ERROR,
        DISCONNECT_PROTOCOL_ERROR,
        MSG_DEBUG,
        MSG_DISCONNECT,
        MSG_EXT_INFO,
        MSG_IGNORE,
        MSG_KEXDH_INIT,
        MSG_KEXINIT,
        MSG_NEWKEYS,
        MSG_SERVICE_ACCEPT,
        MSG_SERVICE_REQUEST,
        MSG_UNIMPLEMENTED,
    )

    from tests.ssh.client import STRICT, PlainClient
    from twisted_exec.ssh.door_keys import DoorKey
    from twisted_exec.ssh.packet_ciphers import AEAD_CIPHERS, CIPHERS, MACS
    from twisted_exec.ssh.transport import (
        CLOSING_SECONDS,
        MOST_BYTES_BEFORE_LOGIN,
        MOST_PACKET_BYTES,
        USER_SIGNATURES,
        IFlowControlled,
        ModernFactory,
        ModernTransport,
    )

    @implementer(IFlowControlled)
    class Echo(SSHService):
        """Sends each message back, and records when output is to stop."""

        name = b"ssh-userauth"
        transport: Any

        def __init__(self) -> None:
            self.events: list[str] = []

        def packetReceived(self, messageNum: int, packet: bytes) -> None:
            self.transport.sendPacket(messageNum, packet)

        def output_stopped(self) -> None:
            self.events.append("stopped")

        def output_resumed(self) -> None:
            self.events.append("resumed")

    class Factory(ModernFactory):
        """Has one host key, and a service that echoes."""

        def __init__(self, clock: Clock) -> None:
            super().__init__(clock)
            self.key = DoorKey(Key(Ed25519PrivateKey.generate()))
            self.services = {b"ssh-userauth": Echo}

        def host_keys(self) -> Sequence[DoorKey]:
            return [self.key]


class TransportCase(SynchronousTestCase):
    """A client that is connected."""

    skip = skip

    def setUp(self) -> None:
        self.clock = Clock()
        self.factory = Factory(self.clock)

    def connect(self, client: PlainClient) -> PlainClient:
        self.server: ModernTransport = self.factory.buildProtocol(None)
        self.client = client
        self.pump: IOPump = connect(
            self.server,
            FakeTransport(self.server, isServer=True),
            client,
            FakeTransport(client, isServer=False),
        )
        self.addCleanup(self.end)
        self.pump.flush()
        return client

    def end(self) -> None:
        self.client.transport.loseConnection()
        self.pump.flush()
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def with_service(self, client: PlainClient | None = None) -> PlainClient:
        """Return a client that is logged in, and has the service."""
        client = self.connect(client or PlainClient())
        self.send(MSG_SERVICE_REQUEST, NS(b"ssh-userauth"))
        self.server.logged_in()
        return client

    def send(self, number: int, payload: bytes = b"") -> None:
        self.client.send(number, payload)
        self.pump.flush()

    def refusal(self) -> tuple[int, str]:
        """Return the code and the text with which the server has ended the connection."""
        self.assertTrue(self.client.is_lost)
        [message] = self.client.received(MSG_DISCONNECT)
        return struct.unpack(">L", message[:4])[0], getNS(message[4:])[0].decode()

    def echoes(self, payload: bytes = b"ls\r") -> None:
        """Check that a message goes there and back."""
        before = len(self.client.received(94))
        self.client.sendPacket(94, payload)
        self.pump.flush()
        self.assertEqual(self.client.received(94)[before:], [payload])


class ExchangeTests(TransportCase):
    """The first key exchange."""

    def test_ciphers(self) -> None:
        """Each cipher and MAC carries messages of all sizes, both ways."""
        for cipher, mac in product((*AEAD_CIPHERS, *CIPHERS), MACS):
            client = PlainClient()
            client.supportedCiphers, client.supportedMACs = [cipher], [mac]
            self.with_service(client)
            for size in (0, 1, 10, 11, 12, 16, 32 << 10):
                self.echoes(b"x" * size)
            self.end()

    def test_without_strict(self) -> None:
        """A client without strict key exchange is served; its sequence numbers go on."""
        client = PlainClient()
        client.is_strict = False
        client.supportedKeyExchanges = [b"curve25519-sha256"]
        client.supportedCiphers = [b"aes128-ctr"]
        self.with_service(client)
        self.echoes()
        self.assertGreater(self.server.outgoingPacketSequence, 3)

    def test_strict(self) -> None:
        """With strict key exchange sequence numbers begin anew, also behind later exchanges (CVE-2023-48795)."""
        client = PlainClient()
        client.supportedCiphers = [b"aes128-ctr"]
        self.with_service(client)
        self.echoes()
        self.server.request_keys()
        self.pump.flush()
        self.assertEqual(
            (self.server.incomingPacketSequence, self.server.outgoingPacketSequence), (0, 0)
        )
        self.echoes()
        self.assertEqual(client.exchanges, 2)

    def test_injected(self) -> None:
        """A message that does not belong to a strict key exchange ends the connection."""

        class Injecting(PlainClient):
            """Sends another message before one of the key exchange."""

            def __init__(self, before: int, number: int) -> None:
                super().__init__()
                self.before, self.number = before, number

            def sendPacket(self, messageType: int, payload: bytes) -> None:
                if messageType == self.before:
                    self.send(self.number, NS(b"") + b"\0" * 8)
                super().sendPacket(messageType, payload)

        for before in (MSG_KEXINIT, MSG_KEXDH_INIT, MSG_NEWKEYS):
            for number in (MSG_IGNORE, MSG_UNIMPLEMENTED, MSG_DEBUG, MSG_EXT_INFO, 5, 50, 90, 255):
                self.connect(Injecting(before, number))
                self.assertEqual(
                    self.refusal(), (DISCONNECT_PROTOCOL_ERROR, f"message {number} is out of order")
                )

    def test_guess(self) -> None:
        """A guess of a client that is wrong is passed over."""

        class Guessing(PlainClient):
            supportedKeyExchanges = [b"ecdh-sha2-nistp256", b"curve25519-sha256", STRICT]

            def sendPacket(self, messageType: int, payload: bytes) -> None:
                if messageType == MSG_KEXINIT:
                    payload = payload[:-5] + b"\1" + payload[-4:]
                    self.ourKexInitPayload = bytes((MSG_KEXINIT,)) + payload
                    super().sendPacket(messageType, payload)
                    self.send(MSG_KEXDH_INIT, NS(b"of another exchange"))
                else:
                    super().sendPacket(messageType, payload)

        self.with_service(Guessing())
        self.echoes()

    def test_no_common(self) -> None:
        """A client that has only older algorithms is refused with a sentence."""
        for name, algorithms in (
            ("supportedCiphers", [b"aes128-cbc", b"aes128-ctr@x"]),
            ("supportedKeyExchanges", [b"diffie-hellman-group14-sha1"]),
            ("supportedKeyExchanges", [b"ext-info-s"]),
            ("supportedKeyExchanges", [b"kex-strict-s-v00@openssh.com"]),
            ("supportedPublicKeys", [b"ssh-rsa"]),
            ("supportedCompressions", [b"zlib"]),
        ):
            client = PlainClient()
            setattr(client, name, algorithms)
            client.ssh_KEXINIT = lambda packet: None  # type: ignore[method-assign]
            self.connect(client)
            self.assertEqual(self.refusal()[1], "this server needs newer algorithms of the client")

    def test_old_mac(self) -> None:
        """Counter mode needs a MAC of the encrypted packet; AES-GCM needs none."""
        client = PlainClient()
        client.supportedCiphers, client.supportedMACs = [b"aes128-ctr"], [b"hmac-sha2-256"]
        self.connect(client)
        self.assertEqual(self.refusal()[1], "this server needs newer algorithms of the client")

    def test_extensions(self) -> None:
        """The client learns which signatures of users are taken, right behind the first keys."""
        client = self.connect(PlainClient())
        numbers = [number for number, _ in client.messages]
        self.assertEqual(numbers[numbers.index(MSG_NEWKEYS) + 1], MSG_EXT_INFO)
        [extensions] = client.received(MSG_EXT_INFO)
        expected = struct.pack(">L", 1) + NS(b"server-sig-algs") + NS(b",".join(USER_SIGNATURES))
        self.assertEqual(extensions, expected)

    def test_version(self) -> None:
        """What does not begin as SSH 2.0 is refused at once, and no line is longer than the standard allows."""
        for line, is_served in (
            (b"SSH-2.0-x\r\n", True),
            (b"SSH-2.0-x y\n", True),
            (b"SSH-1.99-x\r\n", True),
            (b"SSH-1.5-x\r\n", False),
            (b"GET / HTTP/1.1\r\n", False),
            (b"\x16\x03\x01", False),
            (b"SSH-2.0-" + b"x" * 250, False),
        ):
            for pieces in ([line], [bytes((each,)) for each in line]):
                server, transport = self.factory.buildProtocol(None), StringTransport()
                server.makeConnection(transport)
                for each in pieces:
                    server.dataReceived(each)
                self.assertEqual(transport.disconnecting, not is_served, line)
                server.connectionLost()


class KeysTests(TransportCase):
    """Later key exchanges."""

    def test_by_bytes(self) -> None:
        """New keys come after a number of bytes in either direction."""
        self.factory.protocol = type("Small", (ModernTransport,), {"rekey_bytes": 100_000})
        client = self.with_service()
        for _ in range(40):
            self.echoes(b"x" * 10_000)
        self.assertGreaterEqual(client.exchanges, 4)

    def test_by_time(self) -> None:
        """New keys come after a time, also on a connection that is idle."""
        client = self.with_service()
        for _ in range(3):
            self.clock.advance(self.server.rekey_seconds)
            self.pump.flush()
        self.assertEqual(client.exchanges, 4)
        self.echoes()

    def test_of_client(self) -> None:
        """The client gets new keys when it asks, and what is sent meanwhile comes in order."""
        client = self.with_service()
        self.clock.advance(2)
        client.sendKexInit()
        for number in range(5):
            self.server.sendPacket(95, bytes((number,)))
        self.pump.flush()
        self.assertEqual(client.received(95), [bytes((number,)) for number in range(5)])
        self.assertEqual(client.exchanges, 2)
        self.echoes()

    def test_data_on_its_way(self) -> None:
        """What the client has sent before it sees our wish for new keys is taken."""
        client = self.with_service()
        client.sendPacket(94, b"ls\r")
        self.server.request_keys()
        self.server.request_keys()  # which is one wish
        self.pump.flush()
        self.assertEqual((client.received(94), client.exchanges), ([b"ls\r"], 2))

    def test_too_often(self) -> None:
        """A client that exchanges keys again and again is refused: that costs much CPU."""
        client = self.with_service()
        for _ in range(20):
            if not client.is_lost:
                client.sendKexInit()
                self.pump.flush()
        self.assertEqual(self.refusal(), (DISCONNECT_PROTOCOL_ERROR, "too many key exchanges"))
        self.assertEqual(client.exchanges, 11)

    def test_before_login(self) -> None:
        """A stranger gets no second key exchange."""
        client = self.connect(PlainClient())
        self.clock.advance(10)
        client.sendKexInit()
        self.pump.flush()
        self.assertEqual(self.refusal(), (DISCONNECT_PROTOCOL_ERROR, "too many key exchanges"))

    def test_never_finished(self) -> None:
        """A client that does not finish an exchange is refused after a while."""

        class Idle(PlainClient):
            def ssh_KEXINIT(self, packet: bytes) -> None:
                if self.is_secure:
                    return
                super().ssh_KEXINIT(packet)

        self.with_service(Idle())
        self.server.request_keys()
        self.pump.flush()
        self.clock.advance(61)
        self.pump.flush()
        self.assertEqual(self.refusal()[1], "the key exchange took too long")

    def test_during(self) -> None:
        """Behind its own wish for keys the client may send nothing else."""
        client = self.with_service()
        self.clock.advance(2)
        client.sendKexInit()
        self.send(94, b"ls\r")
        self.assertEqual(self.refusal()[1], "message 94 is out of order")


class AttackTests(TransportCase):
    """Peers that want to do harm."""

    def test_one_answer(self) -> None:
        """Whatever is wrong with a packet, the answer is the same: an attacker learns nothing by it."""
        for change in ("tag", "content", "length", "giant", "padding"):
            client = self.with_service()
            sealer = client.currentEncryptions.sealer
            packet = bytearray(b"".join(sealer.seal(client.outgoingPacketSequence, 94, b"ls\r")))
            if change == "padding":
                # Signed by the client itself.
                plain = b"\xff" + b"x" * 15
                packet = bytearray(struct.pack(">L", 16))
                packet += sealer._cipher.encrypt(sealer._nonce(), plain, bytes(packet))
            elif change == "giant":
                packet[:4] = struct.pack(">L", MOST_PACKET_BYTES + 16)
            else:
                packet[{"tag": -1, "content": 6, "length": 3}[change]] ^= 1
            client.transport.write(bytes(packet))
            self.pump.flush()
            self.assertEqual(self.refusal(), (DISCONNECT_MAC_ERROR, "corrupt packet"), change)

    def test_giant_before_login(self) -> None:
        """A stranger's packets are small, and so is all that it sends."""
        client = self.connect(PlainClient())
        client.transport.write(struct.pack(">L", 36_000))
        self.pump.flush()
        self.assertEqual(self.refusal()[1], "corrupt packet")
        client = self.connect(PlainClient())
        for _ in range(MOST_BYTES_BEFORE_LOGIN // 30_000 + 1):
            self.send(MSG_IGNORE, NS(b"x" * 30_000))
        self.assertEqual(self.refusal()[1], "too many bytes before the login")

    def test_large(self) -> None:
        """A user's packet may be large, and come in pieces."""
        client = self.with_service()
        payload = b"x" * (MOST_PACKET_BYTES - 100)
        parts = client.currentEncryptions.sealer.seal(client.outgoingPacketSequence, 94, payload)
        packet = b"".join(parts)
        client.outgoingPacketSequence += 1
        self.server.dataReceived(packet[:5])
        self.assertEqual(self.server.missing_bytes, len(packet) - 5)
        for start in range(5, len(packet), 1000):
            self.server.dataReceived(packet[start : start + 1000])
        self.pump.flush()
        self.assertEqual(client.received(94), [payload])
        self.echoes()

    def test_malformed(self) -> None:
        """A message that is cut off ends the connection, with a sentence and no error in the log."""
        for number, payload in (
            (MSG_KEXINIT, b""),
            (MSG_KEXINIT, b"\xff" * 100),
            (MSG_KEXINIT, bytes(16) + struct.pack(">L", 2**32 - 1)),
            (MSG_SERVICE_REQUEST, b"\0"),
            (MSG_SERVICE_REQUEST, NS(b"ssh-unknown")),
        ):
            client = self.connect(PlainClient())
            self.server.logged_in()
            self.clock.advance(2)
            self.send(number, payload)
            self.assertTrue(client.is_lost, (number, payload))

    def test_malformed_share(self) -> None:
        """A wrong share of the key exchange ends the connection."""

        class Wrong(PlainClient):
            def __init__(self, exchange: bytes, share: bytes) -> None:
                super().__init__()
                self.supportedKeyExchanges, self.share = [exchange, STRICT], share

            def ssh_KEXINIT(self, packet: bytes) -> None:
                self.send(MSG_KEXDH_INIT, self.share)

        for exchange, shares in (
            (b"curve25519-sha256", (b"", NS(b"short"), NS(bytes(32)), b"\xff" * 40)),
            (b"mlkem768x25519-sha256", (b"", NS(b"short"), NS(bytes(1216)), NS(b"\xff" * 1216))),
        ):
            for share in shares:
                client = self.connect(Wrong(exchange, share))
                self.assertTrue(client.is_lost)
                self.assertEqual(client.received(MSG_KEXDH_INIT + 1), [], (exchange, share))

    def test_second_service(self) -> None:
        """A second request for a service is refused: it would begin the login anew, with all its attempts."""
        self.with_service()
        self.send(MSG_SERVICE_REQUEST, NS(b"ssh-userauth"))
        self.assertEqual(self.refusal()[1], "a service is requested already")

    def test_unknown_messages(self) -> None:
        """Unknown messages are answered with their number, the others that need no answer with nothing."""
        client = self.connect(PlainClient())
        for number in (MSG_DEBUG, MSG_UNIMPLEMENTED, MSG_IGNORE, MSG_EXT_INFO):
            self.send(number, b"")
        self.send(200)
        self.assertEqual(client.received(MSG_UNIMPLEMENTED), [struct.pack(">L", 4)])
        self.send(MSG_SERVICE_REQUEST, NS(b"ssh-userauth"))
        self.assertEqual(client.received(MSG_SERVICE_ACCEPT), [NS(b"ssh-userauth")])

    def test_late_login(self) -> None:
        """Who is not logged in after a time is refused; who is, is not."""
        self.connect(PlainClient())
        self.clock.advance(self.server.login_seconds)
        self.pump.flush()
        self.assertEqual(self.refusal()[1], "the login took longer than 60 s")
        client = self.with_service()
        self.clock.advance(self.server.login_seconds)
        self.pump.flush()
        self.assertFalse(client.is_lost)

    def test_nothing_behind_the_end(self) -> None:
        """Behind the end of a connection nothing is read or sent."""
        client = self.with_service()
        client.send(MSG_DISCONNECT, struct.pack(">L", 11) + NS(b"") + NS(b""))
        client.send(94, b"ls\r")
        self.pump.flush()
        self.assertEqual((client.received(94), client.is_lost), ([], False))
        self.clock.advance(CLOSING_SECONDS)  # the client does not close the connection
        self.pump.flush()
        self.assertTrue(client.is_lost)
        self.server.sendPacket(94, b"")
        self.server.sendDisconnect(11, b"")
        self.server.dataReceived(b"x")


class FlowTests(TransportCase):
    """Output that the client does not take."""

    def test_congested(self) -> None:
        """A connection that is full stops its service, and its answers, until it has room."""
        self.with_service()
        service: Any = self.server.service
        reads: list[str] = []
        self.server.transport.pauseProducing = lambda: reads.append("pause")
        self.server.transport.resumeProducing = lambda: reads.append("resume")
        self.server.pauseProducing()
        self.assertEqual((service.events, self.server.is_stopped, reads), (["stopped"], True, []))
        for _ in range(100):
            self.echoes(b"x" * 10_000)  # whose sender does not read the answers
        self.assertEqual(reads, ["pause"])
        self.server.resumeProducing()
        self.assertEqual((service.events, self.server.is_stopped), (["stopped", "resumed"], False))
        self.assertEqual(reads, ["pause", "resume"])

    def test_during_exchange(self) -> None:
        """While keys are exchanged, output is held up to a bound, and nothing is lost."""
        client = self.with_service()
        service: Any = self.server.service
        self.server.request_keys()
        for _ in range(30):
            self.server.sendPacket(95, b"x" * 10_000)
        self.assertEqual(service.events, ["stopped"])
        self.pump.flush()
        self.assertEqual(service.events, ["stopped", "resumed"])
        self.assertEqual(len(client.received(95)), 30)
