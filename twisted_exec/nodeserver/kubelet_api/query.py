"""
Queries of requests to a kubelet: the command, the streams and the ports.

Sources: ``pkg/kubelet/server/server.go`` (``cmd``) of Kubernetes; ``NewOptions`` and
``NewV4Options`` of ``k8s.io/kubelet/pkg/cri/streaming``; ``PodExecOptions``, ``PodAttachOptions``
and ``PodPortForwardOptions`` of ``k8s.io/api/core/v1``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import quote_from_bytes, quote_plus, unquote_to_bytes

from twisted_exec.api.status import APIError, BadRequest

MAX_QUERY_BYTES = 256 << 10
"""Limit of an encoded query; the limit of a whole request header is usually lower."""

MAX_PORTS = 127
"""Limit of ports on one WebSocket: each takes two channels, and a channel number is one byte."""

_BROKEN_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_STREAMS = ((b"input", "stdin"), (b"output", "stdout"), (b"error", "stderr"))
_STDERR = "stderr"
_PORT = re.compile(rb"[0-9]{1,5}")


def exec_query(raw: bytes, container: str) -> bytes:
    """
    Return the query for ``pods/exec``.

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
    """Return the query for ``pods/attach``; errors are those of :func:`exec_query`."""
    return _joined([*_container(container), *_streams(parse(raw))])


def forward_query(raw: bytes, *, needs_ports: bool) -> bytes:
    """
    Return the query for ``pods/portforward``.

    :param needs_ports: a WebSocket takes its ports from the query (``port=80,81``, or repeated).
    :raises BadRequest: a port is missing or invalid, there are too many, or the query is
        undecodable.
    :raises APIError: 414, it is too long.
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
    Return the query for ``pods/exec`` for ``/run/...``: ``cmd``, split at single spaces.

    :raises BadRequest: it has no ``cmd``, or is undecodable.
    :raises APIError: 414, it is too long.
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


def _decoded(text: bytes) -> bytes:
    return unquote_to_bytes(text.replace(b"+", b" "))


def _streams(pairs: Sequence[tuple[bytes, bytes]]) -> list[str]:
    """Return the requested streams, without stderr if there is a terminal, as in kubelets."""
    tty = _is_one(pairs, b"tty")
    streams = [ours for theirs, ours in _STREAMS if _is_one(pairs, theirs)]
    if tty and _STDERR in streams:
        streams.remove(_STDERR)
    if not streams:
        raise BadRequest("you must specify at least 1 of stdin, stdout, stderr")
    return [f"{name}=true" for name in (*streams, *(["tty"] if tty else []))]


def _is_one(pairs: Sequence[tuple[bytes, bytes]], key: bytes) -> bool:
    """Return whether the first value is ``1``, as Go's ``FormValue`` would."""
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
