"""
Tests for :mod:`twisted_exec.poollet.text_urls`: TLS and sockets are real, the runtime is a
stand-in.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.chain import until
from tests.poollet.chain import API_SERVER, PoolletCase, status
from tests.poollet.doubles import MACHINES
from tests.poollet.test_text_urls_log_route import Foreign
from tests.streaming.readers import Reader, read
from twisted_exec.poollet.service import Poollet
from twisted_exec.streaming.http.upgrade_client import UpgradeRefused, UpgradeRequest

SCREEN = "/apis/compute.ironcore.dev/namespaces/lab/machines/vm/screen"
PLAIN_404 = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"


class ScreenTests(PoolletCase):
    """Jane may observe the console of ``lab/vm``, and not type."""

    async def start(self, **more: Any) -> Poollet:
        self.allowed.remove(("jane", "machines/exec", "vm"))
        self.rights = {("jane", "observe")}
        return await super().start(**more)

    async def read(self, query: str = "", headers: Sequence[tuple[bytes, bytes]] = ()) -> Reader:
        """Request a screen as the API server does for jane; the header has arrived."""
        names = [(b"X-Remote-User", b"jane"), *headers]
        head = UpgradeRequest(b"GET", f"{SCREEN}{query}".encode(), b"poollet", names)
        reader = await read(self.endpoint(API_SERVER), head)
        self.addCleanup(reader.download.abort)
        return reader

    async def refused(self, query: str = "", **more: Any) -> tuple[int, str]:
        """Return code and message of a refusal."""
        with self.assertRaises(UpgradeRefused) as caught:
            await self.read(query, **more)
        return caught.exception.code, status(caught.exception.body)["message"]

    async def test_request(self) -> None:
        """The runtime serves the screen for the token of a log, with the checked options."""
        await self.start()
        reader = await self.read("?as=svg&at=2026-11-20T05:00:00Z&x=y", [(b"Audit-Id", b"s-7")])
        await until(lambda: reader.got == b"hello\n")
        head = self.lines.heads[0].split(b"\r\n")
        self.assertEqual(
            head[0],
            b"GET /screen/token-2?as=svg&at=2026-11-20T05%3A00%3A00.000000000Z HTTP/1.1",
        )
        self.assertIn(b"X-Twisted-Exec-User: jane", head)
        ((_, user, _, session),) = self.runtime.logs
        self.assertEqual((user, session), ("jane", "s-7"))

    async def test_rights(self) -> None:
        """A user without a right at the console gets 403, with that to read the log, too."""
        await self.start()
        self.rights = set()
        self.allowed.add(("jane", "machines/log", "vm"))
        code, message = await self.refused()
        self.assertEqual(code, 403)
        self.assertIn('cannot observe resource "machines/console"', message)
        self.assertEqual(self.runtime.logs, [])

    async def test_without_power(self) -> None:
        """A machine that is off has a screen."""
        await self.start()
        await self.client.patch(MACHINES, "vm", {"spec": {"power": "Off"}}, "lab")
        await until(lambda: "update_machine_power" in self.runtime.calls)
        reader = await self.read()
        await until(lambda: reader.got)

    async def test_invalid(self) -> None:
        """A query that is not valid reaches no runtime."""
        await self.start()
        self.assertEqual((await self.refused("?as=png"))[0], 422)
        upgrade = [(b"Connection", b"Upgrade"), (b"Upgrade", b"websocket")]
        self.assertEqual((await self.refused(headers=upgrade))[0], 400)
        self.assertEqual(self.runtime.logs, [])

    async def test_other_runtimes(self) -> None:
        """A runtime whose logs are elsewhere, or that does not serve the path, gives 501."""
        await self.start()
        self.lines.refusal = PLAIN_404
        code, message = await self.refused()
        self.assertEqual(code, 501)
        self.assertIn("renders no screens", message)
        self.runtime.log_url = self.runtime.log_url.replace("/log/", "/text/")
        self.assertEqual(await self.refused(), (501, message))
        self.assertEqual(len(self.lines.heads), 1)

    async def test_no_logs(self) -> None:
        """A runtime without logs gives 501."""
        self.runtime = Foreign()
        await self.start()
        self.assertEqual((await self.refused())[0], 501)
