"""
The web console in a real browser for longer than CI has time: many reloads under load, many tabs, and a
line of 100 MB.
"""

from __future__ import annotations

from typing import Any

from twisted.internet import reactor as _reactor

from tests.flows.deployment import pause
from tests.flows.resuming import BUSY
from tests.web.browser.base import WebTestCase
from tests.web.browser.deployment import HOSTILE
from tests.web.browser.hostile_machine import LONG_LINE_BYTES
from tests.web.browser.test_resume import check, first_number, last_number
from tests.web.browser.user import User

reactor: Any = _reactor

RELOADS = 20
TABS = 50
_HEAP = "Math.round(performance.memory.usedJSHeapSize / 1e6)"


class BrowserTests(WebTestCase):
    """One browser and three programs."""

    timeout = 400

    async def test_reloads(self) -> None:
        """Each of many reloads, with a cut connection at every third, goes on without a missing byte."""
        await self.deployment.create_machine("busy-1", BUSY)
        user = await self.user()
        await user.open("machines/default/busy-1")
        for turn in range(RELOADS):
            await self.more(user, turn + 1)
            if turn % 3 == 2:
                self.deployment.near.cut()
            await user.page.reload()
        await self.more(user, RELOADS + 1)
        self.deployment.stop_printing()
        await user.until_terminal("END$")
        for number in range(RELOADS + 1):
            check(user.pieces(number))
            if number:
                last = last_number(user.pieces(number - 1))
                self.assertLessEqual(first_number(user.pieces(number)), last + 1)
        self.check_faults()
        print(f"{user.written_bytes / 1e6:.1f} MB in {RELOADS + 1} documents")

    async def more(self, user: User, documents: int) -> None:
        """Wait until a document has got some output."""
        while len(user.written) < documents or user.written_bytes_of(documents - 1) < 100_000:
            await pause()

    async def test_tabs(self) -> None:
        """Many tabs at one console follow it, and each of them loads its lists at once."""
        await self.deployment.create_machine("vm-1", "shell")
        users, began = [], reactor.seconds()
        for _ in range(TABS):
            user = await self.user(private=False)
            await user.open("machines/default/vm-1")
            users.append(user)
            await user.until_terminal("#$")
        print(f"{TABS} tabs opened, one after another, in {reactor.seconds() - began:.1f} s")
        began = reactor.seconds()
        await users[0].type_line("echo tabs-$((6*7))")
        for user in users:
            await user.until_terminal("tabs-42")
        print(f"{TABS} tabs show a line after {reactor.seconds() - began:.2f} s")
        began = reactor.seconds()
        for user in users:
            await user.open("machines")
        for user in users:
            await user.page.until("document.querySelectorAll('tbody tr').length === 1")
        print(f"{TABS} tabs list machines after {reactor.seconds() - began:.2f} s")
        self.check_faults()

    async def test_long_line(self) -> None:
        """A line without end passes; the page answers meanwhile, and keeps a bounded part of it."""
        await self.deployment.create_machine("hostile-1", HOSTILE)
        user = await self.user()
        await user.open("machines/default/hostile-1")
        await user.until_terminal("READY")
        await user.focus_terminal()
        began, longest = reactor.seconds(), 0.0
        await user.page.press("l")
        while user.written_bytes < LONG_LINE_BYTES:
            asked = reactor.seconds()
            await user.page.evaluate("new Promise(requestAnimationFrame)")
            longest = max(longest, reactor.seconds() - asked)
            await pause()
        await user.until_terminal("DONE$")
        heap = await user.page.evaluate(_HEAP)
        print(
            f"{LONG_LINE_BYTES / 1e6:.0f} MB in {reactor.seconds() - began:.0f} s; the longest frame took"
            f" {longest:.2f} s; the page then has {heap} MB"
        )
        self.assertEqual(self.deployment.received, b"l")
        self.check_faults()
