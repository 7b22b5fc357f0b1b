"""
Headers of a client never tell the target who the user is, however they are spelt.
"""

from __future__ import annotations

from tests.chain import reactor
from tests.streaming import smuggled
from tests.streaming.smuggled import CANARY, FORMS, IMPERSONATING, NAMES
from twisted_exec.tls.endpoints import unix_client_endpoint

from .test_host import HostCase

OTHERS = (*NAMES[:-3], *IMPERSONATING)
"""All but what a poollet says."""


class ForwardedTests(HostCase):
    """A poollet that lets through what it should not, and a target whose poollet writes all down."""

    async def test_every_spelling(self) -> None:
        """It is dropped, or the request is refused; the target hears of jane of this cluster only."""
        host = await self.ready()
        machine = await self.machine(host)
        path = host.streams.listening.address.removeprefix("unix:").replace("\\:", ":")
        passed = set()
        for form, line in FORMS.items():
            token = await self.token(host, machine)
            request = (
                b"GET /exec/%s HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                b"X-Twisted-Exec-User: jane\r\nX-Twisted-Exec-Machine-Uid: uid-x\r\n%s\r\n"
                % (token.encode(), b"".join(smuggled.spelt(OTHERS, line)))
            )
            before = len(self.pool.requests)
            endpoint = unix_client_endpoint(reactor, path)
            code = await smuggled.said(reactor, endpoint, request)
            self.assertIn(code, (101, 400), form)
            passed |= {form} if code == 101 else set()
            for _, uri, headers in self.pool.requests[before:]:
                headers.pop("odd", None)  # in the text of another header it says nothing
                self.assertNotIn(CANARY.decode(), f"{uri} {headers}".lower(), form)
                self.assertEqual(headers["x-remote-user"], ["a:jane"])
        self.assertLessEqual({"plain", "no space", "tab", "named by Connection"}, passed)
