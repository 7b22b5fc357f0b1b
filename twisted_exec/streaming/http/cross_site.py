"""
Refusal of requests that a browser may have sent for a page of another site.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from twisted_exec.api.status import Forbidden
from twisted_exec.streaming.http.upgrade_server import header_pairs, requested_protocol
from twisted_exec.wire.cross_site import is_cross_site

if TYPE_CHECKING:
    from twisted.web.iweb import IRequest

_SAFE_METHODS = (b"GET", b"HEAD", b"OPTIONS")


def refuse_other_sites(
    request: IRequest, allowed: Collection[bytes] = (), *, has_ambient_credentials: bool = True
) -> None:
    """
    Refuse a request that a browser may have sent for a page of another origin.

    :param allowed: origins besides this server's own, see
        :func:`~twisted_exec.wire.cross_site.read_origin`.
    :param has_ambient_credentials: a browser may have added the credentials by itself, such as a client
        certificate.
    :raises Forbidden: a page of another origin may have sent the request.
    """
    headers = request.requestHeaders
    if not headers.hasHeader(b"origin") and not headers.hasHeader(b"sec-fetch-site"):
        return
    if is_cross_site(
        header_pairs(headers),
        has_ambient_credentials=has_ambient_credentials,
        secure=request.isSecure(),
        allowed=allowed,
        reads_only=request.method in _SAFE_METHODS and not requested_protocol(request),
    ):
        raise Forbidden(
            "a page of another site may not use your browser's credentials here"
            " (--allowed-origin names sites that may)"
        )
