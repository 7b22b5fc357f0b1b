"""
The poollets of an API server: their addresses, and TLS to them.

We trust a poollet if its certificate names the dialled address and, by default, the machine's pool.
Then no poollet can take the place of another, whatever addresses a pool reports. The poollet trusts
the user that we name (:mod:`twisted_exec.auth.forwarded_user`) because of our forwarding
certificate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache

from cryptography import x509
from cryptography.x509.oid import NameOID
from twisted.internet.interfaces import IStreamClientEndpoint

from twisted_exec.api.dialects import Dialect
from twisted_exec.api.display import listed
from twisted_exec.api.kinds import ADDRESS_TYPES, Object
from twisted_exec.api.obstacles import Obstacle, because, doctor_advice
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import (
    APIError,
    NotFound,
    NotImplementedByBackend,
    ServiceUnavailable,
)
from twisted_exec.auth.subresources import Subresource, SubresourceOptions
from twisted_exec.storage.interfaces import IStorage
from twisted_exec.streaming.location import Location, Upstream
from twisted_exec.tls.client import ClientCredentials
from twisted_exec.tls.endpoints import client_endpoint
from twisted_exec.tls.errors import OtherName, TLSConfigError
from twisted_exec.tls.spares import SpareConnections
from twisted_exec.wire.channel import TERMINAL

_LARGEST_PORT = 65535
_ENDPOINTS = 256
"""How many poollets' endpoints are cached for all sessions."""
_MOST_ADDRESSES = 16
"""The most addresses of a pool that are tried."""


@dataclass(frozen=True)
class Backend:
    """
    Connections to poollets.

    :param seconds: time limit to connect to each address, TLS included, and again for a response.
    :param pools_named: a poollet's certificate must name its pool.
    """

    credentials: ClientCredentials
    address_types: Sequence[str] = ADDRESS_TYPES
    seconds: float = 5.0
    pools_named: bool = True
    spares: SpareConnections | None = None


class PoolletUpstream(Upstream):
    """The poollet of a pool as the next hop."""

    def __init__(self, what: Subresource, pool: str) -> None:
        unknown = None
        if what.lacking:
            unknown = NotImplementedByBackend(
                f'the poollet of pool "{pool}" does not serve {what.lacking}'
            )
        super().__init__(Obstacle.POOLLET_FAILED, unknown)


class Poollets:
    """The poollets of the pools of one dialect."""

    def __init__(
        self, dialect: Dialect, storage: IStorage, backend: Backend, reactor: object
    ) -> None:
        self._dialect, self._storage = dialect, storage
        self._backend, self._reactor = backend, reactor
        self._shared_endpoint = lru_cache(maxsize=_ENDPOINTS)(self._new_endpoint)

    async def pool(self, namespace: str, machine: str, pool: str, *, stale: bool = False) -> Object:
        """
        Return a pool.

        :param machine: assigned to the pool, for messages.
        :param stale: as for :func:`read`.
        :raises NotFound: there is no such pool.
        """
        try:
            return await read(self._storage, self._dialect.pool, "", pool, stale=stale)
        except NotFound as error:
            missing = NotFound(
                self._dialect.pool.plural,
                pool,
                self._dialect.group,
                f'{error.message}: {self._dialect.noun} "{machine}" is assigned to it; '
                f"{doctor_advice(machine, namespace)}",
            )
            raise because(Obstacle.POOL_NOT_FOUND, missing) from None

    async def of(
        self,
        what: Subresource,
        options: SubresourceOptions,
        namespace: str,
        machine: str,
        pool_name: str,
        path: str,
        *,
        stale: bool = False,
    ) -> Location:
        """
        Return the location of a subresource on the poollet of a pool; errors as :meth:`pool` and
        :meth:`at`.

        :param stale: as for :func:`read`.
        """
        pool = await self.pool(namespace, machine, pool_name, stale=stale)
        location = replace(self.at(pool, path), upstream=PoolletUpstream(what, pool_name))
        return replace(options.at(location), answer_headers=options.answer_headers)

    def at(self, pool: Object, path: str) -> Location:
        """
        Return the location of a path on the poollet of a pool.

        :raises ServiceUnavailable: the pool has no usable address.
        """
        name = pool["metadata"]["name"]
        status = pool.get("status", {})
        port = status.get("daemonEndpoints", {}).get(self._dialect.endpoint_field, {}).get("port")
        if not port or not 0 < port <= _LARGEST_PORT:
            port = self._dialect.default_port
        addresses = usable_addresses(pool, self._backend.address_types)
        endpoints = {
            f"{host}:{port}": endpoint
            for host in addresses
            if (endpoint := self._endpoint(host, port, name)) is not None
        }
        if not endpoints:
            raise no_address(pool, self._backend.address_types, self._dialect.pool_noun)
        first = next(iter(endpoints))
        return Location(
            endpoints=[(f'pool "{name}" at {at}', to) for at, to in endpoints.items()],
            path=path.encode("ascii"),
            host=first.encode("ascii" if first.isascii() else "idna"),
            streams=TERMINAL,
        )

    def _endpoint(self, host: str, port: int, pool: str) -> IStreamClientEndpoint | None:
        try:
            return self._shared_endpoint(host, port, pool)
        except TLSConfigError:
            return None  # no certificate could contain this name

    def _new_endpoint(self, host: str, port: int, pool: str) -> IStreamClientEndpoint:
        check, identity = None, ""
        if self._backend.pools_named:
            identity = self._dialect.pool_identity(pool)
            check = _names(identity)
        tls = self._backend.credentials.to(host, check=check)
        endpoint = client_endpoint(self._reactor, host, port, tls, timeout_seconds=None)
        spares = self._backend.spares
        return (
            endpoint if spares is None else spares.endpoint((host, port, identity), endpoint, tls)
        )


async def read(
    storage: IStorage, resource: Resource, namespace: str, name: str, *, stale: bool
) -> Object:
    """
    Return an object that a session needs.

    :param stale: the session is open already and does not wait for the store: the server's copy suffices.
        Objects that are missing there are read from the store.
    :raises NotFound: there is no such object.
    """
    if stale:
        with suppress(NotFound):
            return await storage.get(resource, namespace, name, stale=True)
    return await storage.get(resource, namespace, name)


def usable_addresses(pool: Object, types: Sequence[str]) -> list[str]:
    """A pool's addresses of the preferred types, best first."""
    reported = pool.get("status", {}).get("addresses", [])
    matching = [
        item["address"]
        for preferred in types
        for item in reported
        if item["type"] == preferred and item["address"]
    ]
    return list(dict.fromkeys(matching))[:_MOST_ADDRESSES]


def no_address(pool: Object, types: Sequence[str], noun: str) -> APIError:
    """The error for a pool, or a node, without a usable address."""
    reported = pool.get("status", {}).get("addresses", [])
    addresses = listed((f"{item['type']}={item['address']}" for item in reported), _MOST_ADDRESSES)
    error = ServiceUnavailable(
        f'{noun} "{pool["metadata"]["name"]}" has no usable address of the preferred types '
        f"{', '.join(types)}; known addresses: {addresses or 'none'}"
    )
    return because(Obstacle.NO_ADDRESS, error)


def _names(identity: str) -> Callable[[x509.Certificate], None]:
    def check(certificate: x509.Certificate) -> None:
        names = [
            attribute.value
            for attribute in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        ]
        if names != [identity]:
            raise OtherName(
                f"the certificate is not that of the pool: its common name is {names}, "
                f"not {identity!r}"
            )

    return check
