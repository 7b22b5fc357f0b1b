"""
The routes of a server, one table matched by whole path segments, and its probes.

A path is split *before* it is percent-decoded, and unsafe segments, such as dot segments, are
refused.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar
from urllib.parse import unquote_to_bytes

from twisted.internet.address import UNIXAddress

from twisted_exec.api.status import APIError, BadRequest, MethodNotAllowed
from twisted_exec.program.health import Health
from twisted_exec.program.metrics import CONTENT_TYPE, MetricsRegistry
from twisted_exec.streaming.http.responses import Dispatcher, respond, respond_text
from twisted_exec.streaming.http.site import Request
from twisted_exec.wire.upgrade import FORWARDED

Handler = Callable[[Request, Mapping[str, str]], Awaitable[None]]
"""Answers a request; gets the decoded values of the pattern's ``{names}``."""

Endpoint = TypeVar("Endpoint")

UNKNOWN_PATH = "the server could not find the requested resource"
"""Message of the 404 of a path without a route."""


@dataclass
class _Node(Generic[Endpoint]):
    literals: dict[str, _Node[Endpoint]] = field(default_factory=dict)
    variable: _Node[Endpoint] | None = None
    endpoints: dict[bytes, tuple[Endpoint, tuple[str, ...]]] = field(default_factory=dict)


@dataclass(frozen=True)
class RouteMatch(Generic[Endpoint]):
    """The route of a request."""

    endpoint: Endpoint
    values: Mapping[str, str]
    segments: Sequence[str]


class WrongMethod(MethodNotAllowed):
    """The path exists, for other methods."""

    def __init__(self, method: bytes, allowed: Iterable[bytes]) -> None:
        self.allowed = b", ".join(sorted(set(allowed) - {b"HEAD"}))
        name = method.decode("ascii", "replace")
        super().__init__(f"{name} is not allowed here; allowed: {self.allowed.decode()}")


def split_path(path: bytes) -> list[str]:
    """
    Return the decoded segments of a request's path, without its query.

    :raises BadRequest: the path is not safe, or not UTF-8.
    """
    if not path.startswith(b"/"):
        raise BadRequest("the path does not begin with a slash")
    if path == b"/":
        return []
    return [_segment(raw) for raw in path[1:].split(b"/")]


def _segment(raw: bytes) -> str:
    try:
        segment = (unquote_to_bytes(raw) if b"%" in raw else raw).decode("utf-8")
    except UnicodeDecodeError:
        raise BadRequest("the path is not UTF-8") from None
    # Then every later hop sees the path that one hop has authorized, however it normalizes paths.
    if segment in (".", "..") or "/" in segment or "\\" in segment or "\0" in segment:
        raise BadRequest("the path has a segment that is not a name")
    return segment


def not_found() -> APIError:
    """Return the 404 of a path without a route."""
    return APIError(UNKNOWN_PATH, code=404, reason="NotFound")


class RouteTable(Generic[Endpoint]):
    """Patterns such as ``/api/v1/namespaces/{name}``, each with an endpoint."""

    def __init__(self) -> None:
        self._root: _Node[Endpoint] = _Node()

    def add_endpoint(self, methods: Iterable[str], pattern: str, endpoint: Endpoint) -> None:
        """
        Add a route.

        :param pattern: literal segments and ``{name}`` ones, which match a non-empty segment;
            literals go first.  A path needs a trailing slash exactly if its pattern has one.
        :raises ValueError: the pattern already has an endpoint for that method.
        """
        node, names = self._root, []
        for part in pattern.removeprefix("/").split("/") if pattern != "/" else []:
            if part.startswith("{") and part.endswith("}"):
                names.append(part[1:-1])
                node.variable = node.variable or _Node()
                node = node.variable
            else:
                node = node.literals.setdefault(part, _Node())
        for method in methods:
            if method.encode() in node.endpoints:
                raise ValueError(f"{method} {pattern} has a handler")
            node.endpoints[method.encode()] = (endpoint, tuple(names))

    def __iter__(self) -> Iterator[tuple[str, str, Endpoint]]:
        yield from _routes(self._root, "")

    def match(self, method: bytes, path: bytes) -> RouteMatch[Endpoint]:
        """
        Find the route of a request.

        :raises APIError: 404 when no pattern matches; :class:`WrongMethod` when one does for
            another method; 400 when the path is refused.
        """
        segments = split_path(path)
        nodes = list(_walk(self._root, segments, ()))
        for node, values in nodes:
            if method in node.endpoints:
                endpoint, names = node.endpoints[method]
                return RouteMatch(endpoint, dict(zip(names, values, strict=True)), segments)
        allowed = [each for node, _ in nodes for each in node.endpoints]
        if not allowed:
            raise not_found()
        raise WrongMethod(method, allowed)


class Routes(RouteTable[Handler]):
    """The routes of a server without a gate, and their handlers."""

    def add(self, methods: Iterable[str], pattern: str, handler: Handler) -> None:
        """As :meth:`add_endpoint`.  ``GET`` answers ``HEAD`` too, without a body."""
        self.add_endpoint(with_head(methods), pattern, handler)

    async def dispatch(self, request: Request) -> None:
        """Let the matching handler answer; errors as :meth:`match`."""
        try:
            match = self.match(request.method, request.path)
        except WrongMethod as error:
            request.setHeader(b"Allow", error.allowed)
            raise
        await match.endpoint(request, match.values)


def with_head(methods: Iterable[str]) -> list[str]:
    """Return the methods, with ``HEAD`` if there is ``GET``."""
    methods = list(dict.fromkeys(methods))
    return [*methods, "HEAD"] if "GET" in methods and "HEAD" not in methods else methods


def _routes(node: _Node[Endpoint], path: str) -> Iterator[tuple[str, str, Endpoint]]:
    for method, (endpoint, names) in node.endpoints.items():
        yield method.decode(), path.format(*(f"{{{name}}}" for name in names)) or "/", endpoint
    for name, below in node.literals.items():
        yield from _routes(below, f"{path}/{name}")
    if node.variable is not None:
        yield from _routes(node.variable, f"{path}/{{}}")


def _walk(
    node: _Node[Endpoint], segments: Sequence[str], values: tuple[str, ...]
) -> Iterable[tuple[_Node[Endpoint], tuple[str, ...]]]:
    if not segments:
        if node.endpoints:
            yield node, values
        return
    first, rest = segments[0], segments[1:]
    if first in node.literals:
        yield from _walk(node.literals[first], rest, values)
    if first and node.variable is not None:
        yield from _walk(node.variable, rest, (*values, first))


def is_local(request: Request) -> bool:
    """
    Return whether a request came over a UNIX socket or a loopback address, without headers of a
    proxy, which may have forwarded it from another host.
    """
    headers = request.requestHeaders
    if headers.hasHeader(b"via") or any(
        name in FORWARDED for name, _ in headers.getAllRawHeaders()
    ):
        return False
    peer = request.getClientAddress()
    if isinstance(peer, UNIXAddress):
        return True
    try:
        address = ipaddress.ip_address(getattr(peer, "host", ""))
    except ValueError:
        return False
    # A socket for both versions of IP reports ::ffff:127.0.0.1 (RFC 4291 2.5.5.2), which is not
    # ::1.
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


async def respond_ready(request: Request, health: Health) -> None:
    """Answer ``/readyz``; clients on this host get the reasons of failed probes."""
    ready, listing = await health.ready(with_reasons=is_local(request))
    respond_text(request, 200 if ready else 503, listing)


class ProbeRoutes(Dispatcher):
    """
    ``/healthz``, ``/livez`` and ``/readyz``, for a port without TLS and credentials.

    :param registry: metrics to serve at ``/metrics``, if another port does not.
    """

    def __init__(self, health: Health, registry: MetricsRegistry | None = None) -> None:
        super().__init__()
        self._health, self._registry = health, registry
        self._routes = Routes()
        for path in ("/healthz", "/livez"):
            self._routes.add(["GET"], path, self._alive)
        self._routes.add(["GET"], "/readyz", self._ready)
        if registry is not None:
            self._routes.add(["GET"], "/metrics", self._metrics)

    async def dispatch(self, request: Request) -> None:
        await self._routes.dispatch(request)

    async def _alive(self, request: Request, names: Mapping[str, str]) -> None:
        respond_text(request, 200, "ok")

    async def _ready(self, request: Request, names: Mapping[str, str]) -> None:
        await respond_ready(request, self._health)

    async def _metrics(self, request: Request, names: Mapping[str, str]) -> None:
        assert self._registry is not None
        respond(request, 200, await self._registry.scrape(), CONTENT_TYPE)
