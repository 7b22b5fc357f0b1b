"""Tests for :mod:`twisted_exec.streaming.http.site`."""

from __future__ import annotations

import json

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.streaming.http.responses import Dispatcher, respond_json
from twisted_exec.streaming.http.site import Request
from twisted_exec.testing.network import MemoryServer


class SubjectTests(SynchronousTestCase):
    """The subject of a request."""

    def test_session_ids(self) -> None:
        """Every request has an id of its own."""

        class Tell(Dispatcher):
            async def dispatch(self, request: Request) -> None:
                respond_json(request, 200, request.subject.session)

        server = MemoryServer(Tell())
        told = {json.loads(server.request("GET", "/").body) for _ in range(3)}
        self.assertEqual(len(told), 3)
