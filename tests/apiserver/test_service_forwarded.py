"""
Identity headers from users never reach a poollet, in any spelling.
"""

from __future__ import annotations

from typing import Any

from twisted.internet import reactor as _reactor

from tests.apiserver.chain import EXEC, ChainTestCase
from tests.apiserver.rights import BINDINGS, binding
from tests.streaming import smuggled
from tests.streaming.smuggled import CANARY, FORMS, IMPERSONATING, NAMES

reactor: Any = _reactor

POD = "/api/v1/namespaces/default/pods/vm/"
LOG = EXEC.format("vm").replace("exec", "log")
UPGRADES = {
    "exec by WebSocket": (EXEC.format("vm"), b"websocket"),
    "exec by SPDY": (EXEC.format("vm"), b"SPDY/3.1"),
    "attach to a Pod": (f"{POD}attach?stdin=true&stdout=true&tty=true", b"websocket"),
}
READS = {"log": LOG, "log of a Pod": f"{POD}log"}


class ForwardedTests(ChainTestCase):
    """
    Requests of jane, who may open the console of ``vm`` but not impersonate, to a poollet that
    records everything.
    """

    async def setUp(self) -> None:
        await super().setUp()
        self.pool, self.port = await self.poollet()
        await self.make_pool(("InternalIP", "127.0.0.1"), port=self.port)
        await self.make_machine()
        await self.admin.create(BINDINGS, binding("jane", "edit"), "default")

    def upgrade(self, way: str, lines: bytes) -> bytes:
        path, protocol = UPGRADES[way]
        return (
            b"POST %s HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: %s\r\n"
            b"Content-Length: 0\r\n%s\r\n" % (path.encode(), protocol, lines)
        )

    def read(self, way: str, lines: bytes) -> bytes:
        return b"GET %s HTTP/1.1\r\nHost: x\r\n%s\r\n" % (READS[way].encode(), lines)

    async def send(self, request: bytes) -> int:
        """
        Send ``request`` as jane, and return the status code.  In any case the poollet must not
        see the canary, and must see jane exactly once.
        """
        before = len(self.pool.requests)
        code = await smuggled.said(reactor, self.endpoint("jane"), request)
        for _, path, headers in self.pool.requests[before:]:
            headers.pop("odd", None)  # in the text of another header it says nothing
            told = f"{path} {headers}".encode()
            self.assertNotIn(CANARY, told.lower(), request)
            self.assertEqual(headers["x-remote-user"], ["jane"])
            self.assertEqual(headers["x-remote-group"], ["dev", "system:authenticated"])
            self.assertFalse([name for name in headers if "_" in name], headers)
        self.assertLess(len(self.pool.requests) - before, 2)
        return code

    async def test_every_spelling(self) -> None:
        """Headers are dropped, or the request is refused; no way in between."""
        passed = set()
        for form, line in FORMS.items():
            lines = b"".join(smuggled.spelt(NAMES[1:], line))
            for way in UPGRADES:
                code = await self.send(self.upgrade(way, lines))
                self.assertIn(code, (101, 400), (form, way))
                passed |= {form} if code == 101 else set()
            for way in READS:
                code = await self.send(self.read(way, lines))
                self.assertIn(code, (200, 400), (form, way))
        self.assertLessEqual({"plain", "no space", "tab", "twice", "named by Connection"}, passed)
        self.assertFalse({"space before the colon", "bare carriage return", "NUL"} & passed)

    async def test_authorization(self) -> None:
        """A token beside a certificate goes no further, either."""
        for line in smuggled.spelt(NAMES[:1], b"%s: Bearer canary\r\n"):
            self.assertEqual(await self.send(self.upgrade("exec by WebSocket", line)), 101)
            self.assertEqual(await self.send(self.read("log", line)), 200)

    async def test_impersonation(self) -> None:
        """Forbidden impersonation is refused; misspelled headers are dropped."""
        for line in smuggled.spelt(IMPERSONATING, FORMS["plain"]):
            code = await self.send(self.upgrade("exec by WebSocket", line))
            # Group, uid and extra without a user make no sense: 500, as in Kubernetes.
            self.assertIn(code, (101,) if b"_" in line else (400, 403, 500), line)

    async def test_trailers(self) -> None:
        """Trailers are not treated as headers."""
        names = (*NAMES, *IMPERSONATING)
        trailers = b"".join(b"%s: canary\r\n" % name for name in names)
        for way in UPGRADES:
            request = self.upgrade(way, b"Trailer: %s\r\n" % b", ".join(names)).replace(
                b"Content-Length: 0\r\n", b"Transfer-Encoding: chunked\r\n"
            )
            code = await self.send(request + b"0\r\n%s\r\n" % trailers)
            self.assertIn(code, (101, 400), way)

    async def test_two_lengths(self) -> None:
        """A request smuggled in the body of another does not reach the backend."""
        hidden = self.upgrade("exec by WebSocket", b"X-Remote-User: canary\r\n")
        for lines in (
            b"Content-Length: %d\r\nTransfer-Encoding: chunked\r\n" % len(hidden),
            b"Content-Length: 0\r\nContent-Length: %d\r\n" % len(hidden),
            b"Transfer-Encoding: chunked, identity\r\n",
            b"Transfer-Encoding: xchunked\r\n",
            b"Content-Length: +0\r\n",
        ):
            request = self.upgrade("exec by WebSocket", lines).replace(
                b"Content-Length: 0\r\n", b"", 1
            )
            code = await self.send(request + b"0\r\n\r\n" + hidden)
            self.assertEqual(code, 400, lines)

    async def test_in_the_path(self) -> None:
        """Nothing of a query or a path becomes a header of ours."""
        for path in (
            "%0d%0aX-Remote-User:%20canary",
            "vm%20HTTP/1.1%0d%0aX-Remote-User:%20canary%0d%0a",
        ):
            request = self.upgrade("exec by WebSocket", b"").replace(b"/vm/", f"/{path}/".encode())
            self.assertIn(await self.send(request), (400, 403, 404))
            request = self.upgrade("exec by WebSocket", b"").replace(
                b"/exec", f"/exec?container={path}&command={path}".encode()
            )
            self.assertIn(await self.send(request), (101, 400))
