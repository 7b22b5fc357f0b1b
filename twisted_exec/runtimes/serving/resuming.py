"""
Requests of clients that can resume their sessions, see :mod:`twisted_exec.wire.resume`.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted_exec.api.status import BadRequest
from twisted_exec.iri.request_cache import Grant
from twisted_exec.runtimes.serving.kept_sessions import KeptSession, KeptSessions
from twisted_exec.streaming.http.request import Request
from twisted_exec.streaming.http.upgrade_server import is_upgrade
from twisted_exec.streaming.interfaces import IAttachment, IResumableAttachment, Subject
from twisted_exec.streaming.sessions.resuming import (
    Resumption,
    requested_resumption,
    resume_headers,
)
from twisted_exec.wire.channel import V4, V5
from twisted_exec.wire.resume import Resume
from twisted_exec.wire.upgrade import WEBSOCKET

_PROTOCOLS = (V5, V4)


def resumption_of(request: Request, protocol: str) -> Resumption | None:
    """
    Read what the client says about resuming sessions.

    :param protocol: of the stream.
    :return: ``None`` if it cannot resume, or if sessions over this protocol cannot be resumed.
    :raises BadRequest: the header is not valid, or resumes a session over such a protocol.
    """
    resumption = requested_resumption(resume_headers(request))
    if resumption is None or (is_upgrade(request) == WEBSOCKET and protocol in _PROTOCOLS):
        return resumption
    if resumption.resume is not None:
        raise BadRequest(f"a session is resumed over a WebSocket with {' or '.join(_PROTOCOLS)}")
    return None


class Resuming:
    """
    Finds attachments for the streams of clients.

    :param attach: see :data:`~twisted_exec.runtimes.serving.routes.Attach`.
    """

    def __init__(
        self, kept_sessions: KeptSessions, attach: Callable[[Grant], tuple[Subject, IAttachment]]
    ) -> None:
        self._kept_sessions, self._attach = kept_sessions, attach

    def find(
        self, claimed: Subject, grant: Grant, resumption: Resumption | None
    ) -> tuple[Subject, IAttachment | KeptSession]:
        """
        Find the machine and the attachment for a request.

        :param claimed: the facts that the request names.
        :return: the names of the machine, and a kept session if the client can resume it later.
        :raises APIError: there is no such machine, or no such session to resume.
        """
        user = grant.user or claimed.user
        if resumption is not None and resumption.resume is not None:
            session = self._resumed(user, grant, resumption.resume)
            session.attachment.check(resumption.resume.position)
            return session.subject, session
        machine, attachment = self._attach(grant)
        can_resume = resumption is not None and user and self._kept_sessions.is_enabled
        if can_resume and IResumableAttachment.providedBy(attachment):
            return machine, self._kept_sessions.new(user, _bound(grant), machine, attachment)
        return machine, attachment

    def _resumed(self, user: str, grant: Grant, resume: Resume) -> KeptSession:
        """
        Find the session that a request resumes.

        :raises APIError: there is none, or its machine is gone.
        """
        sessions, bound = self._kept_sessions, _bound(grant)
        if session := sessions.find(resume, user, bound):
            return session
        oldest = sessions.find_earlier(resume, user, bound) if user else None
        if oldest is None:
            raise sessions.refusal(user)
        machine, attachment = self._attach(grant)
        if not IResumableAttachment.providedBy(attachment):
            raise sessions.refusal(user)
        if attachment.oldest.epoch != oldest.epoch:
            # Another journal: the machine was created again, and what its user types was meant for the
            # one before.
            raise sessions.refusal(user)
        return sessions.from_earlier(resume, user, bound, machine, attachment, oldest)


def _bound(grant: Grant) -> str:
    """Return the UID to which the keys of a session are bound."""
    return grant.machine_uid or grant.machine_id
