"""The session guard of a node server: its reviewer is :class:`twisted_exec.nodeserver.kubelet_api.gate.Gate`."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.contracts.session_guard import SessionGuardContract
from twisted_exec.nodeserver.kubelet_api.gate import PROXY, Gate, verb_of
from twisted_exec.streaming.interfaces import Subject


class SessionGuardTests(SessionGuardContract, SynchronousTestCase):
    """The guard of a node server."""

    resource = "pods"

    def make_reviewer(self) -> Gate:
        """As :meth:`SessionGuardContract.make_reviewer`."""
        self.gate = Gate(self.tokens, self.permissions)
        return self.gate

    async def admit(self, request: Any, subject: Subject) -> object:
        """As :meth:`SessionGuardContract.admit`, as :func:`twisted_exec.nodeserver.kubelet_api.upstream.find` does it."""
        request.evidence = None
        user = await self.gate.who(request)
        verb = verb_of(b"GET", subject.subresource)
        await self.gate.may(user, subject.pool, PROXY, verb)
        return request.evidence
