"""
A client of Conch with the packet ciphers and the strict key exchange of ``twisted_exec.ssh``.
"""

from __future__ import annotations

from typing import Any

from twisted.conch.ssh.connection import SSHConnection
from twisted.conch.ssh.transport import (
    MSG_KEXINIT,
    MSG_NEWKEYS,
    MSG_SERVICE_ACCEPT,
    SSHCiphers,
    SSHClientTransport,
)
from twisted.conch.ssh.userauth import SSHUserAuthClient
from twisted.internet.defer import Deferred, succeed
from twisted.python.failure import Failure

from twisted_exec.ssh.packet_ciphers import LENGTH_BYTES, NoCipher, Opener, Sealer, packet_cipher

STRICT = b"kex-strict-c-v00@openssh.com"


class _Ciphers(SSHCiphers):
    sealer: Sealer = NoCipher()
    opener: Opener = NoCipher()

    def setKeys(
        self,
        outIV: bytes,
        outKey: bytes,
        inIV: bytes,
        inKey: bytes,
        outInteg: bytes,
        inInteg: bytes,
    ) -> None:
        self.sealer = packet_cipher(
            self.outCipType, self.outMACType, outKey, outIV, outInteg, sends=True
        )
        self.opener = packet_cipher(
            self.inCipType, self.inMACType, inKey, inIV, inInteg, sends=False
        )
        self.encBlockSize = 16


class PlainClient(SSHClientTransport):
    """
    Exchanges keys, and records the messages of the server.

    :ivar messages: numbers and payloads, in order.
    """

    supportedCiphers = [b"aes128-gcm@openssh.com"]
    supportedMACs = [b"hmac-sha2-256-etm@openssh.com"]
    supportedKeyExchanges = [b"curve25519-sha256", STRICT]
    supportedPublicKeys = [b"ssh-ed25519"]
    is_strict = True
    transport: Any
    currentEncryptions: Any

    def __init__(self) -> None:
        self.messages: list[tuple[int, bytes]] = []
        self.is_secure = self.is_lost = False
        self._gotNewKeys = 0
        self.instance: Any = None  # the service that is requested

    def verifyHostKey(self, hostKey: bytes, fingerprint: bytes) -> Deferred[int]:
        self.host_key = hostKey
        return succeed(1)

    def connectionSecure(self) -> None:
        self.is_secure = True

    def connectionLost(self, reason: Failure | None = None) -> None:
        self.is_lost = True
        super().connectionLost(reason)

    def connectionMade(self) -> None:
        self.transport.write(self.ourVersionString + b"\r\n")
        self.currentEncryptions = _Ciphers(b"none", b"none", b"none", b"none")
        self.sendKexInit()

    def ssh_KEXINIT(self, packet: bytes) -> Any:
        result = super().ssh_KEXINIT(packet)
        chosen = self.nextEncryptions
        self.nextEncryptions = _Ciphers(
            chosen.outCipType, chosen.inCipType, chosen.outMACType, chosen.inMACType
        )
        return result

    def sendPacket(self, messageType: int, payload: bytes) -> None:
        if self._keyExchangeState != self._KEY_EXCHANGE_NONE and messageType >= 50:
            self._blockedByKeyExchange.append((messageType, payload))
            return
        self.send(messageType, payload)
        if messageType == MSG_NEWKEYS and self.is_strict:
            self.outgoingPacketSequence = 0

    def send(self, number: int, payload: bytes = b"") -> None:
        """Send a message whatever the state."""
        parts = self.currentEncryptions.sealer.seal(self.outgoingPacketSequence, number, payload)
        self.outgoingPacketSequence += 1
        self.transport.writeSequence(parts)

    def getPacket(self) -> bytes | None:
        opener = self.currentEncryptions.opener
        length = int.from_bytes(self.buf[:LENGTH_BYTES], "big")
        end = LENGTH_BYTES + length + opener.tag_bytes
        if len(self.buf) < max(LENGTH_BYTES, end):
            return None
        packet, self.buf = self.buf[:end], self.buf[end:]
        message: bytes = opener.open(self.incomingPacketSequence, memoryview(packet))
        self.incomingPacketSequence += 1
        if message[0] == MSG_NEWKEYS and self.is_strict:
            self.incomingPacketSequence = 0
        self.messages.append((message[0], message[1:]))
        return message

    def dispatchMessage(self, messageNum: int, payload: bytes) -> None:
        is_expected = self.service is not None or messageNum < 50
        if self.instance is not None if messageNum == MSG_SERVICE_ACCEPT else is_expected:
            super().dispatchMessage(messageNum, payload)

    def received(self, number: int) -> list[bytes]:
        """Return the payloads of the messages with a number."""
        return [payload for each, payload in self.messages if each == number]

    @property
    def exchanges(self) -> int:
        """The number of key exchanges that have begun."""
        return len(self.received(MSG_KEXINIT))


class Client(PlainClient):
    """Logs in without a key."""

    def __init__(self) -> None:
        super().__init__()
        self.connection = SSHConnection()

    def connectionSecure(self) -> None:
        super().connectionSecure()
        self.requestService(SSHUserAuthClient(b"ada", self.connection))
