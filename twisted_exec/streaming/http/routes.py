"""
One table of routes per server, matched by whole path segments.

A path is split *before* it is percent-decoded, and a segment that decodes to
something with a slash, to a dot segment or to nothing is refused: what one hop
authorises is then what every later hop sees, however it normalises.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote_to_bytes

from twisted_exec.api.status import APIError, BadRequest, MethodNotAllowed
from twisted_exec.streaming.http.site import Request

Handler = Callable[[Request, Mapping[str, str]], Awaitable[None]]
"""Answers a request; gets the decoded values of the pattern's ``{names}``."""


@dataclass
class _Node:
    literals: dict[str, _Node] = field(default_factory=dict)
    variable: _Node | None = None
    handlers: dict[bytes, tuple[Handler, tuple[str, ...]]] = field(default_factory=dict)


def split_path(path: bytes) -> list[str]:
    """
    The decoded segments of a request's path (without its query).

    ``/`` has none.  A trailing slash is an empty segment, which matches nothing.

    :raises BadRequest: an encoded slash, a dot segment, a NUL, or not UTF-8.
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
    if segment in (".", "..") or "/" in segment or "\\" in segment or "\0" in segment:
        raise BadRequest("the path has a segment that is not a name")
    return segment


def not_found() -> APIError:
    """The 404 of a path that nobody knows."""
    return APIError("the server could not find the requested resource", code=404, reason="NotFound")


class Routes:
    """Patterns such as ``/api/v1/namespaces/{name}`` and who answers them."""

    def __init__(self) -> None:
        self._root = _Node()

    def add(self, methods: Iterable[str], pattern: str, handler: Handler) -> None:
        """
        :param methods: upper case.  ``GET`` answers ``HEAD`` too, without a body.
        :param pattern: literal segments and ``{name}`` ones, which match any one
            non-empty segment.  Where both match, the literal goes first.
        :raises ValueError: the pattern already has a handler for that method.
        """
        node, names = self._root, []
        for part in pattern.strip("/").split("/") if pattern != "/" else []:
            if part.startswith("{") and part.endswith("}"):
                names.append(part[1:-1])
                node.variable = node.variable or _Node()
                node = node.variable
            else:
                node = node.literals.setdefault(part, _Node())
        for method in methods:
            if method.encode() in node.handlers:
                raise ValueError(f"{method} {pattern} has a handler")
            node.handlers[method.encode()] = (handler, tuple(names))

    async def dispatch(self, request: Request) -> None:
        """
        Let the matching handler answer.

        :raises APIError: 404 when no pattern matches, 405 (and an ``Allow``
            header) when one does for another method.
        """
        handler, values = self.match(request.method, request.path, request)
        await handler(request, values)

    def match(
        self, method: bytes, path: bytes, request: Request | None = None
    ) -> tuple[Handler, dict[str, str]]:
        """The handler for a method and path, and the values of its names."""
        nodes = list(_walk(self._root, split_path(path), ()))
        wanted = b"GET" if method == b"HEAD" else method
        for node, values in nodes:
            for one in (method, wanted):
                if one in node.handlers:
                    handler, names = node.handlers[one]
                    return handler, dict(zip(names, values, strict=True))
        allowed = sorted({one for node, _ in nodes for one in node.handlers})
        if not allowed:
            raise not_found()
        if request is not None:
            request.setHeader(b"Allow", b", ".join(allowed))
        raise MethodNotAllowed(
            f"{method.decode('ascii', 'replace')} is not allowed here;"
            f" allowed: {b', '.join(allowed).decode()}"
        )


def _walk(
    node: _Node, segments: list[str], values: tuple[str, ...]
) -> Iterable[tuple[_Node, tuple[str, ...]]]:
    """The nodes that match, the more literal ones first."""
    if not segments:
        if node.handlers:
            yield node, values
        return
    first, rest = segments[0], segments[1:]
    if first in node.literals:
        yield from _walk(node.literals[first], rest, values)
    if first and node.variable is not None:
        yield from _walk(node.variable, rest, (*values, first))
