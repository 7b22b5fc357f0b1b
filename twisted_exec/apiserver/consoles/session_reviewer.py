"""
Reviews of the API server's sessions: authenticate and authorize again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from twisted.internet.defer import Deferred
from zope.interface import implementer

from twisted_exec.api.status import Forbidden, NotFound
from twisted_exec.apiserver.serving.filters import Gate
from twisted_exec.auth.credentials import PresentedCredentials
from twisted_exec.auth.interfaces import Attributes, User
from twisted_exec.streaming.interfaces import ISessionReviewer, Subject


@dataclass(frozen=True)
class SessionEvidence:
    """
    What allowed a session.

    :param sender: the user of the credentials, who may have acted as somebody else.
    :param allowed: the question that the authorizer said yes to.
    """

    credentials: PresentedCredentials
    sender: User | None
    allowed: Attributes


@implementer(ISessionReviewer)
class SessionReviewer:
    """CoalescedRuns a session's credentials through the gate again."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def review(self, subject: Subject, evidence: object) -> Deferred[None]:
        """As :meth:`ISessionReviewer.review`; the evidence is a :class:`SessionEvidence`."""
        assert isinstance(evidence, SessionEvidence)
        return Deferred.fromCoroutine(self._review(evidence))

    async def _review(self, evidence: SessionEvidence) -> None:
        try:
            user = await self._gate.review(evidence.credentials, evidence.sender)
            if user.name != evidence.allowed.user.name:
                raise Forbidden("the credential is now another user's")
            await self._gate.authorize(replace(evidence.allowed, user=user))
        except NotFound as error:
            # The gate hides objects from poollets and node servers that may not see them.
            raise Forbidden(error.message) from None
