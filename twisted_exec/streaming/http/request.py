"""
The requests of our servers: twisted.web's, with limits for bodies and the subject of audit records.
"""

from __future__ import annotations

import ipaddress
import time
import uuid
from dataclasses import replace
from functools import lru_cache
from io import BytesIO
from typing import TYPE_CHECKING, Any

from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.interfaces import IAddress
from twisted.python.failure import Failure
from twisted.web import http, server

from twisted_exec.api.status import BadRequest
from twisted_exec.streaming.interfaces import Subject

if TYPE_CHECKING:
    from twisted_exec.streaming.http.channel import Channel
    from twisted_exec.streaming.http.pages import Page

LONGEST_AGENT = 256
"""Longest user agent in a record of the audit log, in characters."""

MAX_CHUNKS = 4096
"""Limit for the chunks of one body, besides one for each :data:`_CHUNK_BYTES`."""

_CHUNK_BYTES = 16


class Request(server.Request):
    """
    One request.

    :ivar gone: no response can be sent: the client left, or the connection was upgraded.
    :ivar subject: user and target, as far as known; locators refine it.
    :ivar credentials: the client's credentials, once they have been taken out of the headers
        (:mod:`twisted_exec.auth.credentials`).
    :ivar is_forwarded: a trusted proxy sent the request for its user, once that is known.
    :ivar page: how to answer a page in a browser, see :mod:`twisted_exec.streaming.http.pages`;
        ``None`` for other clients.
    """

    channel: Channel
    content: Any
    credentials: Any = None
    is_forwarded = False
    page: Page | None = None
    gone = False

    def __init__(self, channel: Channel, *args: Any, **more: Any) -> None:
        super().__init__(channel, *args, parsePOSTFormSubmission=False, **more)
        self.subject = Subject(session=str(uuid.uuid4()))
        self._chunks = 0

    def gotLength(self, length: int | None) -> None:
        # twisted.web would use a temporary file for a body of unknown length.
        self.content = BytesIO()

    def handleContentChunk(self, data: bytes) -> None:
        if self.gone or self.channel.refused:
            return  # the decoder may still deliver what it has buffered
        if self.content.tell() + len(data) > self.channel.site.max_body_bytes:
            self.channel.refuse(self.channel.too_large())
            return
        self.content.write(data)
        self.channel.received(len(data))
        self._chunks += 1
        is_chunked = self.channel.length is None
        if is_chunked and self._chunks > MAX_CHUNKS + self.content.tell() // _CHUNK_BYTES:
            self.channel.refuse(BadRequest("the request's body comes in too many small chunks"))

    def laid_out(self, body: bytes, content_type: str) -> tuple[bytes, str]:
        """
        Format a whole response body; programs override this, such as for ``?pretty``.

        :return: the body and its content type.
        """
        return body, content_type

    def process(self) -> None:
        self.site = self.channel.site
        agent = (self.getHeader(b"user-agent") or b"").decode("latin-1")
        self.subject = replace(self.subject, agent=agent[:LONGEST_AGENT], address=self.client_host)
        # RFC 9110, section 6.6.1; clients compare their clock with it.
        self.setHeader(b"Date", _date(int(time.time())))
        self.site.resource.render(self)

    @property
    def client_host(self) -> str:
        """The host of the user's address; empty on a UNIX socket."""
        return str(getattr(self.getClientAddress(), "host", ""))

    def getClientAddress(self) -> IAddress:
        """Return the user's address; from a trusted proxy, the one that it forwards."""
        address: IAddress = super().getClientAddress()
        if not self.is_forwarded:
            return address
        lines = self.requestHeaders.getRawHeaders(b"x-forwarded-for", [b""])
        # The proxy appends its client; entries before that are the client's own claims.
        forwarded = lines[-1].rpartition(b",")[2].strip().decode("ascii", "replace")
        try:
            version = ipaddress.ip_address(forwarded).version
        except ValueError:
            return address
        address_type = IPv4Address if version == 4 else IPv6Address
        return address_type("TCP", forwarded, 0)

    def connectionLost(self, reason: Failure) -> None:
        self.gone = True
        super().connectionLost(reason)


@lru_cache(maxsize=1)
def _date(seconds: int) -> bytes:
    date: bytes = http.datetimeToString(seconds)
    return date
