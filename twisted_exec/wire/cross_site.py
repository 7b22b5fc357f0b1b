"""
Requests that a browser may have sent for a page of another site: ``Origin`` and ``Sec-Fetch-Site``.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from twisted_exec.wire.upgrade import BEARER_SUBPROTOCOL, Headers, tokens, values

_DEFAULT_PORTS = {b"https": b":443", b"http": b":80"}
_ORIGIN = re.compile(rb"https?://([a-z0-9][-a-z0-9.]*|\[[0-9a-f:.]+\])(:[0-9]{1,5})?")


def is_cross_site(
    headers: Headers,
    *,
    has_ambient_credentials: bool = True,
    secure: bool = False,
    allowed: Collection[bytes] = (),
    reads_only: bool = True,
) -> bool:
    """
    Return whether a browser may have sent this request for a page of another site.

    ``Sec-Fetch-Site``, which pages cannot set, decides about all sites but ``allowed`` ones.
    Without it ``Origin`` is compared with ``Host``.

    Browsers present a client certificate to any host that a page connects to, also for a WebSocket
    (CVE-2015-0259).  A page cannot make a browser send a bearer token in ``Authorization`` without
    the server's consent.  Other schemes prove nothing.  A token in a subprotocol counts only if no
    other credentials can be accepted: any page can invent one next to the browser's certificate.

    :param has_ambient_credentials: the request carries credentials that a browser adds by itself, such as a
        client certificate.
    :param secure: the request came over TLS, so the page must have, too.
    :param reads_only: the request changes nothing and is no upgrade.  Browsers send such requests
        without ``Origin`` for links: the other site sees no response.
    """
    headers = list(headers)
    origins, hosts = values(headers, b"origin"), values(headers, b"host")
    verdicts = values(headers, b"sec-fetch-site")
    if (not origins and not verdicts) or any(map(_is_bearer, values(headers, b"authorization"))):
        return False
    if not has_ambient_credentials and _has_bearer(headers):
        return False
    if verdicts in ([b"same-origin"], [b"none"]):
        return False
    if len(origins) != 1:
        return bool(origins) or not reads_only
    scheme, mark, site = origins[0].lower().partition(b"://")
    if _without_port(scheme, origins[0].lower()) in allowed:
        return False
    if verdicts or not mark or not site or len(hosts) != 1 or (secure and scheme != b"https"):
        return True
    return _without_port(scheme, site) != _without_port(scheme, hosts[0].lower())


def _is_bearer(authorization: bytes) -> bool:
    scheme, _, token = authorization.strip().partition(b" ")
    return scheme.lower() == b"bearer" and bool(token.strip())


def _has_bearer(headers: Headers) -> bool:
    offered = tokens(values(headers, b"sec-websocket-protocol"))
    return any(token.startswith(BEARER_SUBPROTOCOL) for token in offered)


def _without_port(scheme: bytes, site: bytes) -> bytes:
    return site.removesuffix(_DEFAULT_PORTS.get(scheme, b":"))


def read_origin(text: str) -> bytes:
    """
    Return a permitted origin in the form in which origins are compared.

    :param text: such as ``https://dash.example:8443``, or ``null`` for pages without a site (files,
        sandboxes).
    :raises ValueError: the text is not an origin.
    """
    origin = text.strip().lower().encode("ascii", "replace")
    if origin == b"null":
        return origin
    if not _ORIGIN.fullmatch(origin):
        raise ValueError(f"{text!r} is no origin such as https://HOST or https://HOST:PORT")
    return _without_port(origin.partition(b":")[0], origin)
