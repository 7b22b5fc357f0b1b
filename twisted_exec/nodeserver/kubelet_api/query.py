"""
Translate requests to a kubelet into requests to an API server.

The root's kube-apiserver addresses a kubelet; a leaf has an API server.  Both mean the same, but a
kubelet expects ``input=1`` where an API server expects ``stdin=true``, takes the container from the
path, and accepts only the literal ``1`` as true.  Pure: a path and a query in, a query out.

The arguments of a command are bytes in a significant order: each is decoded and encoded exactly
once.  A kubelet silently drops what it cannot parse, such as a pair with a broken ``%`` escape;
here the request is refused instead, because a command that lost an argument is another command.

Sources: ``pkg/kubelet/server/server.go`` (paths, ``cmd``) of Kubernetes; ``NewOptions`` and
``NewV4Options`` of ``k8s.io/kubelet/pkg/cri/streaming``; ``PodExecOptions``, ``PodAttachOptions``
and ``PodPortForwardOptions`` of ``k8s.io/api/core/v1``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote, quote_from_bytes, quote_plus, unquote_to_bytes

from twisted_exec.api.status import APIError, BadRequest

MAX_QUERY_BYTES = 256 << 10
"""Limit of an encoded query; the limit of a whole request header is usually lower."""

MAX_PORTS = 127
"""Limit of ports on one WebSocket: each takes two channels, and a channel number is one byte."""

_BROKEN_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_STREAMS = ((b"input", "stdin"), (b"output", "stdout"), (b"error", "stderr"))
_STDERR = "stderr"
_PORT = re.compile(rb"[0-9]{1,5}")


@dataclass(frozen=True)
class KubeletTarget:
    """
    The target of a request, taken from its path.

    :param what: first segment of the path, such as ``exec`` or ``portForward``.
    :param uid: of the Pod in the root; empty if the path has none.
    :param container: empty for requests about the whole Pod.
    """

    what: str
    namespace: str
    pod: str
    container: str = ""
    uid: str = ""

    @classmethod
    def of(cls, segments: Sequence[str]) -> KubeletTarget:
        """
        Parse a path that matched one of the kubelet's routes.

        :param segments: decoded, ``WHAT NAMESPACE POD [UID] CONTAINER``; for ``portForward`` ``WHAT
            NAMESPACE POD [UID]``.  A trailing slash leaves an empty last segment.
        """
        what, namespace, pod, *rest = segments
        if rest and not rest[-1]:
            del rest[-1]  # or it would name an empty container, which means any to the leaf
        container = rest.pop() if what != "portForward" else ""
        return cls(what, namespace, pod, container, rest[0] if rest else "")


def exec_query(raw: bytes, container: str) -> bytes:
    """
    Return the query for ``pods/exec``.

    :param raw: query of the request to ``/exec/...``, without its question mark.
    :return: ``command`` first, each argument in its place.
    :raises BadRequest: no stream, no command, or undecodable.
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
    Return the query for ``pods/attach``; arguments and errors as of :func:`exec_query`, without a
    command.
    """
    return _joined([*_container(container), *_streams(parse(raw))])


def forward_query(raw: bytes, *, needs_ports: bool) -> bytes:
    """
    Return the query for ``pods/portforward``.

    :param needs_ports: a WebSocket takes its ports from the query (``port=80,81``, or repeated).
        SPDY, tunnelled or not, names the port with each stream, and its query has none.
    :raises BadRequest: a port is missing or invalid, or the query is undecodable.
    """
    pairs = parse(raw)
    if not needs_ports:
        return b""
    port_texts = [value for name, value in pairs if name == b"port"]
    if not port_texts:
        raise BadRequest('query parameter "port" is required')
    ports = [_port(each) for value in port_texts for each in value.split(b",")]
    if len(ports) > MAX_PORTS:
        raise BadRequest(f"at most {MAX_PORTS} ports are forwarded over one WebSocket")
    return _joined([f"ports={port}" for port in ports])


def run_query(raw: bytes, container: str) -> bytes:
    """
    Return the query for ``pods/exec`` for a request to ``/run/...``: ``cmd``, split at single
    spaces.

    :raises BadRequest: it has no ``cmd``, or is undecodable.
    """
    command = next((value for name, value in parse(raw) if name == b"cmd"), b"")
    if not command:
        raise BadRequest("you must specify a command: the query has no cmd=")
    words = [f"command={quote_plus(each)}" for each in command.split(b" ")]
    return _joined([*words, *_container(container), "stdout=true", "stderr=true"])


def parse(raw: bytes) -> list[tuple[bytes, bytes]]:
    """
    Return names and values of a query, decoded, in their order.

    :raises BadRequest: a broken escape, or a bare semicolon, which servers interpret differently.
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
    """Return the path of a Pod's subresource on an API server."""
    where = f"{quote(namespace, safe='')}/pods/{quote(name, safe='')}"
    return f"/api/v1/namespaces/{where}/{subresource}"


def _decoded(text: bytes) -> bytes:
    return unquote_to_bytes(text.replace(b"+", b" "))


def _streams(pairs: Sequence[tuple[bytes, bytes]]) -> list[str]:
    """Return the requested streams.  With a terminal drop stderr, as kubelets do: it has none."""
    tty = _is_one(pairs, b"tty")
    streams = [ours for theirs, ours in _STREAMS if _is_one(pairs, theirs)]
    if tty and _STDERR in streams:
        streams.remove(_STDERR)
    if not streams:
        raise BadRequest("you must specify at least 1 of stdin, stdout, stderr")
    return [f"{name}=true" for name in (*streams, *(["tty"] if tty else []))]


def _is_one(pairs: Sequence[tuple[bytes, bytes]], key: bytes) -> bool:
    """Return whether the first value is ``1``; others are ignored, as by Go's ``FormValue``."""
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
