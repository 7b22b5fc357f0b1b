"""
HTTP upgrade headers: what a hop reads in them, and which ones it forwards.

Sources: RFC 9110 section 7.6.1 (hop-by-hop headers), RFC 6455 section 4 (WebSocket), and what
Kubernetes' servers read (``k8s.io/apimachinery/pkg/util/httpstream``).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import re
import string
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from twisted_exec.wire.errors import RemoteProtocolError

Headers = Iterable[tuple[bytes, bytes]]

WEBSOCKET = b"websocket"
SPDY = b"SPDY/3.1"
FORWARDED_UPGRADES = (WEBSOCKET, SPDY)
"""The upgrades that a proxy forwards.  Other upgrades (h2c, TLS ...) could bypass the proxy."""

MISDIRECTED = 421
"""
For a connection that is closed before its first request: the client may repeat any request over
another connection (RFC 9110, section 15.5.20).
"""

SESSIONS_HEADER = b"X-Twisted-Exec-Sessions"
"""
Offers, in a request for an upgrade, to carry the session in blocks (:mod:`twisted_exec.wire.blocks`), and
accepts that in the answer.

Its value is known to both ends of one TLS connection alone (RFC 8446, section 7.5).
"""

_KNOWN_UPGRADES = {name.lower(): name for name in FORWARDED_UPGRADES}

BEARER_SUBPROTOCOL = b"base64url.bearer.authorization.k8s.io."
"""Prefix of a WebSocket subprotocol that carries a bearer token: browsers cannot set headers."""

RESUME_SUBPROTOCOL = b"base64url.resume.console.twisted-exec."
"""Prefix of a WebSocket subprotocol that carries the value of ``X-Twisted-Exec-Resume``."""

# The protocol of SPDY's handshake; WebSocket's headers have a common beginning.
_OF_101 = frozenset({b"x-stream-protocol-version"})

# RFC 6455 §1.3.
_ACCEPT_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"

_PRINTABLE = re.compile(rb"[\x20-\x7e]*")

# Makes a name lower-case, with a hyphen for each underscore.
_FOLDED = bytes.maketrans(
    string.ascii_uppercase.encode() + b"_", string.ascii_lowercase.encode() + b"-"
)

_BASE64URL = re.compile(rb"[A-Za-z0-9_-]*")


@dataclass(frozen=True)
class HeaderSet:
    """
    A set of header names, some of them known by their beginning only.

    Case does not matter, and an underscore counts as a hyphen, as for CGI.
    """

    names: frozenset[bytes] = frozenset()
    prefixes: tuple[bytes, ...] = ()

    @classmethod
    def of(cls, *names: str, prefixes: Iterable[str] = ()) -> HeaderSet:
        """
        Return the set of these headers.

        :param prefixes: beginnings of names, such as ``X-Remote-Extra-``.
        """
        return cls(
            frozenset(name.encode("ascii").translate(_FOLDED) for name in names),
            tuple(prefix.encode("ascii").translate(_FOLDED) for prefix in prefixes),
        )

    def __contains__(self, name: object) -> bool:
        return isinstance(name, bytes) and self.has_folded(name.translate(_FOLDED))

    def has_folded(self, name: bytes) -> bool:
        """Return whether a header is in the set; its name is in lower case, with hyphens."""
        return name in self.names or name.startswith(self.prefixes)

    def __or__(self, other: HeaderSet) -> HeaderSet:
        return _union(self, other)


@lru_cache(maxsize=64)
def _union(one: HeaderSet, other: HeaderSet) -> HeaderSet:
    prefixes = dict.fromkeys((*one.prefixes, *other.prefixes))
    return HeaderSet(one.names | other.names, tuple(prefixes))


HOP_BY_HOP = HeaderSet.of(
    "Connection",
    "Keep-Alive",
    "Proxy-Connection",
    "TE",
    "Trailer",
    "Transfer-Encoding",
    "Upgrade",
)

FORWARDED = HeaderSet.of("Forwarded", "X-Real-IP", prefixes=("X-Forwarded-",))
"""Headers in which proxies name their clients."""

# No program here reads FORWARDED for another hop, but one behind might.
_SET_BY_HOP = HeaderSet.of("Host", "Content-Length", "Expect", "Audit-Id", "Origin") | FORWARDED
_NOT_FORWARDED = HOP_BY_HOP | _SET_BY_HOP


def subprotocol_token(headers: Headers) -> bytes | None:
    """
    Return the bearer token among a WebSocket's subprotocols.

    Source: ``k8s.io/apiserver/pkg/authentication/request/websocket/protocol.go``.

    :return: ``None`` without a token, or if the request is not for a WebSocket.
    :raises RemoteProtocolError: the token is not valid.
    """
    return _carried(headers, BEARER_SUBPROTOCOL, "bearer token")


def subprotocol_resume(headers: Headers) -> bytes | None:
    """
    Return the value of ``X-Twisted-Exec-Resume`` among a WebSocket's subprotocols.

    :return: ``None`` without one, or if the request is not for a WebSocket.
    :raises RemoteProtocolError: the value is not valid.
    """
    value = _carried(headers, RESUME_SUBPROTOCOL, "request to resume")
    if value is not None and not _PRINTABLE.fullmatch(value):
        raise RemoteProtocolError(
            "the request to resume among the subprotocols is no header's value"
        )
    return value


def offers_resume(headers: Headers) -> bool:
    """Return whether a client offers a subprotocol with :data:`RESUME_SUBPROTOCOL`."""
    return any(RESUME_SUBPROTOCOL in line for line in values(headers, b"sec-websocket-protocol"))


def without_resume(lines: Iterable[bytes]) -> list[bytes]:
    """Return the subprotocols in these lines, except those with :data:`RESUME_SUBPROTOCOL`."""
    return [token for token in tokens(lines) if not token.startswith(RESUME_SUBPROTOCOL)]


def _carried(headers: Headers, prefix: bytes, name: str) -> bytes | None:
    headers = list(headers)
    lines = values(headers, b"sec-websocket-protocol")
    # Most requests have none, and need no further look.
    if not any(prefix in line for line in lines) or requested_upgrade(headers) != WEBSOCKET:
        return None
    offered = tokens(lines)
    carriers = [token for token in offered if token.startswith(prefix)]
    if not carriers:
        return None
    if len(carriers) > 1:
        raise RemoteProtocolError(f"more than one {name} among the subprotocols")
    text = _unpadded(carriers[0].removeprefix(prefix), name)
    if len(offered) == 1:
        raise RemoteProtocolError(f"no other subprotocol beside the {name}")
    return text


def _unpadded(encoded: bytes, name: str) -> bytes:
    try:
        # The decoder skips characters that are not base64, instead of failing.
        if not _BASE64URL.fullmatch(encoded):
            raise ValueError
        # Kubernetes' clients leave the padding out; the decoder insists on it.
        token = base64.urlsafe_b64decode(encoded + b"=" * (-len(encoded) % 4))
        token.decode("utf-8")
    except ValueError:
        raise RemoteProtocolError(
            f"the {name} among the subprotocols is not base64url of text"
        ) from None
    return token


def values(headers: Headers, name: bytes) -> list[bytes]:
    """Return the values of all headers called ``name``, in order."""
    lowered = name.lower()
    return [value for key, value in headers if key.lower() == lowered]


def last_value(headers: Headers, name: bytes) -> bytes:
    """Return the value of the last header called ``name``; empty without one."""
    return b"".join(values(headers, name)[-1:])


def tokens(lines: Iterable[bytes]) -> list[bytes]:
    """Return the items of comma-separated lists over repeated lines."""
    return [item for line in lines for item in (part.strip() for part in line.split(b",")) if item]


def requested_upgrade(headers: Headers) -> bytes:
    """Return the upgrade that a request asks for; empty without one."""
    connection, upgrade = [], []
    for name, value in headers:  # in one pass, because this runs several times per stream
        folded = name.lower()
        if folded == b"connection":
            connection.append(value)
        elif folded == b"upgrade":
            upgrade.append(value)
    protocols = tokens(upgrade)
    if not protocols or b"upgrade" not in {token.lower() for token in tokens(connection)}:
        return b""
    if len(protocols) > 1:
        return b", ".join(protocols)
    return _KNOWN_UPGRADES.get(protocols[0].lower(), protocols[0])


def forwarded_request_headers(
    headers: Headers, credentials: HeaderSet
) -> list[tuple[bytes, bytes]]:
    """
    Return the headers of a request that the next hop may see.

    :param credentials: names of the headers that say who is asking.  With one of them a user could
        claim any identity at the next hop.
    """
    triples = [(name.translate(_FOLDED), name, value) for name, value in headers]
    lines = [value for folded, _, value in triples if folded == b"connection"]
    named = frozenset(token.translate(_FOLDED) for token in tokens(lines))
    dropped, forwarded = _NOT_FORWARDED | credentials, []
    for folded, name, value in triples:
        if dropped.has_folded(folded) or folded in named:
            continue
        if folded == b"sec-websocket-protocol" and BEARER_SUBPROTOCOL in value:
            value = _without_bearer(value)
        if value:
            forwarded.append((name, value))
    return forwarded


def _without_bearer(line: bytes) -> bytes:
    others = [token for token in tokens([line]) if not token.startswith(BEARER_SUBPROTOCOL)]
    return b", ".join(others)


def replaced_headers(
    headers: Sequence[tuple[bytes, bytes]], ours: Sequence[tuple[bytes, bytes]]
) -> list[tuple[bytes, bytes]]:
    """Return the headers of a request with ours, which take the place of those of the same names."""
    names = {name.translate(_FOLDED) for name, _ in ours}
    return [*(pair for pair in headers if pair[0].translate(_FOLDED) not in names), *ours]


def forwarded_response_headers(headers: Headers) -> list[tuple[bytes, bytes]]:
    """
    Return the headers of a 101 response that the previous hop may see.

    A backend must not set cookies or policies in our name.
    """
    return [
        (name, value)
        for name, value in headers
        if name.lower() in _OF_101 or name.lower().startswith(b"sec-websocket-")
    ]


def switching_protocols(upgrade: bytes, headers: Headers = ()) -> bytes:
    """Return the complete head of a 101 response."""
    lines = [b"HTTP/1.1 101 Switching Protocols", b"Connection: Upgrade", b"Upgrade: " + upgrade]
    lines += [name + b": " + value for name, value in headers]
    return b"\r\n".join([*lines, b"", b""])


def new_key() -> bytes:
    """Return a ``Sec-WebSocket-Key``."""
    return base64.b64encode(os.urandom(16))


def accept_key(key: bytes) -> bytes:
    """Return ``Sec-WebSocket-Accept`` for a ``Sec-WebSocket-Key``."""
    # RFC 6455 §4.2.2, item 5.4; a check of the protocol's version, and no protection.
    return base64.b64encode(hashlib.sha1(key + _ACCEPT_GUID).digest())


def check_websocket(method: bytes, headers: Headers) -> None:
    """
    Check that a request is a complete WebSocket handshake.

    :raises RemoteProtocolError: part of the handshake is missing or wrong.
    """
    headers = list(headers)
    # RFC 6455 §4.2.1.
    if method != b"GET":
        raise RemoteProtocolError("a WebSocket is opened with GET")
    if requested_upgrade(headers) != WEBSOCKET:
        raise RemoteProtocolError("the request does not ask for an upgrade to websocket")
    if values(headers, b"sec-websocket-version") != [b"13"]:
        raise RemoteProtocolError("Sec-WebSocket-Version must be 13")
    keys = values(headers, b"sec-websocket-key")
    if len(keys) != 1 or not _is_key(keys[0]):
        raise RemoteProtocolError("Sec-WebSocket-Key must be 16 bytes in base64")


def _is_key(key: bytes) -> bool:
    try:
        return len(base64.b64decode(key, validate=True)) == 16
    except binascii.Error:
        return False


def negotiate(offered: Iterable[bytes], ours: Sequence[str]) -> str | None:
    """
    Return the first protocol of the peer's list that is also on *ours*, or ``None``.

    :param offered: the header's lines, repeated or comma-joined.
    """
    by_token = {name.encode("ascii"): name for name in ours}
    # The peer's order decides, as in Kubernetes' servers (wsstream/conn.go, httpstream.go).
    return next((by_token[token] for token in tokens(offered) if token in by_token), None)


def is_answer(answered: Headers, offered: Headers) -> bool:
    """Return whether a 101 names a subprotocol of the request's offer; true without an offer."""
    requested = tokens(values(offered, b"sec-websocket-protocol"))
    chosen = tokens(values(answered, b"sec-websocket-protocol"))
    return not requested or (len(chosen) == 1 and chosen[0] in requested)
