"""
A console in a real browser loses no byte of a busy machine: over a reload, a lost connection and a
killed API server.
"""

from __future__ import annotations

from tests.flows.deployment import pause
from tests.flows.resuming import BUSY

from .base import WebTestCase
from .steps import FLOOD_BYTES


class ResumeTests(WebTestCase):
    """A machine that prints numbered lines, and a user who watches it."""

    exact = True

    async def setUp(self) -> None:
        await super().setUp()
        await self.deployment.create_machine("busy-1", BUSY)

    async def test_flood(self) -> None:
        """
        The terminal gets each byte once while the connection is cut and the API server is killed; a
        reloaded page goes on before the last byte that the page before it has shown.  The machine gets
        all keys, also those that were typed before the console was open.
        """
        user = await self.user()
        await user.page.delay(300)
        await user.open("machines/default/busy-1")
        await user.focus_terminal()
        await user.page.type("early")
        await user.page.delay(0)
        await self.cut_and_reload(user)
        await self.deployment.end("api")
        await user.until_page("Connection lost")
        shown = await user.text()
        self.assertRegex(shown, r"\d{15}\n")
        said = await user.watch_page("Reconnected")  # for ten seconds
        await self.deployment.start_api()
        await said()
        await user.until_more_output(FLOOD_BYTES)
        await user.page.type("typed")
        await self.end_output(user)
        # Keys and output go in opposite directions: the end is no proof that all keys have arrived.
        while len(self.deployment.typed) < len(b"earlytyped"):
            await pause()
        self.assertEqual(self.deployment.typed, b"earlytyped")
        self.check_faults()
