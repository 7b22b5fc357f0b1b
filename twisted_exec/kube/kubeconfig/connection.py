"""
The endpoint of one API server and its TLS settings, from a configuration.

PEM files are read for each connection.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IProtocol, IProtocolFactory, IStreamClientEndpoint
from twisted.python.failure import Failure
from zope.interface import implementer

from twisted_exec.kube.kubeconfig.client_config import ClientConfig, KubeConfigError
from twisted_exec.tls.client import Check, ClientTLS
from twisted_exec.tls.endpoints import client_endpoint, client_endpoint_over
from twisted_exec.tls.errors import HandshakeError, HandshakeTimeout, TLSConfigError

if TYPE_CHECKING:
    from twisted_exec.kube.proxy import ForwardProxy

DEFAULT_PORTS = {"https": 443, "http": 80}


def host_and_port(config: ClientConfig) -> tuple[str, int]:
    """Return host (without brackets) and port, by default the scheme's."""
    url = config.url
    return url.hostname or "", url.port or DEFAULT_PORTS[url.scheme]


def endpoint(
    config: ClientConfig,
    reactor: Any,
    *,
    timeout_seconds: float = 10.0,
    check: Check | None = None,
    first_address: int = 0,
) -> IStreamClientEndpoint:
    """
    Return the endpoint of the API server.

    ``connect()`` fails with :class:`KubeConfigError`, :class:`~twisted_exec.kube.proxy.ProxyError`,
    or as :func:`twisted_exec.tls.endpoints.client_endpoint`.
    """
    return _ServerEndpoint(config, reactor, timeout_seconds, check, first_address)


@implementer(IStreamClientEndpoint)
@dataclass(frozen=True)
class _ServerEndpoint:
    config: ClientConfig
    reactor: Any
    timeout_seconds: float
    check: Check | None
    first_address: int

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[IProtocol]:
        return _cancellable(Deferred.fromCoroutine(self._connect(protocolFactory)))

    async def _connect(self, factory: IProtocolFactory) -> IProtocol:
        # Otherwise each connection adds two lines to the log.
        factory.noisy = False  # type: ignore[attr-defined]
        try:
            protocol: IProtocol = await self._underlying().connect(factory)
        except (HandshakeError, HandshakeTimeout) as problem:
            # The callers name the server.
            raise type(problem)(problem.reason) from None
        return protocol

    def _underlying(self) -> IStreamClientEndpoint:
        config, seconds = self.config, self.timeout_seconds
        host, port = host_and_port(config)
        own: ClientTLS | None = None
        if config.url.scheme == "https":
            own = tls(config, self.check)
        elif config.has_credentials and config.in_the_clear:
            raise KubeConfigError(f"{config.server}: credentials would travel in the clear")
        if not config.proxy_url:
            return client_endpoint(
                self.reactor,
                host,
                port,
                own,
                timeout_seconds=seconds,
                first_address=self.first_address,
            )
        from twisted_exec.kube.proxy import ForwardProxy, proxied  # few servers need one

        proxy = ForwardProxy.parse(config.proxy_url)
        tunnel = proxied(
            client_endpoint(
                self.reactor,
                proxy.host,
                proxy.port,
                _proxy_tls(config, proxy),
                timeout_seconds=seconds,
            ),
            proxy,
            host,
            port,
        )
        peer = f"{config.url.netloc} behind {proxy}"
        return client_endpoint_over(self.reactor, tunnel, own, peer, timeout_seconds=seconds)


def _cancellable(connecting: Deferred[IProtocol]) -> Deferred[IProtocol]:

    def cancel(attempt: Deferred[IProtocol]) -> None:
        connecting.cancel()
        if not attempt.called:
            attempt.errback(CancelledError())

    outcome: Deferred[IProtocol] = Deferred(cancel)

    def connected(protocol: Any) -> None:
        if outcome.called:
            protocol.transport.abortConnection()
        else:
            outcome.callback(protocol)

    def failed(failure: Failure) -> None:
        if not outcome.called:
            outcome.errback(failure)

    connecting.addCallbacks(connected, failed)
    return outcome


def tls(config: ClientConfig, check: Check | None = None) -> ClientTLS:
    """
    Return the TLS settings of ``config``, from its current PEM.

    :raises KubeConfigError: they cannot be used.
    """
    host, _ = host_and_port(config)
    try:
        return ClientTLS(
            config.tls_server_name or host,
            ca_pem=config.ca.read() if config.ca else None,
            certificate_pem=config.certificate.read(),
            key_pem=config.key.read(),
            insecure_skip_verify=config.insecure_skip_tls_verify,
            check=check,
        )
    except TLSConfigError as error:
        file = f" in {config.ca.path}" if config.ca.path else ""
        reason = str(error).replace("the CA", f"the CA{file}")
        raise KubeConfigError(f"{config.source or config.server}: {reason}") from None


def _proxy_tls(config: ClientConfig, proxy: ForwardProxy) -> ClientTLS | None:
    if proxy.scheme != "https":
        return None
    try:
        return ClientTLS(
            proxy.host,
            ca_pem=config.ca.read() if config.ca else None,
            insecure_skip_verify=config.insecure_skip_tls_verify,
        )
    except TLSConfigError as error:
        raise KubeConfigError(f"{config.source or config.server}: {proxy}: {error}") from None


def connection_stamp(config: ClientConfig) -> Hashable:
    """Return a value that changes when new connections are needed."""
    files = (config.ca, config.certificate, config.key)
    return (
        config.server,
        config.proxy_url,
        config.tls_server_name,
        config.insecure_skip_tls_verify,
        files,
        tuple(each.stamp() for each in files),
    )
