"""The answer to a request for a console."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from twisted.internet.interfaces import IReactorTime

from twisted_exec.api.obstacles import Obstacle, because
from twisted_exec.api.status import NotImplementedByBackend
from twisted_exec.streaming.http.site import Request
from twisted_exec.streaming.interfaces import IAttachment, ITermsAttachment
from twisted_exec.streaming.rejoinable_transport import (
    Offer,
)
from twisted_exec.streaming.remotecommand.carriers import (
    DEFAULT_LIMITS,
    StreamLimits,
    accept,
    choose_protocol,
)
from twisted_exec.streaming.remotecommand.resumable import PageServer, ResumableServer, Resumption
from twisted_exec.streaming.remotecommand.server import (
    ConsoleServer,
    unenforced,
)
from twisted_exec.streaming.sessions.registry import Session
from twisted_exec.wire.session_terms import FULL, Terms
from twisted_exec.wire.stream_options import StreamOptions


def serve(
    request: Request,
    attachment: IAttachment,
    *,
    session: str,
    user: str,
    clock: IReactorTime,
    limits: StreamLimits = DEFAULT_LIMITS,
    entry: Session | None = None,
    terms: Terms = FULL,
    now: Callable[[], float] = time.time,
    resumption: Resumption | None = None,
    offer: Offer | None = None,
) -> ConsoleServer:
    """
    Answer a request with a console.

    Over a WebSocket the attachment is attached before this returns.  Over SPDY that waits for the
    client's streams; without them it is never attached, but detached all the same.

    :param entry: the session on this hop; ``None`` if nothing keeps it.
    :param resumption: for a client that can resume; the attachment is an
        :class:`~twisted_exec.streaming.interfaces.IResumableAttachment` then.
    :return: the attachment's transport.
    :raises APIError: the request is no valid handshake, or the attachment does not admit a session;
        nothing was sent.
    :raises ConnectionDone: the client has left.
    """
    protocol, options = choose_protocol(request), StreamOptions.of(request.args)
    if ITermsAttachment.providedBy(attachment):
        attachment.admit(terms)
    elif terms.recording:
        unrecorded = NotImplementedByBackend("this console cannot be recorded")
        raise because(Obstacle.CANNOT_BE_RECORDED, unrecorded)
    elif why := unenforced(terms):
        raise NotImplementedByBackend(why)
    make: Callable[..., ConsoleServer] = ConsoleServer
    if resumption is not None:
        make = partial(PageServer if resumption.credit else ResumableServer, resumption)
    server = make(
        attachment,
        session=session,
        user=user,
        options=options,
        clock=clock,
        limits=limits,
        entry=entry,
        terms=terms,
        now=now,
    )
    accept(
        request,
        protocol,
        options,
        server,
        session=session,
        terms=terms,
        resumable=None if resumption is None else resumption.answer,
        offer=offer,
        clock=clock,
        limits=limits,
    )
    return server
