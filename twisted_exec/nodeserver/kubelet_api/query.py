"""
From a kubelet's words to an API server's.

A root's kube-apiserver asks a kubelet; what a leaf has is an API server.  Both mean the same, but a
kubelet is told ``input=1`` where an API server is told ``stdin=true``, it finds the container in the
path, and only the literal ``1`` is true to it.  Nothing here knows of connections: a path and a
query go in, a query comes out.

Arguments of a command are bytes, and their order is their meaning: each is decoded once and encoded
once, none is looked at.  Where a kubelet silently drops what it cannot read, as of a query with a
broken ``%`` escape, the request is refused instead: a command that lost an argument is another one.

Sources: ``pkg/kubelet/server/server.go`` (paths, ``cmd``) of Kubernetes; ``NewOptions`` and
``NewV4Options`` of ``k8s.io/kubelet/pkg/cri/streaming``; ``PodExecOptions``, ``PodAttachOptions`` and
``PodPortForwardOptions`` of ``k8s.io/api/core/v1``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote, quote_from_bytes, quote_plus, unquote_to_bytes

from twisted_exec.api.status import APIError, BadRequest

MAX_QUERY_BYTES = 256 << 10
"""Of a query, encoded; a program's limit on a whole request's head is usually below it."""

MAX_PORTS = 127
"""Of one WebSocket: each has two channels, and a channel's number is one byte."""

_BROKEN_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_STREAMS = ((b"input", "stdin"), (b"output", "stdout"), (b"error", "stderr"))
_STDERR = "stderr"
_PORT = re.compile(rb"[0-9]{1,5}")


@dataclass(frozen=True)
class Wanted:
    """
    What is asked for, by the path alone.

    :param what: the path's first segment, such as ``exec`` or ``portForward``.
    :param uid: of the Pod in the root; empty where the path names none.
    :param container: empty where what is asked for is the Pod's.
    """

    what: str
    namespace: str
    pod: str
    container: str = ""
    uid: str = ""

    @classmethod
    def of(cls, segments: Sequence[str]) -> Wanted:
        """
        Read a path that matched one of a kubelet's routes.

        :param segments: decoded, ``WHAT NAMESPACE POD [UID] CONTAINER``; of ``portForward``
            ``WHAT NAMESPACE POD [UID]``.  An empty one at the end is that of a last slash.
        """
        what, namespace, pod, *rest = segments
        if rest and not rest[-1]:
            del rest[-1]  # else it would be a container without a name: whichever the leaf likes
        container = rest.pop() if what != "portForward" else ""
        return cls(what, namespace, pod, container, rest[0] if rest else "")


def exec_query(raw: bytes, container: str) -> bytes:
    """
    The query for ``pods/exec``.

    :param raw: of the request to ``/exec/...``, as it came, without its question mark.
    :return: ``command`` first, each argument in its place.
    :raises BadRequest: no stream, no command, or it cannot be decoded.
    :raises APIError: 414, it is too long.
    """
    pairs = parse(raw)
    command = [value for name, value in pairs if name == b"command"]
    if not command:
        raise BadRequest("you must specify a command: the query has no command=")
    words = [f"command={quote_plus(each)}" for each in command]
    return _joined([*words, *_container(container), *_streams(pairs)])


def attach_query(raw: bytes, container: str) -> bytes:
    """
    The query for ``pods/attach``; arguments and errors as of :func:`exec_query`, without a command.
    """
    return _joined([*_container(container), *_streams(parse(raw))])


def forward_query(raw: bytes, *, needs_ports: bool) -> bytes:
    """
    The query for ``pods/portforward``.

    :param needs_ports: a WebSocket has its ports from its query (``port=80,81``, repeated or not).
        SPDY, also in a tunnel, names them with each stream: there the query says nothing.
    :raises BadRequest: a port is missing or none, or it cannot be decoded.
    """
    pairs = parse(raw)
    if not needs_ports:
        return b""
    told = [value for name, value in pairs if name == b"port"]
    if not told:
        raise BadRequest('query parameter "port" is required')
    ports = [_port(each) for value in told for each in value.split(b",")]
    if len(ports) > MAX_PORTS:
        raise BadRequest(f"at most {MAX_PORTS} ports are forwarded over one WebSocket")
    return _joined([f"ports={port}" for port in ports])


def run_query(raw: bytes, container: str) -> bytes:
    """
    The query for ``pods/exec`` of what ``/run/...`` asks for: ``cmd``, split on single spaces.

    :raises BadRequest: it has no ``cmd``, or cannot be decoded.
    """
    command = next((value for name, value in parse(raw) if name == b"cmd"), b"")
    if not command:
        raise BadRequest("you must specify a command: the query has no cmd=")
    words = [f"command={quote_plus(each)}" for each in command.split(b" ")]
    return _joined([*words, *_container(container), "stdout=true", "stderr=true"])


def parse(raw: bytes) -> list[tuple[bytes, bytes]]:
    """
    Names and values of a query, decoded, in their order.

    :raises BadRequest: a broken escape, or a bare semicolon, which servers read in different ways.
    :raises APIError: 414, it is too long.
    """
    if len(raw) > MAX_QUERY_BYTES:
        limit = MAX_QUERY_BYTES >> 10
        raise APIError(f"the query exceeds {limit} KiB", code=414, reason="RequestURITooLong")
    if _BROKEN_ESCAPE.search(raw):
        raise BadRequest("the query has a % that is not followed by two hexadecimal digits")
    if b";" in raw:
        raise BadRequest("the query has a bare semicolon; write it as %3B")
    pieces = [piece.partition(b"=") for piece in raw.split(b"&") if piece]
    return [(_decoded(name), _decoded(value)) for name, _, value in pieces]


def path(namespace: str, name: str, subresource: str) -> str:
    """The path of a Pod's subresource at an API server."""
    where = f"{quote(namespace, safe='')}/pods/{quote(name, safe='')}"
    return f"/api/v1/namespaces/{where}/{subresource}"


def _decoded(text: bytes) -> bytes:
    return unquote_to_bytes(text.replace(b"+", b" "))


def _streams(pairs: Sequence[tuple[bytes, bytes]]) -> list[str]:
    """What is asked for of streams.  A terminal has no errors of its own: as a kubelet, drop them."""
    tty = _is_one(pairs, b"tty")
    streams = [ours for theirs, ours in _STREAMS if _is_one(pairs, theirs)]
    if tty and _STDERR in streams:
        streams.remove(_STDERR)
    if not streams:
        raise BadRequest("you must specify at least 1 of stdin, stdout, stderr")
    return [f"{name}=true" for name in (*streams, *(["tty"] if tty else []))]


def _is_one(pairs: Sequence[tuple[bytes, bytes]], key: bytes) -> bool:
    """The first that is told counts, as with Go's ``FormValue``."""
    return next((value for name, value in pairs if name == key), b"") == b"1"


def _container(name: str) -> list[str]:
    return [f"container={quote_plus(name)}"] if name else []


def _port(text: bytes) -> int:
    if _PORT.fullmatch(text) and 0 < int(text) <= 0xFFFF:
        return int(text)
    excerpt = quote_from_bytes(text[:32])
    raise BadRequest(f'unable to parse "{excerpt}" as a port: it is a number from 1 to 65535')


def _joined(words: Sequence[str]) -> bytes:
    return "&".join(words).encode("ascii")
