"""
The heads of an HTTP upgrade: what a hop reads in them, and what it passes on.

A header list here is an iterable of ``(name, value)`` pairs of bytes, names in
any case.  Sources: RFC 9110 section 7.6.1 (hop-by-hop), RFC 6455 section 4
(WebSocket), and what Kubernetes' own servers read
(``k8s.io/apimachinery/pkg/util/httpstream``).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Collection, Iterable, Sequence

from twisted_exec.wire.errors import RemoteProtocolError

Headers = Iterable[tuple[bytes, bytes]]

WEBSOCKET = b"websocket"
SPDY = b"SPDY/3.1"
PASSED_UPGRADES = (WEBSOCKET, SPDY)
"""What may pass a proxy: anything else could be a way around it (h2c, TLS ...)."""

_KNOWN_UPGRADES = {name.lower(): name for name in PASSED_UPGRADES}

BEARER_SUBPROTOCOL = b"base64url.bearer.authorization.k8s.io."
"""A WebSocket subprotocol that is a bearer token: browsers can set no header."""

HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)

_CREDENTIALS = frozenset({b"authorization", b"proxy-authorization", b"cookie", b"cookie2"})
_CREDENTIAL_PREFIXES = (b"x-remote-", b"impersonate-", b"x-twisted-exec-")

_SET_BY_HOP = frozenset({b"host", b"content-length", b"expect", b"audit-id", b"origin"})
_OF_101 = frozenset({b"x-stream-protocol-version"})

_ACCEPT_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


def is_credential_header(name: bytes) -> bool:
    """
    Whether a header says who is asking.

    Every hop drops these from what came in before it sets its own: a user could
    otherwise name any identity to the next hop.  ``X-Twisted-Exec-`` is how a
    poollet tells a runtime for whom it asks.  With underscores it is another header to us, but
    to whatever makes variables of headers, as CGI does, it is the same.
    """
    lowered = name.lower().replace(b"_", b"-")
    return lowered in _CREDENTIALS or lowered.startswith(_CREDENTIAL_PREFIXES)


def is_cross_site(
    headers: Headers,
    *,
    shows_certificate: bool = True,
    secure: bool = False,
    allowed: Collection[bytes] = (),
) -> bool:
    """
    Whether a browser may have sent a request for a page of another site.

    Browsers show a client certificate to whomever any page connects, and WebSockets ask
    no server's leave first (CVE-2015-0259).  A bearer token in ``Authorization`` no page can
    make a browser send without that leave; programs other than browsers send no ``Origin``.
    Of other schemes that cannot be said: ``wss://name:password@HOST`` makes a browser send
    ``Basic``, and nobody is known by it here.

    A token in a subprotocol counts as much only where nothing else can be believed: any page
    can make one up beside the certificate that the browser shows.

    :param shows_certificate: or has anything else that a browser adds by itself.
    :param secure: the request came over TLS, so the page must have as well.
    :param allowed: other sites, as :func:`read_origin` gives them.
    """
    headers = list(headers)
    origins, hosts = values(headers, b"origin"), values(headers, b"host")
    if not origins or any(map(_is_bearer, values(headers, b"authorization"))):
        return False
    if not shows_certificate and _has_bearer(headers):
        return False
    if len(origins) > 1:
        return True
    scheme, mark, site = origins[0].lower().partition(b"://")
    if _without_port(scheme, origins[0].lower()) in allowed:
        return False
    if not mark or not site or len(hosts) != 1 or (secure and scheme != b"https"):
        return True
    return _without_port(scheme, site) != _without_port(scheme, hosts[0].lower())


def _is_bearer(authorization: bytes) -> bool:
    scheme, _, token = authorization.strip().partition(b" ")
    return scheme.lower() == b"bearer" and bool(token.strip())


def _has_bearer(headers: Headers) -> bool:
    offered = tokens(values(headers, b"sec-websocket-protocol"))
    return any(one.startswith(BEARER_SUBPROTOCOL) for one in offered)


_DEFAULT_PORTS = {b"https": b":443", b"http": b":80"}
_ORIGIN = re.compile(rb"https?://([a-z0-9][-a-z0-9.]*|\[[0-9a-f:.]+\])(:[0-9]{1,5})?")


def _without_port(scheme: bytes, site: bytes) -> bytes:
    """Browsers leave out a port that goes without saying; not all programs do."""
    return site.removesuffix(_DEFAULT_PORTS.get(scheme, b":"))


def read_origin(text: str) -> bytes:
    """
    A site whose pages may come, in the form in which it is compared.

    :param text: such as ``https://dash.example:8443``, or ``null`` for pages without a site
        (files, sandboxes).
    :raises ValueError: it is no origin.
    """
    told = text.strip().lower().encode("ascii", "replace")
    if told == b"null":
        return told
    if not _ORIGIN.fullmatch(told):
        raise ValueError(f"{text!r} is no origin such as https://HOST or https://HOST:PORT")
    return _without_port(told.partition(b":")[0], told)


def subprotocol_token(headers: Headers) -> bytes | None:
    """
    The bearer token among a WebSocket's subprotocols: browsers can set no header.

    Source: ``k8s.io/apiserver/pkg/authentication/request/websocket/protocol.go``.

    :return: ``None`` when there is none, or the request is for no WebSocket.
    :raises RemoteProtocolError: there are several, it is not base64url without padding of
        UTF-8, or no other subprotocol stands beside it to be answered with.
    """
    headers = list(headers)
    if requested_upgrade(headers) != WEBSOCKET:
        return None
    offered = tokens(values(headers, b"sec-websocket-protocol"))
    found = [one for one in offered if one.startswith(BEARER_SUBPROTOCOL)]
    if not found:
        return None
    if len(found) > 1:
        raise RemoteProtocolError("more than one bearer token among the subprotocols")
    token = _unpadded(found[0].removeprefix(BEARER_SUBPROTOCOL))
    if len(offered) == 1:
        raise RemoteProtocolError("no other subprotocol beside the bearer token")
    return token


def _unpadded(encoded: bytes) -> bytes:
    try:
        if not _BASE64URL.fullmatch(encoded):
            raise ValueError
        token = base64.urlsafe_b64decode(encoded + b"=" * (-len(encoded) % 4))
        token.decode("utf-8")
    except ValueError:
        raise RemoteProtocolError(
            "the bearer token among the subprotocols is not base64url of text"
        ) from None
    return token


_BASE64URL = re.compile(rb"[A-Za-z0-9_-]*")


def values(headers: Headers, name: bytes) -> list[bytes]:
    """The values of all lines named ``name``, in order."""
    wanted = name.lower()
    return [value for one, value in headers if one.lower() == wanted]


def tokens(lines: Iterable[bytes]) -> list[bytes]:
    """The items of comma-separated lists, over repeated lines; proxies fold and split them."""
    return [item for line in lines for item in (part.strip() for part in line.split(b",")) if item]


def requested_upgrade(headers: Headers) -> bytes:
    """
    What an upgrade request asks for; empty when it is not one.

    ``Connection`` must contain the token ``upgrade``.  A request for one of
    :data:`PASSED_UPGRADES` gets that spelling, any other what was sent.
    """
    connection, upgrade = [], []
    for name, value in headers:  # asked several times for each stream: in one pass
        folded = name.lower()
        if folded == b"connection":
            connection.append(value)
        elif folded == b"upgrade":
            upgrade.append(value)
    wanted = tokens(upgrade)
    if not wanted or b"upgrade" not in {token.lower() for token in tokens(connection)}:
        return b""
    if len(wanted) > 1:
        return b", ".join(wanted)
    return _KNOWN_UPGRADES.get(wanted[0].lower(), wanted[0])


def passed_on(headers: Headers) -> list[tuple[bytes, bytes]]:
    """
    The headers of a request that the next hop may see.

    Without hop-by-hop headers (also those that ``Connection`` names), without
    credentials (also those in subprotocols), and without what every hop sets
    or judges itself.
    """
    headers = list(headers)
    named = {token.lower() for token in tokens(values(headers, b"connection"))}
    dropped = HOP_BY_HOP | _SET_BY_HOP | named
    kept = [
        (name, value)
        for name, value in headers
        if name.lower() not in dropped and not is_credential_header(name)
    ]
    return [pair for pair in map(_without_bearer, kept) if pair[1]]


def _without_bearer(pair: tuple[bytes, bytes]) -> tuple[bytes, bytes]:
    name, value = pair
    if name.lower() != b"sec-websocket-protocol" or BEARER_SUBPROTOCOL not in value:
        return pair
    kept = [token for token in tokens([value]) if not token.startswith(BEARER_SUBPROTOCOL)]
    return name, b", ".join(kept)


def passed_back(headers: Headers) -> list[tuple[bytes, bytes]]:
    """
    The headers of a 101 that the previous hop may see: those of the handshake.

    A backend sets no cookies and no policies in our name.
    """
    return [
        (name, value)
        for name, value in headers
        if name.lower() in _OF_101 or name.lower().startswith(b"sec-websocket-")
    ]


def switching_protocols(upgrade: bytes, headers: Headers = ()) -> bytes:
    """The whole head of a 101 answer."""
    lines = [b"HTTP/1.1 101 Switching Protocols", b"Connection: Upgrade", b"Upgrade: " + upgrade]
    lines += [name + b": " + value for name, value in headers]
    return b"\r\n".join([*lines, b"", b""])


def accept_key(key: bytes) -> bytes:
    """``Sec-WebSocket-Accept`` for a ``Sec-WebSocket-Key``."""
    return base64.b64encode(hashlib.sha1(key + _ACCEPT_GUID).digest())


def check_websocket(method: bytes, headers: Headers) -> None:
    """
    See that a request is a complete WebSocket handshake.

    :raises RemoteProtocolError: it says what is missing.
    """
    headers = list(headers)
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
    Choose a protocol from *our* list: the first of the peer's that is on it.

    :param offered: the header's lines, repeated or comma-joined.
    :return: ``None`` when nothing is on both lists.
    """
    known = {name.encode("ascii"): name for name in ours}
    return next((known[token] for token in tokens(offered) if token in known), None)
