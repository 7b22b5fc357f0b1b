"""
The server's side of the SSH transport protocol (RFC 4253) for Conch, with what OpenSSH expects today.

Beside Conch's: AES-GCM, encrypt-then-MAC, strict key exchange (CVE-2023-48795), new keys by bytes and by time, host certificates,
bounds before the login, and flow control of the output.  It has nothing of Conch's older algorithms.
Sources: RFC 4253, RFC 8308 (extensions), and ``PROTOCOL`` of OpenSSH, sections 1.5 to 1.11.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Sequence
from typing import Any, Protocol

from cryptography.exceptions import UnsupportedAlgorithm
from twisted.conch.ssh.common import NS, ffs, getNS
from twisted.conch.ssh.factory import SSHFactory
from twisted.conch.ssh.transport import (
    DISCONNECT_BY_APPLICATION,
    DISCONNECT_KEY_EXCHANGE_FAILED,
    DISCONNECT_MAC_ERROR,
    DISCONNECT_PROTOCOL_ERROR,
    MSG_DEBUG,
    MSG_DISCONNECT,
    MSG_EXT_INFO,
    MSG_IGNORE,
    MSG_KEXDH_INIT,
    MSG_KEXDH_REPLY,
    MSG_KEXINIT,
    MSG_NEWKEYS,
    MSG_UNIMPLEMENTED,
    SSHServerTransport,
)
from twisted.internet.interfaces import (
    IAddress,
    IConsumer,
    IDelayedCall,
    IPushProducer,
    IReactorTime,
    ITCPTransport,
)
from twisted.logger import Logger, LogLevel
from twisted.python.failure import Failure
from twisted.python.randbytes import secureRandom
from zope.interface import Interface, implementer

from twisted_exec.ssh.key_exchange import EXCHANGES, derived_keys, exchange_hash
from twisted_exec.ssh.packet_ciphers import (
    AEAD_CIPHERS,
    CIPHERS,
    LENGTH_BYTES,
    MACS,
    CorruptPacket,
    NoCipher,
    Opener,
    Sealer,
    packet_cipher,
)

USER_SIGNATURES = (
    b"ssh-ed25519",
    b"sk-ssh-ed25519@openssh.com",
    b"ecdsa-sha2-nistp256",
    b"ecdsa-sha2-nistp384",
    b"ecdsa-sha2-nistp521",
    b"sk-ecdsa-sha2-nistp256@openssh.com",
    b"rsa-sha2-512",
    b"rsa-sha2-256",
)
"""Signature algorithms of users' keys (``server-sig-algs`` of RFC 8308)."""

MOST_VERSION_BYTES = 255
MOST_PACKET_BYTES = 256 << 10
MOST_PACKET_BYTES_BEFORE_LOGIN = 35_000
"""RFC 4253, section 6.1: as much must be taken."""
MOST_BYTES_BEFORE_LOGIN = 256 << 10
"""All that a client may send before it is logged in."""
CLOSING_SECONDS = 2.0
"""Time for a client to read the last message, and to close the connection."""

_EXTENSIONS_CLIENT, _EXTENSIONS_SERVER = b"ext-info-c", b"ext-info-s"
_STRICT_CLIENT, _STRICT_SERVER = b"kex-strict-c-v00@openssh.com", b"kex-strict-s-v00@openssh.com"
_EXCHANGE_SECONDS = 60.0
_FEWEST_BYTES_OF_KEYS = 16 << 10  # as OpenSSH's least RekeyLimit
_FEWEST_SECONDS_OF_KEYS = 1.0
_MOST_EARLY_EXCHANGES = 10
_MOST_HELD_BYTES = 256 << 10
_PACKET_OVERHEAD = 64
_WITHOUT_ANSWER = (MSG_IGNORE, MSG_UNIMPLEMENTED, MSG_DEBUG)
_FIRST_OF_SERVICES = 50

_MALFORMED = (
    struct.error,
    IndexError,
    KeyError,
    TypeError,
    ValueError,
    UnsupportedAlgorithm,
)
"""What Conch's handlers raise for messages that are cut off, or that name what does not exist."""


class HostKey(Protocol):
    """A server's key, with or without a certificate."""

    @property
    def algorithms(self) -> Sequence[bytes]:
        """Host key algorithms, the best one first."""

    def blob(self, algorithm: bytes) -> bytes:
        """Return the public key, or the certificate, which the client verifies."""

    def sign(self, data: bytes, algorithm: bytes) -> bytes:
        """Return a signature, with its type."""


class IFlowControlled(Interface):
    """A service that stops its output while the connection takes none."""

    def output_stopped() -> None:
        """Write no more for now."""

    def output_resumed() -> None:
        """Write again."""


class Exchange(enum.Enum):
    """How far a key exchange is."""

    NONE = enum.auto()
    OFFERED = enum.auto()  # our KEXINIT is sent
    AGREED = enum.auto()  # the client's is there, too
    KEYED = enum.auto()  # our NEWKEYS is sent


class ModernFactory(SSHFactory):
    """
    Makes the server's ends of connections, with Conch's services and portal.

    :param clock: of their time limits.
    """

    noisy = False
    protocol: Any

    def __init__(self, clock: IReactorTime) -> None:
        self.clock = clock
        self.protocol = ModernTransport

    def host_keys(self) -> Sequence[HostKey]:
        """Return the keys of the next connection, in the order of preference."""
        raise NotImplementedError

    def startFactory(self) -> None:
        """The keys are asked for with each connection."""

    def buildProtocol(self, addr: IAddress | None) -> ModernTransport:
        transport: ModernTransport = self.protocol(self.host_keys(), self.clock)
        transport.factory = self
        return transport


@implementer(IPushProducer)
class ModernTransport(SSHServerTransport):
    """
    A server's end of a connection.

    Its factory is that of Conch, with the services.

    :param host_keys: of this connection, in the order of preference; they stay, as clients refuse another key when keys are exchanged again.
    :param clock: of the time limits.
    :ivar login_seconds: from the begin of the connection until :meth:`logged_in`; the connection is lost then.
    :ivar rekey_bytes: new keys are exchanged after so many bytes in one direction,
    :ivar rekey_seconds: or after this time.
    """

    ourVersionString = b"SSH-2.0-Twisted"
    supportedKeyExchanges = [*EXCHANGES]
    supportedCiphers = [*AEAD_CIPHERS, *CIPHERS]
    supportedMACs = [*MACS]
    supportedCompressions = [b"none"]
    user_signatures: Sequence[bytes] = USER_SIGNATURES
    login_seconds = 60.0
    rekey_bytes = 1 << 30
    rekey_seconds = 3600.0

    transport: Any
    avatar: Any = None
    log = Logger()

    def __init__(self, host_keys: Sequence[HostKey], clock: IReactorTime) -> None:
        self.host_keys = {name: key for key in reversed(host_keys) for name in key.algorithms}
        self.supportedPublicKeys = [name for key in host_keys for name in key.algorithms]
        self.clock = clock
        self.is_logged_in = False
        self._is_over = False
        # Input.
        self._input = bytearray()
        self._wanted = 1
        self._received_before_login = 0
        self._opener: Opener = NoCipher()
        # Output.
        self._sealer: Sealer = NoCipher()
        self._held: list[tuple[int, bytes]] = []  # until the key exchange is over
        self._held_bytes = 0
        self._is_congested = self._is_stopped = self._is_deaf = False
        self._congested_bytes = 0
        # Keys.
        self._exchange = Exchange.NONE
        self._is_strict = self._has_keys = self._takes_extensions = False
        self._next_in: Opener | None = None
        self._algorithms: Sequence[bytes] = ()
        self._bytes_out = self._bytes_in = 0  # with the present keys
        self._keys_since, self._early_exchanges = 0.0, 0
        self._timers: dict[str, IDelayedCall] = {}

    # The connection.

    def connectionMade(self) -> None:
        self._timer("login", self.login_seconds, self._too_late)
        if IConsumer.providedBy(self.transport):
            self.transport.registerProducer(self, True)
        self.transport.write(self.ourVersionString + b"\r\n")
        self.sendKexInit()

    def connectionLost(self, reason: Failure | None = None) -> None:
        self._is_over = True
        for name in list(self._timers):
            self._cancel(name)
        self._held, self._input = [], bytearray()
        if self.service is not None:
            self.service.serviceStopped()
        if self.avatar is not None:  # Conch's login has set both
            self.logoutFunction()

    def logged_in(self) -> None:
        """The client is known: the bounds for strangers end."""
        self.is_logged_in = True
        self._cancel("login")

    def _too_late(self) -> None:
        self.sendDisconnect(
            DISCONNECT_BY_APPLICATION, b"the login took longer than %d s" % self.login_seconds
        )

    def sendDisconnect(self, reason: int, desc: bytes | str) -> None:
        """
        End the connection with a message.

        :param desc: a sentence for the user.
        """
        if self._is_over:
            return
        self._write(MSG_DISCONNECT, struct.pack(">L", reason) + NS(desc) + NS(b""))
        self._end()

    def _end(self) -> None:
        self._is_over = True
        transport = self.transport
        if not ITCPTransport.providedBy(transport):
            self.transport.loseConnection()
            return
        # The client closes the connection: if this side did, while the client still sends, TCP would reset it, and the last
        # message could be lost.
        self.transport.unregisterProducer()
        self.transport.loseWriteConnection()
        self.transport.resumeProducing()
        self._timer("end", CLOSING_SECONDS, self.transport.abortConnection)

    def _timer(self, name: str, seconds: float, function: Any) -> None:
        self._cancel(name)
        self._timers[name] = self.clock.callLater(seconds, self._fired, name, function)

    def _fired(self, name: str, function: Any) -> None:
        del self._timers[name]
        function()

    def _cancel(self, name: str) -> None:
        if timer := self._timers.pop(name, None):
            timer.cancel()

    def isEncrypted(self, direction: str = "out") -> bool:
        return self._has_keys

    def isVerified(self, direction: str = "out") -> bool:
        return self._has_keys

    # Input.

    def dataReceived(self, data: bytes) -> None:
        if self._is_over:
            return
        if not self.is_logged_in:
            self._received_before_login += len(data)
            if self._received_before_login > MOST_BYTES_BEFORE_LOGIN:
                self.sendDisconnect(DISCONNECT_PROTOCOL_ERROR, b"too many bytes before the login")
                return
        if self._input or len(data) < self._wanted:
            self._input += data
            if len(self._input) < self._wanted:
                return
            data = bytes(self._input)
            self._input.clear()
        view = memoryview(data)
        start = self._version(view)
        while not self._is_over:
            end = self._packet_end(view, start)
            self._wanted = end - start
            if self._is_over or end > len(view):
                break
            self._packet(view[start:end])
            start = end
        self._input += view[start:]

    @property
    def missing_bytes(self) -> int:
        """How many more bytes must come before something is done with them."""
        return max(0, self._wanted - len(self._input))

    def _version(self, view: memoryview) -> int:
        """Read the client's version, once; return its size."""
        if self.gotVersion:
            return 0
        line, newline, _ = bytes(view[:MOST_VERSION_BYTES]).partition(b"\n")
        if not newline and len(line) < MOST_VERSION_BYTES and b"SSH-"[: len(line)] == line[:4]:
            return 0
        self.otherVersionString = line.rstrip(b"\r")
        if not newline or not line.startswith((b"SSH-2.0-", b"SSH-1.99-")):
            self.sendDisconnect(DISCONNECT_PROTOCOL_ERROR, b"this is a server for SSH 2.0")
            return 0
        self.gotVersion = True
        return len(line) + 1

    def _packet_end(self, view: memoryview, start: int) -> int:
        if not self.gotVersion:
            return len(view) + 1
        if len(view) - start < LENGTH_BYTES:
            return start + LENGTH_BYTES
        length = int.from_bytes(view[start : start + LENGTH_BYTES], "big")
        most = MOST_PACKET_BYTES if self.is_logged_in else MOST_PACKET_BYTES_BEFORE_LOGIN
        if length > most or not self._opener.is_length(length):
            self._corrupt()
        return start + LENGTH_BYTES + length + self._opener.tag_bytes

    def _packet(self, packet: memoryview) -> None:
        try:
            message = self._opener.open(self.incomingPacketSequence, packet)
        except CorruptPacket:
            self._corrupt()
            return
        self._bytes_in += len(packet)
        self.dispatchMessage(message[0], message[1:])
        self.incomingPacketSequence = (self.incomingPacketSequence + 1) & 0xFFFFFFFF
        if message[0] == MSG_NEWKEYS and self._is_strict:
            self.incomingPacketSequence = 0
        if self._bytes_in > self.rekey_bytes:
            self.request_keys()

    def _corrupt(self) -> None:
        # One answer for whatever is wrong: an attacker learns nothing by it.
        self.sendDisconnect(DISCONNECT_MAC_ERROR, b"corrupt packet")

    def dispatchMessage(self, messageNum: int, payload: bytes) -> None:
        if not self._is_expected(messageNum):
            self.sendDisconnect(
                DISCONNECT_PROTOCOL_ERROR, b"message %d is out of order" % messageNum
            )
            return
        try:
            super().dispatchMessage(messageNum, payload)
        except _MALFORMED as error:
            # Strangers could fill a disk with it.
            self.log.emit(
                LogLevel.warn if self.is_logged_in else LogLevel.debug,
                "message {number} is malformed: {error!r}",
                number=messageNum,
                error=error,
            )
            self.sendDisconnect(DISCONNECT_PROTOCOL_ERROR, b"message %d is malformed" % messageNum)

    def _is_expected(self, number: int) -> bool:
        """Return whether the client may send a message now."""
        if number == MSG_DISCONNECT:
            return True
        is_of_exchange = MSG_KEXINIT <= number < _FIRST_OF_SERVICES
        match self._exchange:
            case Exchange.NONE:
                return number == MSG_KEXINIT or not is_of_exchange
            case Exchange.OFFERED:
                # What the client has sent before it saw our offer is still on its way.
                return number == MSG_KEXINIT or (self._has_keys and not is_of_exchange)
            case Exchange.AGREED:
                expected = MSG_KEXDH_INIT
            case Exchange.KEYED:
                expected = MSG_NEWKEYS
        if number in _WITHOUT_ANSWER:
            return self._has_keys or not self._is_strict
        return number == expected

    # Output.

    def sendPacket(self, messageType: int, payload: bytes) -> None:
        if self._is_over:
            return
        if (
            self._exchange in (Exchange.OFFERED, Exchange.AGREED)
            and messageType not in _WITHOUT_ANSWER
            and not MSG_KEXINIT <= messageType < _FIRST_OF_SERVICES
        ):
            self._held.append((messageType, payload))
            self._held_bytes += len(payload) + _PACKET_OVERHEAD
            if self._held_bytes > _MOST_HELD_BYTES:
                self._control_flow()
            return
        self._write(messageType, payload)
        if self._bytes_out > self.rekey_bytes:
            self.request_keys()

    def _write(self, number: int, payload: bytes) -> None:
        parts = self._sealer.seal(self.outgoingPacketSequence, number, payload)
        self.outgoingPacketSequence = (self.outgoingPacketSequence + 1) & 0xFFFFFFFF
        size = len(payload) + _PACKET_OVERHEAD
        self._bytes_out += size
        self.transport.writeSequence(parts)
        if self._is_congested and not self._is_deaf:
            self._congested_bytes += size
            if self._congested_bytes > _MOST_HELD_BYTES:
                # Answers to requests: their sender does not read them.
                self._is_deaf = True
                self.transport.pauseProducing()

    def pauseProducing(self) -> None:
        """The connection takes no more output for now."""
        self._is_congested, self._congested_bytes = True, 0
        self._control_flow()

    def resumeProducing(self) -> None:
        """The connection takes output again."""
        self._is_congested = False
        if self._is_deaf and not self._is_over:
            self._is_deaf = False
            self.transport.resumeProducing()
        self._control_flow()

    def stopProducing(self) -> None:
        """The connection is lost."""

    @property
    def is_stopped(self) -> bool:
        """True while services should write no output."""
        return self._is_stopped

    def _control_flow(self) -> None:
        is_stopped = self._is_congested or self._held_bytes > _MOST_HELD_BYTES
        if is_stopped == self._is_stopped:
            return
        self._is_stopped = is_stopped
        if IFlowControlled.providedBy(self.service):
            service: Any = self.service
            if is_stopped:
                service.output_stopped()
            else:
                service.output_resumed()

    # Messages.

    def ssh_DISCONNECT(self, packet: bytes) -> None:
        self._end()

    def ssh_UNIMPLEMENTED(self, packet: bytes) -> None:
        """Nothing that is sent needs an answer."""

    def ssh_DEBUG(self, packet: bytes) -> None:
        """Clients' messages are of no use here."""

    def ssh_EXT_INFO(self, packet: bytes) -> None:
        """No extension of clients is used."""

    def ssh_SERVICE_REQUEST(self, packet: bytes) -> None:
        # A second one would begin the login anew, with all its attempts.
        if self.service is not None:
            self.sendDisconnect(DISCONNECT_PROTOCOL_ERROR, b"a service is requested already")
        else:
            super().ssh_SERVICE_REQUEST(packet)

    # Keys.

    def request_keys(self) -> None:
        """Exchange new keys, unless that goes on already."""
        if self._exchange is Exchange.NONE and self._has_keys and not self._is_over:
            self.sendKexInit()

    def sendKexInit(self) -> None:
        names = [
            [*self.supportedKeyExchanges, _EXTENSIONS_SERVER, _STRICT_SERVER],
            self.supportedPublicKeys,
            self.supportedCiphers,
            self.supportedCiphers,
            self.supportedMACs,
            self.supportedMACs,
            self.supportedCompressions,
            self.supportedCompressions,
            [],
            [],
        ]
        lists = b"".join(NS(b",".join(each)) for each in names)
        payload = secureRandom(16) + lists + b"\0" * 5
        self.ourKexInitPayload = bytes((MSG_KEXINIT,)) + payload
        self._exchange = Exchange.OFFERED
        self._write(MSG_KEXINIT, payload)
        if self._has_keys:
            self._timer("exchange", _EXCHANGE_SECONDS, self._without_keys)

    def _without_keys(self) -> None:
        self.sendDisconnect(DISCONNECT_KEY_EXCHANGE_FAILED, b"the key exchange took too long")

    def ssh_KEXINIT(self, packet: bytes) -> None:
        if self._exchange is Exchange.NONE:
            if not self._may_have_keys():
                self.sendDisconnect(DISCONNECT_PROTOCOL_ERROR, b"too many key exchanges")
                return
            self.sendKexInit()
        self.otherKexInitPayload = bytes((MSG_KEXINIT,)) + packet
        *texts, rest = getNS(packet[16:], 10)
        lists = [text.split(b",") for text in texts]
        exchanges, host_keys, cipher_in, cipher_out, mac_in, mac_out, none_in, none_out, *_ = lists
        self.kexAlg = ffs(exchanges, self.supportedKeyExchanges)
        self.keyAlg = ffs(host_keys, self.supportedPublicKeys)
        ciphers = [ffs(each, self.supportedCiphers) for each in (cipher_in, cipher_out)]
        macs = [
            b"" if cipher in AEAD_CIPHERS else ffs(each, self.supportedMACs)
            for cipher, each in zip(ciphers, (mac_in, mac_out), strict=True)
        ]
        without = [ffs(each, self.supportedCompressions) for each in (none_in, none_out)]
        self._algorithms = (*ciphers, *macs)
        if None in (self.kexAlg, self.keyAlg, *self._algorithms, *without):
            self.sendDisconnect(
                DISCONNECT_KEY_EXCHANGE_FAILED, b"this server needs newer algorithms of the client"
            )
            return
        if not self._has_keys:
            self._is_strict = _STRICT_CLIENT in exchanges
            self._takes_extensions = _EXTENSIONS_CLIENT in exchanges
        guesses = (exchanges[0], host_keys[0])
        best = (self.supportedKeyExchanges[0], self.supportedPublicKeys[0])
        self.ignoreNextPacket = bool(rest[0] and guesses != best)
        self._exchange = Exchange.AGREED

    def _may_have_keys(self) -> bool:
        """Return whether the client may have new keys now: they cost far more CPU than what it sends for them."""
        if (
            self._bytes_in + self._bytes_out < _FEWEST_BYTES_OF_KEYS
            and self.clock.seconds() - self._keys_since < _FEWEST_SECONDS_OF_KEYS
        ):
            # OpenSSH with a small RekeyLimit does it before its first large packet.
            self._early_exchanges += 1
        return self.is_logged_in and self._early_exchanges <= _MOST_EARLY_EXCHANGES

    def ssh_KEX_DH_GEX_REQUEST_OLD(self, packet: bytes) -> None:
        """Handle the client's share; Conch names its number so."""
        if self.ignoreNextPacket:
            self.ignoreNextPacket = 0
            return
        share, _ = getNS(packet)
        host_key = self.host_keys[self.keyAlg]
        secret, reply = EXCHANGES[self.kexAlg](share)
        signed = exchange_hash(
            secret,
            self.otherVersionString,
            self.ourVersionString,
            self.otherKexInitPayload,
            self.ourKexInitPayload,
            host_key.blob(self.keyAlg),
            share,
            reply,
        )
        signature = host_key.sign(signed, self.keyAlg)
        parts = (host_key.blob(self.keyAlg), reply, signature)
        self._write(MSG_KEXDH_REPLY, b"".join(map(NS, parts)))
        if self.sessionID is None:
            self.sessionID = signed
        self._use_keys(*derived_keys(secret, signed, self.sessionID))

    def _use_keys(
        self,
        iv_in: bytes,
        iv_out: bytes,
        key_in: bytes,
        key_out: bytes,
        mac_key_in: bytes,
        mac_key_out: bytes,
    ) -> None:
        """Take the keys of an exchange; those for output are used at once."""
        cipher_in, cipher_out, mac_in, mac_out = self._algorithms
        self._next_in = packet_cipher(cipher_in, mac_in, key_in, iv_in, mac_key_in, sends=False)
        self._write(MSG_NEWKEYS, b"")
        self._sealer = packet_cipher(cipher_out, mac_out, key_out, iv_out, mac_key_out, sends=True)
        if self._is_strict:
            self.outgoingPacketSequence = 0
        self._bytes_out = 0
        self._exchange = Exchange.KEYED
        if not self._has_keys and self._takes_extensions:
            names = b",".join(self.user_signatures)
            self._write(MSG_EXT_INFO, struct.pack(">L", 1) + NS(b"server-sig-algs") + NS(names))
        held, self._held, self._held_bytes = self._held, [], 0
        for message in held:
            self.sendPacket(*message)
        self._control_flow()

    def ssh_NEWKEYS(self, packet: bytes) -> None:
        if packet:
            raise ValueError("NEWKEYS has no data")
        assert self._next_in is not None
        self._opener, self._next_in = self._next_in, None
        self._exchange, self._has_keys = Exchange.NONE, True
        self._bytes_in = 0
        self._keys_since = self.clock.seconds()
        self._cancel("exchange")
        self._timer("keys", self.rekey_seconds, self.request_keys)
