"""
Requests to subresources of machines, from the user's side.

They find the API group that serves a machine, have the credentials of their time, and name the
server in errors.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from twisted.internet.interfaces import IStreamClientEndpoint

from twisted_exec.api.dialects import DIALECTS, Dialect
from twisted_exec.api.obstacles import Obstacle, because
from twisted_exec.api.status import (
    APIError,
    BadGateway,
    Forbidden,
    GatewayTimeout,
    NotFound,
)
from twisted_exec.kube.kubeconfig.client_config import ClientConfig
from twisted_exec.kube.kubeconfig.credentials import renewed, settled
from twisted_exec.kube.kubeconfig.expiry import explain_refusal
from twisted_exec.kube.kubeconfig.headers import host_header, identity_headers
from twisted_exec.streaming.http.upgrade_client import UpgradeRequest

if TYPE_CHECKING:
    from twisted_exec.kube.client import KubeClient


AGENT = "kubectl-console (twisted-exec)"
DOCTOR_AGENT = "twisted-exec doctor"
"""The people at a console read this name beside the user, as in ``status_line.js`` of the web console."""

TIMEOUT_SECONDS = 30.0
"""Time limit for the connection, and another for the answer."""

T = TypeVar("T")


async def served_dialects(client: KubeClient, among: Iterable[Dialect]) -> Sequence[Dialect]:
    """
    Return the dialects that an API server speaks.

    :raises APIError: discovery failed.
    """
    expected = list(among)
    matches = []
    for group in await client.groups():
        here = [dialect for dialect in expected if dialect.group == group]
        for version in dict.fromkeys(dialect.version for dialect in here):
            names = await _resources(client, group, version)
            matches += [
                dialect
                for dialect in here
                if dialect.version == version and f"{dialect.workload.plural}/exec" in names
            ]
    return matches


async def _resources(client: KubeClient, group: str, version: str) -> Sequence[str]:
    try:
        return await client.resources(group, version)
    except APIError as error:
        if error.code == 404:  # the server has the group in other versions
            return ()
        raise


async def with_current_credentials(
    config: ClientConfig, reactor: Any, opened: Callable[[ClientConfig], Awaitable[T]]
) -> T:
    """Open something, after a 401 once more if there are other credentials then."""

    async def opened_with(current: ClientConfig) -> T:
        try:
            return await opened(current)
        except APIError as refused:
            raise explain_refusal(refused, current) from None

    settled_config = await settled(config, reactor)
    try:
        return await opened_with(settled_config)
    except APIError as refused:
        other = await renewed(config, reactor, settled_config) if refused.code == 401 else None
        if other is None:
            raise
    return await opened_with(other)


async def opened_among(
    opened: Callable[[ClientConfig, Dialect], Awaitable[T]],
    config: ClientConfig,
    reactor: Any,
    among: Sequence[Dialect],
    timeout_seconds: float,
    server: IStreamClientEndpoint | None,
) -> T:
    """Open a stream or a download of a machine, whose dialect may be one of several."""

    async def with_renewed_credentials(dialect: Dialect) -> T:
        def opened_once(shown_config: ClientConfig) -> Awaitable[T]:
            return opened(shown_config, dialect)

        return await with_current_credentials(config, reactor, opened_once)

    first, *others = among
    try:
        return await with_renewed_credentials(first)
    except APIError as error:
        refused = error
    served: Sequence[Dialect] = ()
    if others and refused.code in (Forbidden.code, NotFound.code):
        served = await _served(config, reactor, among, timeout_seconds, server)
    for dialect in served:
        if dialect == first:
            continue
        try:
            return await with_renewed_credentials(dialect)
        except APIError as error:
            if first not in served and refused.code in (Forbidden.code, NotFound.code):
                refused, first = error, dialect
    if refused.code == NotFound.code and not refused.details.get("name"):
        # The server may lack the kind or the machine; its 404 does not say which.
        here = await _served(config, reactor, DIALECTS, timeout_seconds, server)
        if first not in here:
            raise _no_such_kind(config.server, first, here)
    raise refused


def _no_such_kind(server: str, expected: Dialect, served: Sequence[Dialect]) -> APIError:
    there = ", ".join(dialect.workload.qualified for dialect in served)
    hint = f"it has {there}" if there else "is it the right cluster?"
    message = f"{server} has no {expected.workload.qualified}; {hint}"
    return APIError(message, code=NotFound.code, reason=NotFound.reason)


async def _served(
    config: ClientConfig,
    reactor: Any,
    among: Sequence[Dialect],
    timeout_seconds: float,
    server: IStreamClientEndpoint | None,
) -> Sequence[Dialect]:
    # Imported here: most consoles need no discovery, and the program starts faster without it.
    from twisted_exec.kube.client import KubeClient

    client = KubeClient(config, reactor, timeout_seconds=timeout_seconds, server=server)
    try:
        return await served_dialects(client, among)
    except APIError:
        return ()
    finally:
        await client.close()


def request_head(config: ClientConfig, where: str, query: bytes, agent: str) -> UpgradeRequest:
    """Return the request for a stream or a download."""
    headers = [(b"User-Agent", agent.encode("ascii")), *identity_headers(config)]
    target = (config.url.path + where).encode("ascii") + (b"?" + query if query else b"")
    return UpgradeRequest(b"GET", target, host_header(config), headers)


@contextmanager
def naming_server(config: ClientConfig) -> Iterator[None]:
    """Name the server in the error if it cannot be reached."""
    try:
        yield
    except (BadGateway, GatewayTimeout) as error:
        # These two classes are raised locally; a 502 of the server is a plain APIError.
        message = f"cannot reach {config.server}: {error.message}"
        named = type(error)(message, details=error.details)
        raise because(Obstacle.SERVER_UNREACHABLE, named) from None
