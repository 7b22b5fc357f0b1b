"""
The web console in a real browser for longer than CI has time: many reloads under load, many tabs, a line of
100 MB, a computer that sleeps, and a server that stands still.
"""

from __future__ import annotations

import os
import signal
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.task import deferLater

from tests.flows.deployment import pause
from tests.flows.resuming import BUSY
from tests.web.browser.base import WebTestCase
from tests.web.browser.chromium import Chromium
from tests.web.browser.deployment import HOSTILE
from tests.web.browser.hostile_machine import LONG_LINE_BYTES
from tests.web.browser.user import User

reactor: Any = _reactor

RELOADS = 20
SLEEP_SECONDS = 75.0
"""Longer than servers and pages wait for an answer; the session is kept for a minute behind that."""
BYTES_PER_SECOND = 4000
"""Of the machine of a user who sleeps: what it prints meanwhile is kept."""
GIVEN_UP_SECONDS = 8.0
"""After the page has given a connection up: it makes some attempts, which the server sees later."""
TABS = 50
SHOWN_BYTES = 10_000
"""More output is visible after what came before it."""
_HEAP = "Math.round(performance.memory.usedJSHeapSize / 1e6)"


class BrowserTests(WebTestCase):
    """One browser and three programs."""

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
        await self.end_output(user)
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
        await users[0].echo("tabs")
        for user in users[1:]:
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


class SleepTests(WebTestCase):
    """A machine that prints as much as is kept for a user who is away."""

    def prepare(self) -> None:
        self.deployment.set_speed(BYTES_PER_SECOND)

    async def start_browser(self) -> Chromium:
        return await self.started(Chromium())

    async def test_sleep(self) -> None:
        """
        A console goes on without a missing byte after its user's computer has slept for longer than a
        silent connection lives: first it wakes in another network, and the server does not know that the
        connection is dead; then the connection lives, and the server sends meanwhile.
        """
        await self.deployment.create_machine("busy-1", BUSY)
        user = await self.user()
        await user.open("machines/default/busy-1")
        for changes_network in (True, False):
            await user.until_more_output(SHOWN_BYTES)
            made = self.deployment.near.made
            if changes_network:
                self.deployment.near.silence()
            self.browser.signal(signal.SIGSTOP)
            await deferLater(reactor, SLEEP_SECONDS, lambda: None)
            if changes_network:
                self.deployment.near.forget()
                self.deployment.near.mend()
            self.browser.signal(signal.SIGCONT)
            began = reactor.seconds()
            await user.until_more_output(SHOWN_BYTES)
            state = await user.page.evaluate("document.querySelector('.status-line').innerText")
            after, made = reactor.seconds() - began, self.deployment.near.made - made
            if changes_network:
                self.assertGreater(made, 0)
            print(f"output {after:.1f} s after waking, over {made} new connections; {state!r}")
        await user.type_line("typed")
        await self.end_output(user)
        self.assertEqual(self.deployment.typed, b"typed\r")
        self.check_faults()


class SilentServerTests(WebTestCase):
    """A server that stands still for longer than the page waits for it."""

    async def test_silent(self) -> None:
        """
        The session goes on and the machine gets each key once, although the server reads the Close of
        the connection that the page gave up.
        """
        await self.deployment.create_machine("vm-1", "shell")
        ada = await self.user()
        await self.open_terminal(ada)
        await ada.echo("typed")
        api = self.deployment.api.transport.pid
        os.kill(api, signal.SIGSTOP)
        await ada.page.type("echo silent-$((6*7))\n")
        await ada.until_page("sent if this session goes on")
        await deferLater(reactor, GIVEN_UP_SECONDS)
        os.kill(api, signal.SIGCONT)
        await ada.until_page("vm-1: reconnected")
        text = await ada.until_terminal("silent-42")
        self.assertEqual(text.count("silent-42"), 1)
        self.check_faults()
