"""
Checks of requests: only the page of this server, in a browser on this computer, may send them.

A page of another site can make the user's browser send requests here.  With a name that it controls
and that resolves to 127.0.0.1 it could also read the answers (DNS rebinding).  So ``Host`` must be
ours, and ``Origin`` and ``Sec-Fetch-Site``, which pages cannot set, must not be those of another
site.  The token proves the user; without it a request can only read the page's files.
"""

from __future__ import annotations

from twisted_exec.api.status import APIError, BadRequest, Forbidden, Unauthorized
from twisted_exec.cli.web.login import REMEDY, Login
from twisted_exec.streaming.http.request import Request
from twisted_exec.streaming.http.upgrade_server import header_pairs
from twisted_exec.wire.errors import RemoteProtocolError
from twisted_exec.wire.upgrade import subprotocol_token, values

_NAMES = (b"127.0.0.1", b"localhost")
_HTTP_PORT = 80
_OWN_SITES = (b"same-origin", b"none")
"""Values of ``Sec-Fetch-Site`` of our page, and of URLs that the user typed."""


class MisdirectedRequest(APIError):
    """The request names another server (421)."""

    code, reason = 421, "MisdirectedRequest"


class NoToken(Unauthorized):
    """The request has no token of this program."""

    def __init__(self) -> None:
        super().__init__(
            f"this page is not logged in to the web console on this computer: {REMEDY}"
        )


def check_host(request: Request, port: int) -> None:
    """
    Refuse requests for other names than ours.

    :raises MisdirectedRequest: ``Host`` is not ours.
    """
    hosts = request.requestHeaders.getRawHeaders(b"Host", [])
    if len(hosts) != 1 or hosts[0].lower() not in _our_hosts(port):
        raise MisdirectedRequest(f"this is the web console at http://127.0.0.1:{port}/console/")


def _our_hosts(port: int) -> list[bytes]:
    hosts = [name + b":%d" % port for name in _NAMES]
    return [*hosts, *_NAMES] if port == _HTTP_PORT else hosts  # browsers omit the default port


def check_origin(request: Request) -> None:
    """
    Refuse requests of pages of other sites; ``Host`` has been checked.

    :raises Forbidden: a page of another site sent the request, or may have sent it.
    """
    headers = request.requestHeaders
    host = headers.getRawHeaders(b"Host", [b""])[0].lower()
    origins = headers.getRawHeaders(b"Origin", [])
    sites = headers.getRawHeaders(b"Sec-Fetch-Site", [])
    is_ours = all(origin.lower() == b"http://" + host for origin in origins)
    if not is_ours or not all(site.lower() in _OWN_SITES for site in sites):
        raise Forbidden("a page of another site may not use the web console on this computer")


def check_token(request: Request, login: Login) -> None:
    """
    Refuse requests without the token.

    :raises BadRequest: the token among the subprotocols is malformed.
    :raises Unauthorized: there is no token, or another one.
    """
    pairs = header_pairs(request.requestHeaders)
    try:
        token = subprotocol_token(pairs)
    except RemoteProtocolError as problem:
        raise BadRequest(str(problem)) from None
    authorizations = values(pairs, b"authorization")
    if token is None and len(authorizations) == 1:
        scheme, _, credentials = authorizations[0].partition(b" ")
        token = credentials.strip() if scheme.lower() == b"bearer" else None
    if token is None or not login.is_token(token):
        raise NoToken
