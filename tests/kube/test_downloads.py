"""
Tests for :mod:`twisted_exec.kube.downloads` against a real server.
"""

from __future__ import annotations

import json

from twisted.internet import reactor
from twisted.internet.defer import Deferred

from tests.chain import PATIENCE_SECONDS
from tests.kube.console_cases import Consoles, ConsolesCase
from twisted_exec.api.status import GatewayTimeout
from twisted_exec.kube.downloads import read_state
from twisted_exec.streaming.http.responses import respond
from twisted_exec.streaming.http.site import Request

STATE = {"epoch": "0" * 16, "offset": 7, "columns": 80, "rows": 24, "output": "hello"}


class Screens(Consoles):
    """
    Serves one screen.

    :ivar stops: the body of the answer stops to arrive.
    """

    stops = False
    body = b""

    async def dispatch(self, request: Request) -> None:
        self.uri = request.uri
        if self.stops:
            request.setHeader(b"Content-Length", b"1000")
            request.write(b"{")
            await Deferred()
        respond(request, 200, self.body, "application/json")


class StateTests(ConsolesCase):
    """The state of a console."""

    async def read(self, **more: float) -> object:
        self.screens = self.site.resource = Screens()
        self.screens.body = json.dumps(STATE).encode()
        options = {"timeout_seconds": PATIENCE_SECONDS, **more}
        return await read_state(
            self.config, "/screen", (80, 24), reactor, reason="a ticket", agent="test", **options
        )

    async def test_request(self) -> None:
        """The request has the size of the terminal and the user's reason."""
        state = await self.read()
        self.assertEqual(vars(state), STATE)
        self.assertEqual(self.screens.uri, b"/screen?as=state&size=80x24&reason=a%20ticket")

    async def test_limit(self) -> None:
        """A screen that stops to arrive fails after the time limit."""
        self.patch(Screens, "stops", True)
        with self.assertRaises(GatewayTimeout):
            await self.read(timeout_seconds=0.2)
