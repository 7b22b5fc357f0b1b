"""
The WebSocket handshake of the page in a browser: how it resumes sessions, and reads refusals.

A page sends the value of ``X-Twisted-Exec-Resume`` as a subprotocol, as Kubernetes takes bearer
tokens.  It reads the answer in the first message on channel 4, and a refusal in a Status on channel
3.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Collection
from contextlib import suppress

from twisted_exec.api.status import APIError, BadRequest
from twisted_exec.streaming.http.site import Request
from twisted_exec.streaming.http.upgrade_server import header_pairs, requested_protocol
from twisted_exec.wire.channel import V5, Channel, encode
from twisted_exec.wire.cross_site import is_cross_site
from twisted_exec.wire.errors import RemoteProtocolError
from twisted_exec.wire.marks import encode_session
from twisted_exec.wire.resume import RESUME_HEADER, Resumable
from twisted_exec.wire.upgrade import (
    WEBSOCKET,
    accept_key,
    check_websocket,
    offers_resume,
    subprotocol_resume,
    switching_protocols,
    tokens,
    values,
    without_resume,
)

_PROTOCOLS = b"Sec-WebSocket-Protocol"
_BINARY, _CLOSE = 0x82, 0x88
_NORMAL = struct.pack("!H", 1000)


def adopt_page(request: Request, allowed_origins: Collection[bytes] = ()) -> None:
    """
    Turn the subprotocol of a page into the header that other clients send.

    Call this before the headers are read.

    :raises BadRequest: the subprotocol or the handshake is not valid.
    """
    if not request.requestHeaders.hasHeader(_PROTOCOLS):
        return
    headers = header_pairs(request.requestHeaders)
    if not offers_resume(headers):
        return
    recognise_page(request, allowed_origins)
    offered = tokens(values(headers, _PROTOCOLS))
    request.requestHeaders.setRawHeaders(_PROTOCOLS, without_resume(offered))
    if requested_protocol(request) != WEBSOCKET:
        return
    if request.page is None:
        raise BadRequest(f"a page resumes sessions over a WebSocket with {V5}")
    try:
        value = subprotocol_resume(headers)
    except RemoteProtocolError as problem:
        raise BadRequest(str(problem)) from None
    if value is not None:
        request.requestHeaders.addRawHeader(RESUME_HEADER.encode("ascii"), value)


def recognise_page(request: Request, allowed_origins: Collection[bytes] = ()) -> None:
    """
    Let a page read the reason if its request is refused later.

    :param allowed_origins: see :func:`~.cross_site.refuse_other_sites`; other pages cannot read
        it.
    """
    headers = header_pairs(request.requestHeaders)
    if not offers_resume(headers) or requested_protocol(request) != WEBSOCKET:
        return
    with suppress(RemoteProtocolError):
        check_websocket(request.method, headers)
        if V5.encode("ascii") in tokens(values(headers, _PROTOCOLS)):
            is_foreign = is_cross_site(headers, secure=request.isSecure(), allowed=allowed_origins)
            request.page = PageHandshake(reads_refusals=not is_foreign)


class PageHandshake:
    """The answers to a page's handshake."""

    def __init__(self, *, reads_refusals: bool) -> None:
        self.reads_refusals = reads_refusals

    def greeting(self, session: str, resumable: Resumable) -> bytes:
        return _frame(_BINARY, encode(Channel.RESIZE, encode_session(resumable, session)))

    def refuse(self, request: Request, error: APIError) -> None:
        """Accept the handshake, send the error's Status, and hang up."""
        (key,) = values(header_pairs(request.requestHeaders), b"sec-websocket-key")
        head = switching_protocols(
            WEBSOCKET,
            [
                (b"Sec-WebSocket-Accept", accept_key(key)),
                (_PROTOCOLS, V5.encode("ascii")),
                (b"Audit-Id", request.subject.session.encode("ascii")),
            ],
        )
        status = json.dumps(error.to_status(), separators=(",", ":")).encode()
        message = bytes((Channel.ERROR,)) + status
        request.channel.answer_last(head + _frame(_BINARY, message) + _frame(_CLOSE, _NORMAL))
        request.gone = True


def _frame(opcode: int, payload: bytes) -> bytes:
    size = len(payload)
    if size < 126:
        return struct.pack("!BB", opcode, size) + payload
    if size <= 0xFFFF:
        return struct.pack("!BBH", opcode, 126, size) + payload
    return struct.pack("!BBQ", opcode, 127, size) + payload
