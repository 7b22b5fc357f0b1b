"""
Tests for :mod:`twisted_exec.apiserver.consoles.retained_texts`: TLS and sockets are real, the poollet is a
stand-in.
"""

from __future__ import annotations

import json
from typing import Any

from twisted.internet.endpoints import connectProtocol

from tests.apiserver.consoles.test_retained_texts_logs import LogCase
from tests.apiserver.rights import BINDINGS, binding
from tests.streaming.raw import Raw
from tests.streaming.readers import read
from twisted_exec.api import kinds
from twisted_exec.streaming.http.routes import not_found
from twisted_exec.streaming.http.upgrade_client import UpgradeRefused, UpgradeRequest

MACHINES = kinds.MACHINES.resource

SCREEN = "/apis/compute.ironcore.dev/v1alpha1/namespaces/default/machines/vm/screen"


class ScreenTests(LogCase):
    """A screen that is read."""

    async def screen(self, query: str = "", user: str = "admin", **headers: str) -> bytes:
        """Return a whole answer of the type text/plain."""
        more = [(key.encode(), value.encode()) for key, value in headers.items()]
        head = UpgradeRequest(b"GET", f"{SCREEN}{query}".encode(), b"server", more)
        reader = await read(self.endpoint(user), head)
        self.addCleanup(reader.download.abort)
        await self.until(lambda: reader.complete)
        return reader.got

    async def refusal(self, query: str = "", **more: str) -> dict[str, Any]:
        """Return the Status of a refusal, which is on record."""
        before = len(self.audit)
        with self.assertRaises(UpgradeRefused) as caught:
            await self.screen(query, **more)
        status: dict[str, Any] = json.loads(caught.exception.body)
        _, end = self.audit[before:]
        self.assertEqual((end["subresource"], end["code"]), ("screen", status["code"]))
        return status

    async def test_request(self) -> None:
        """The poollet gets the checked options; one start and one end are audited."""
        self.assertEqual(await self.screen("?at=7&x=y"), b"<svg/>")
        method, uri, headers = self.pool.requests[0]
        path = "/apis/compute.ironcore.dev/namespaces/default/machines/vm/screen?as=text&at=7"
        self.assertEqual((method, uri), ("GET", path))
        self.assertEqual(headers["x-remote-user"], ["admin"])
        await self.until(self.ends)
        start, end = self.audit
        self.assertEqual(
            (start["subresource"], end["reason"], end["bytes_to_user"]),
            ("screen", "backend closed", 6),
        )

    async def test_type(self) -> None:
        """A picture has its type, and headers by which a browser executes nothing in it."""
        for form, content_type in (("svg", b"image/svg+xml"), ("json", b"application/json")):
            user: Any = await connectProtocol(self.endpoint("admin"), Raw())
            request = (
                f"GET {SCREEN}?as={form} HTTP/1.1\r\nHost: server\r\nConnection: close\r\n\r\n"
            )
            user.transport.write(request.encode())
            await self.until(lambda user=user: user.lost)
            head, _, body = user.received.partition(b"\r\n\r\n")
            lines = head.split(b"\r\n")
            self.assertIn(b"<svg/>", body)
            types = [line for line in lines if line.lower().startswith(b"content-type")]
            self.assertEqual(types, [b"Content-Type: " + content_type])
            self.assertIn(b"X-Content-Type-Options: nosniff", lines)
            self.assertIn(b"Content-Security-Policy: default-src 'none'; sandbox", lines)

    async def test_rights(self) -> None:
        """The user needs the right to observe the console, and no other."""
        status = await self.refusal(user="jane")
        self.assertEqual(status["code"], 403)
        self.assertIn('cannot observe resource "machines/console"', status["message"])
        self.assertIn("administrator for the role console-observer in the ", status["message"])
        await self.admin.create(BINDINGS, binding("jane", "console-observer"), "default")
        self.assertEqual(await self.screen(user="jane"), b"<svg/>")

    async def test_invalid(self) -> None:
        """A query that is not valid reaches no poollet."""
        self.assertEqual((await self.refusal("?as=png"))["code"], 422)
        self.assertEqual(self.pool.requests, [])

    async def test_off(self) -> None:
        """A machine that is off has a screen."""
        await self.admin.patch(MACHINES, "vm", {"spec": {"power": "Off"}}, "default")
        self.assertEqual(await self.screen(), b"<svg/>")

    async def test_other_poollet(self) -> None:
        """A poollet that does not serve screens gives 501, also one that knows no such path."""
        self.pool.serves_logs = False
        unknown = not_found()
        for answer in (None, (404, unknown.to_status())):
            self.pool.answer = answer
            status = await self.refusal()
            self.assertEqual(status["code"], 501)
            self.assertIn("does not serve screens", status["message"])

    async def test_crash(self) -> None:
        """The refusal of the machine's runtime reaches the user."""
        crash = {"kind": "Status", "code": 503, "message": "the terminal emulator failed"}
        self.pool.answer = (503, crash)
        self.assertIn("the terminal emulator failed", (await self.refusal())["message"])
