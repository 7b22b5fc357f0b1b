"""
Decide which exec URLs of a runtime may be dialled, and create their endpoints.

A runtime is trusted with its machines, not with this host's network. A URL may point to what the
runtime could reach itself (a UNIX socket, a loopback port of its host), or by TLS to a host that
the configuration allows and that the runtime's CA vouches for. Anything else is refused before a
connection or a name lookup. Messages do not contain the URL, because its path is a token.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

from twisted.internet.interfaces import IStreamClientEndpoint

from twisted_exec.api.status import APIError, BadGateway, NotImplementedByBackend
from twisted_exec.iri.target import TargetError, check_socket, parse_target
from twisted_exec.poollet.allowed_hosts import AllowedHost, AllowedHosts, is_loopback, same_host
from twisted_exec.tls.client import ClientCredentials
from twisted_exec.tls.endpoints import client_endpoint, unix_client_endpoint
from twisted_exec.tls.errors import TLSConfigError
from twisted_exec.tls.spares import SpareConnections

MAX_URL_CHARACTERS = 4096
_PLACES = 64
_PATH = re.compile(r"/[!-~]*")
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True)
class StreamDestination:
    """
    The destination of a stream.

    :param path: path and query of the request, which are secret.
    """

    label: str
    endpoint: IStreamClientEndpoint
    host: bytes
    path: bytes


class Dialler:
    """
    Creates endpoints for exec URLs.

    :param runtime_ca: path of the CA of runtimes behind ``https``; empty refuses such URLs.
    :param trusted_uids: further owners of UNIX sockets that may be used.
    :param runtime: the gRPC target of the runtime; empty for a runtime in this process.
    :param allowed: hosts that ``https`` URLs may point to, besides the runtime's.
    :raises TargetError: ``runtime`` is not a valid target.
    """

    def __init__(
        self,
        reactor: Any,
        *,
        runtime_ca: str = "",
        trusted_uids: Collection[int] = (),
        runtime: str = "",
        allowed: Iterable[AllowedHost] = (),
    ) -> None:
        self._reactor = reactor
        self._trusted_uids, self._trusted = frozenset(trusted_uids), {os.geteuid(), *trusted_uids}
        self._runtime = parse_target(runtime) if runtime else None
        theirs = []
        if self._runtime is not None and self._is_elsewhere():
            theirs = [AllowedHost(same_host(self._runtime.host))]
        self._allowed = AllowedHosts.of([*allowed, *theirs], loopback=not theirs)
        # Shared by all sessions.
        self._plain = lru_cache(maxsize=_PLACES)(self._new_plain)
        self._encrypted = lru_cache(maxsize=_PLACES)(self._new_encrypted)
        self.spares = SpareConnections(reactor)
        self._ca: ClientCredentials | None = None
        if runtime_ca:
            self._ca = ClientCredentials(ca=runtime_ca, clock=reactor)

    def load(self) -> None:
        """
        Read the CA file now.

        :raises TLSConfigError: it is unusable.
        """
        if self._ca is not None:
            self._ca.load()

    def target(self, url: str) -> StreamDestination:
        """
        Return the target of an exec URL.

        :raises NotImplementedByBackend: the runtime has no console.
        :raises BadGateway: the URL is invalid, or may not be dialled.
        """
        if not url:
            raise NotImplementedByBackend("the machine runtime offers no console for this machine")
        try:
            parts = urlsplit(url)
            port = parts.port if parts.scheme in _PORTS else None
        except ValueError:
            raise _refusal("it is not a URL") from None
        path = parts.path + (f"?{parts.query}" if parts.query else "")
        if len(url) > MAX_URL_CHARACTERS or not _PATH.fullmatch(path):
            raise _refusal("its path cannot be requested")
        if "@" in parts.netloc or parts.fragment:
            raise _refusal("it holds more than a host and a path")
        label, endpoint, host = self._endpoint(parts, port)
        return StreamDestination(label, endpoint, host, path.encode("ascii"))

    def _endpoint(
        self, parts: SplitResult, port: int | None
    ) -> tuple[str, IStreamClientEndpoint, bytes]:
        if parts.scheme not in ("http+unix", *_PORTS):
            raise _refusal(f"its scheme is {parts.scheme[:20]!r}; https and http+unix are possible")
        if parts.scheme != "https" and self._is_elsewhere():
            raise _refusal("the runtime is on another host: it must be https")
        if parts.scheme == "http+unix":
            return self._unix(unquote(parts.netloc))
        host, port = parts.hostname or "", _PORTS[parts.scheme] if port is None else port
        if not host or not host.isascii() or not port:
            raise _refusal("it has no host")
        if parts.scheme == "http":
            return self._loopback(host, port)
        return self._tls(host, port)

    def _unix(self, path: str) -> tuple[str, IStreamClientEndpoint, bytes]:
        if not path.startswith("/"):
            raise _refusal("its socket has no absolute path")
        try:
            check_socket(path, self._trusted)
            self._check_owner(path)
            endpoint = unix_client_endpoint(self._reactor, path, timeout_seconds=None)
        except FileNotFoundError:
            raise _refusal("its socket does not exist") from None
        except (TargetError, TLSConfigError, OSError, ValueError) as problem:
            raise _refusal(str(problem)) from None
        return "the machine runtime", endpoint, b"localhost"

    def _is_elsewhere(self) -> bool:
        runtime = self._runtime
        return runtime is not None and not runtime.is_unix and not is_loopback(runtime.host)

    def _check_owner(self, path: str) -> None:
        """
        Refuse sockets of other users than the runtime's. The poollet may run as root and the
        runtime not: then root's other sockets, such as a container engine's, are off limits for the
        runtime.
        """
        if self._runtime is None or not self._runtime.is_unix:
            return
        owner, theirs = os.lstat(path).st_uid, os.lstat(self._runtime.path).st_uid
        if owner not in (theirs, *self._trusted_uids):
            raise TargetError(f"{path} belongs to user {owner}, not to the runtime's ({theirs})")

    def _loopback(self, host: str, port: int) -> tuple[str, IStreamClientEndpoint, bytes]:
        address = "127.0.0.1" if host == "localhost" else host
        if not is_loopback(address):
            raise _refusal("http is possible on this host only; elsewhere it must be https")
        return "the machine runtime", self._plain(address, port), _host_header(host, port)

    def _new_plain(self, address: str, port: int) -> IStreamClientEndpoint:
        return client_endpoint(self._reactor, address, port, None, timeout_seconds=None)

    def _tls(self, host: str, port: int) -> tuple[str, IStreamClientEndpoint, bytes]:
        if self._ca is None:
            raise _refusal("it is https, and no CA of the runtime is given (--runtime-ca-file)")
        if not self._allowed.allows(host, port):
            target = f"{host[:253]}:{port}"
            raise _refusal(f"it leads to {target}, which is not allowed (--exec-url-allowed)")
        try:
            endpoint = self._encrypted(self._ca, host, port)
        except TLSConfigError as problem:
            raise _refusal(str(problem)) from None
        return f"the machine runtime at {host}:{port}", endpoint, _host_header(host, port)

    def _new_encrypted(self, ca: ClientCredentials, host: str, port: int) -> IStreamClientEndpoint:
        tls = ca.to(host)
        endpoint = client_endpoint(self._reactor, host, port, tls, timeout_seconds=None)
        return self.spares.endpoint((host, port), endpoint, tls)


def _host_header(host: str, port: int) -> bytes:
    return (f"[{host}]:{port}" if ":" in host else f"{host}:{port}").encode("ascii")


def _refusal(why: str) -> APIError:
    return BadGateway(f"the machine runtime's exec URL is not used: {why}")
