"""
Support for TLS tests: authorities, files, and two ends of a real connection.
"""

from __future__ import annotations

import os
from base64 import b64decode, b64encode
from collections.abc import Sequence
from datetime import timedelta
from functools import cache
from ipaddress import ip_address
from typing import Any

from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from twisted.internet import reactor as _reactor
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.interfaces import IAddress
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.python.failure import Failure
from twisted.trial.unittest import TestCase

from twisted_exec.tls.client import ClientTLS
from twisted_exec.tls.endpoints import client_endpoint, server_endpoint
from twisted_exec.tls.pki.authority import Authority, Issued
from twisted_exec.tls.server import ServerTLS

reactor: Any = _reactor


@cache
def authority(name: str) -> Authority:
    """An authority, the same one for the same name as long as the tests run."""
    return Authority.create(name)


@cache
def server_identity(*names: str) -> Issued:
    """A server certificate from the authority ``serving``."""
    return authority("serving").issue_server(names)


@cache
def client_identity(user: str, *groups: str, ca: str = "users") -> Issued:
    """A client certificate."""
    return authority(ca).issue_client(user, groups)


def alternatives(*names: x509.GeneralName | str) -> x509.SubjectAlternativeName:
    """Subject alternative names of any text; a string is a DNS name, whatever it holds."""
    return x509.SubjectAlternativeName(
        [x509.DNSName(each) if isinstance(each, str) else each for each in names]
    )


CLIENT_GO = alternatives(
    "127.0.0.1", x509.IPAddress(ip_address("192.0.2.2")), x509.IPAddress(ip_address("127.0.0.1"))
)
"""The names of a certificate that kcp, a kubelet or a kube-apiserver signs for itself."""


def named(
    names: x509.ExtensionType,
    *,
    common_name: str = "localhost",
    ca: str = "serving",
    usage: x509.ObjectIdentifier = ExtendedKeyUsageOID.SERVER_AUTH,
) -> Issued:
    """A certificate with subject alternative names that an authority of ours would not issue."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    return authority(ca)._issue(
        subject,
        usage,
        now=None,
        life=timedelta(days=1),
        names=names,  # type: ignore[arg-type]
    )


def write(directory: str, name: str, content: bytes) -> str:
    """Write a file so that a reader finds the old or the new one; its path."""
    path = os.path.join(directory, name)
    with open(f"{path}.new", "wb") as stream:
        stream.write(content)
    os.replace(f"{path}.new", path)
    return path


class Recorder(Protocol):
    """Keeps what it receives and how its connection ended."""

    def __init__(self) -> None:
        self.received = b""
        self.made: Deferred[Recorder] = Deferred()
        self.lost: Deferred[BaseException | None] = Deferred()
        self._wanted: tuple[int, Deferred[bytes]] | None = None

    transport: Any

    def connectionMade(self) -> None:
        self.made.callback(self)

    def dataReceived(self, data: bytes) -> None:
        self.received += data
        self._look()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.lost.callback(reason.value)  # not the Failure: it is no error here

    def has(self, length: int) -> Deferred[bytes]:
        """Fires when at least so many bytes have come."""
        self._wanted = (length, Deferred())
        answer = self._wanted[1]
        self._look()
        return answer

    def _look(self) -> None:
        if self._wanted is not None and len(self.received) >= self._wanted[0]:
            answer, self._wanted = self._wanted[1], None
            answer.callback(self.received)


class Recorders(Factory):
    """Makes recorders and remembers them."""

    noisy = False

    def __init__(self, protocol: type[Recorder] = Recorder) -> None:
        self.made: list[Any] = []
        self._kind = protocol
        self._next: Deferred[Any] = Deferred()

    def buildProtocol(self, addr: IAddress | None) -> Any:
        recorder = self._kind()
        self.made.append(recorder)
        recorder.made.addCallback(self._connected)
        return recorder

    def _connected(self, recorder: Recorder) -> Recorder:
        waiting, self._next = self._next, Deferred()
        waiting.callback(recorder)
        return recorder

    def next(self) -> Deferred[Any]:
        """Fires with the next recorder that is connected."""
        return self._next

    def end(self) -> Deferred[list[Any]]:
        """End all connections; fires when they are lost."""
        connected = [recorder for recorder in self.made if recorder.made.called]
        for recorder in connected:
            recorder.transport.abortConnection()
        return gatherResults([each.lost for each in connected if not each.lost.called])


class LoopbackCase(TestCase):
    """Real sockets on loopback, all closed in the end."""

    def setUp(self) -> None:
        self.directory = self.mktemp()
        os.makedirs(self.directory)

    def recorders(self, protocol: type[Recorder] = Recorder) -> Recorders:
        """A factory whose connections end with the test."""
        made = Recorders(protocol)
        self.addCleanup(made.end)
        return made

    def write(self, name: str, content: bytes) -> str:
        """A file of the test's own."""
        return write(self.directory, name, content)

    def server_tls(
        self,
        identity: Issued | None = None,
        *,
        client_cas: Sequence[str] = (),
        clock: Any = reactor,
        **more: Any,
    ) -> ServerTLS:
        """A server by files ``tls.crt`` and ``tls.key``."""
        shown = identity or server_identity("localhost", "127.0.0.1")
        return ServerTLS(
            self.write("tls.crt", shown.certificate_pem),
            self.write("tls.key", shown.key_pem),
            client_cas=client_cas,
            clock=clock,
            **more,
        )

    def client_tls(self, hostname: str = "localhost", **more: Any) -> ClientTLS:
        """A client that trusts the authority ``serving``."""
        return ClientTLS(hostname, **{"ca_pem": authority("serving").certificate_pem, **more})

    async def listen(
        self, factory: Any, tls: ServerTLS | None, description: str = "tcp:0:interface=127.0.0.1"
    ) -> Any:
        """A listening port that is closed in the end."""
        port = await server_endpoint(reactor, description, tls).listen(factory)
        self.addCleanup(port.stopListening)
        return port

    async def connect(self, port: Any, tls: ClientTLS | None, factory: Any = None) -> Any:
        """Connect to a listening port; the protocol."""
        endpoint = client_endpoint(reactor, "127.0.0.1", port.getHost().port, tls)
        return await endpoint.connect(factory or self.recorders())

    async def pair(
        self, server: ServerTLS | None, client: ClientTLS | None
    ) -> tuple[Recorder, Recorder]:
        """The server's and the client's end of one connection."""
        recorders = self.recorders()
        port = await self.listen(recorders, server)
        accepted = recorders.next()
        connected = await self.connect(port, client)
        return await accepted, connected


def replaced(encoding: bytes, other: bytes) -> bytes:
    """A certificate with a part of its DER replaced."""
    der = b64decode(b"".join(client_identity("jane").certificate_pem.splitlines()[1:-1]))
    text = b64encode(der.replace(encoding, other))
    return b"-----BEGIN CERTIFICATE-----\n" + text + b"\n-----END CERTIFICATE-----\n"


def with_unknown_curve() -> bytes:
    """A certificate with a key of a curve that nobody knows."""
    return replaced(b"\x2a\x86\x48\xce\x3d\x03\x01\x07", b"\x2a\x86\x48\xce\x3d\x03\x01\x77")
