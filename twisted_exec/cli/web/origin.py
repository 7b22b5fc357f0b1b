"""
Checks that a request is for this server, and that no page of another site sent it.

A page of another site can make the user's browser send requests here, and with a name that resolves
to 127.0.0.1 read the answers (DNS rebinding).  So ``Host`` must be ours, and ``Origin`` and
``Sec-Fetch-Site``, which pages cannot set, must not be another site's.
"""

from __future__ import annotations

from twisted_exec.api.status import APIError, Forbidden
from twisted_exec.streaming.http.site import Request

_NAMES = (b"127.0.0.1", b"localhost")
_HTTP_PORT = 80
_OWN_SITES = (b"same-origin", b"none")
"""Values of ``Sec-Fetch-Site`` of our page, and of URLs that the user typed."""


class MisdirectedRequest(APIError):
    """The request names another server (421)."""

    code, reason = 421, "MisdirectedRequest"


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
