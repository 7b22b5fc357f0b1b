"""
From a kubeconfig to a connection: endpoint and headers of one API server.

Shared by the client and by the console client, so that both reach the same
server as the same user.  Nothing is cached here: PEM and token files are read
when a connection is made or a request is sent, so renewed credentials are
picked up without a restart.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.endpoints import HostnameEndpoint
from twisted.internet.interfaces import IProtocol, IProtocolFactory, IStreamClientEndpoint
from twisted.python.failure import Failure
from zope.interface import implementer

from twisted_exec.kube.kubeconfig import ClientConfig, KubeConfigError, is_loopback, read_file
from twisted_exec.tls.client import ClientTLS
from twisted_exec.tls.endpoints import client_endpoint
from twisted_exec.tls.errors import TLSConfigError

DEFAULT_PORTS = {"https": 443, "http": 80}


def host_and_port(config: ClientConfig) -> tuple[str, int]:
    """Where to connect: without brackets, the scheme's port when none is given."""
    url = config.url
    return url.hostname or "", url.port or DEFAULT_PORTS[url.scheme]


def host_header(config: ClientConfig) -> bytes:
    """The ``Host`` header (IPv6 addresses in brackets)."""
    return config.url.netloc.encode("ascii")


def endpoint(
    config: ClientConfig, reactor: Any, *, timeout_seconds: float = 10.0
) -> IStreamClientEndpoint:
    """
    The API server as an endpoint.

    ``connect()`` fires after the server was verified; it fails with
    :class:`KubeConfigError` when a PEM file cannot be used, with the errors of
    :func:`twisted_exec.tls.endpoints.client_endpoint` otherwise.
    """
    return _ServerEndpoint(config, reactor, timeout_seconds)


@implementer(IStreamClientEndpoint)
@dataclass(frozen=True)
class _ServerEndpoint:
    config: ClientConfig
    reactor: Any
    timeout_seconds: float

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[IProtocol]:
        return _cancellable(Deferred.fromCoroutine(self._connect(protocolFactory)))

    async def _connect(self, factory: IProtocolFactory) -> IProtocol:
        # Each request's connection would be two lines in the log.
        factory.noisy = False  # type: ignore[attr-defined]
        protocol: IProtocol = await self._underlying().connect(factory)
        return protocol

    def _underlying(self) -> IStreamClientEndpoint:
        host, port = host_and_port(self.config)
        if self.config.url.scheme == "http":
            if self.config.has_credentials and not is_loopback(self.config.url):
                raise KubeConfigError(
                    f"{self.config.server}: credentials would travel in the clear"
                )
            plain: IStreamClientEndpoint = HostnameEndpoint(
                self.reactor, host, port, timeout=self.timeout_seconds
            )
            return plain
        return client_endpoint(
            self.reactor, host, port, tls(self.config), timeout_seconds=self.timeout_seconds
        )


def _cancellable(connecting: Deferred[IProtocol]) -> Deferred[IProtocol]:
    """
    The same, but a cancelled attempt fails with CancelledError.

    Twisted's endpoints then fail in words of their own: whoever cancelled would
    take the server for down, and try again.
    """

    def cancel(told: Deferred[IProtocol]) -> None:
        told.errback(CancelledError())
        connecting.cancel()

    told: Deferred[IProtocol] = Deferred(cancel)

    def connected(protocol: Any) -> None:
        if told.called:
            protocol.transport.abortConnection()
        else:
            told.callback(protocol)

    def failed(failure: Failure) -> None:
        if not told.called:
            told.errback(failure)

    connecting.addCallbacks(connected, failed)
    return told


def tls(config: ClientConfig) -> ClientTLS:
    """
    The verified TLS client of ``config``, from the PEM as it is now.

    :raises KubeConfigError: a file is missing, or is not the PEM it should be.
    """
    host, _ = host_and_port(config)
    try:
        return ClientTLS(
            config.tls_server_name or host,
            ca_pem=config.ca.read() if config.ca else None,
            certificate_pem=config.certificate.read(),
            key_pem=config.key.read(),
            insecure_skip_verify=config.insecure_skip_tls_verify,
        )
    except TLSConfigError as error:
        raise KubeConfigError(f"{config.source or config.server}: {error}") from None


def identity_stamp(config: ClientConfig) -> tuple[tuple[int, int, int], ...]:
    """Changes when a PEM file of ``config`` does: pooled connections then hold an old identity."""
    return (config.ca.stamp(), config.certificate.stamp(), config.key.stamp())


def auth_headers(config: ClientConfig) -> list[tuple[bytes, bytes]]:
    """
    The ``Authorization`` header, or nothing when a certificate says who we are.

    A token file wins over a token and is read each time: tokens are renewed in place.

    :raises KubeConfigError: the token file cannot be read, or holds no token.
    """
    if config.token_file:
        return [(b"Authorization", b"Bearer " + _token(read_file(config.token_file), config))]
    if config.token:
        return [(b"Authorization", b"Bearer " + _token(config.token.encode(), config))]
    if config.username:
        pair = f"{config.username}:{config.password}".encode()
        return [(b"Authorization", b"Basic " + base64.b64encode(pair))]
    return []


def _token(raw: bytes, config: ClientConfig) -> bytes:
    token = raw.strip()
    # Anything but printable ASCII would let a file inject headers.
    if not token or any(byte <= 0x20 or byte >= 0x7F for byte in token):
        where = config.token_file or config.source
        raise KubeConfigError(f"{where}: holds no token of printable ASCII characters")
    return token
