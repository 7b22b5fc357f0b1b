"""
The session guard of a node server: its reviewer is the gate of
:class:`~twisted_exec.nodeserver.kubelet_api.gate.NodeAccess`.
"""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.contracts.session_guard import SessionGuardContract
from twisted_exec.auth.gate import Gate
from twisted_exec.nodeserver.kubelet_api.gate import NodeAccess
from twisted_exec.streaming.context import RequestContext
from twisted_exec.streaming.subject import Subject


class SessionGuardTests(SessionGuardContract, SynchronousTestCase):
    """The guard of a node server."""

    resource = "pods"

    def make_reviewer(self) -> Gate:
        """As :meth:`SessionGuardContract.make_reviewer`."""
        self.access = NodeAccess(self.tokens, self.permissions)
        return self.access.gate

    async def admit(self, request: Any, subject: Subject) -> object:
        """As :meth:`SessionGuardContract.admit`, as the dispatcher and an admission do it."""
        request.subject, request.method = subject, b"GET"
        context = RequestContext(request)
        await self.access.gate.identify(context)
        await self.access.authorize_session(context, subject.pool)
        return context.evidence
