"""A shared Chromium shows no test what another has done with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.endpoints import TCP4ServerEndpoint
from twisted.trial.unittest import TestCase
from twisted.web.server import Site
from twisted.web.static import Data

from tests import needs, procfs
from tests.flows.deployment import pause
from tests.tiers import BROWSER

from . import shared
from .devtools import BrowserEndedError
from .page import Page
from .shared import Shared

reactor: Any = _reactor

KEEP = "document.cookie = 'kept=1'; localStorage.setItem('kept', '1')"
KEPT = """(async () => [document.cookie, localStorage.length,
    (await navigator.permissions.query({name: 'clipboard-read'})).state])()"""
ONE = """\
from twisted.trial.unittest import TestCase

from tests.shared import use
from tests.web.browser.shared import Shared


class OneTests(TestCase):
    starts = "a browser"

    async def test_one(self):
        browser = (await use(self, Shared, Shared)).browser
        with open({!r}, "w") as file:
            print(browser.directory, browser.devtools.pid, file=file)
"""


class SharedTests(TestCase):
    """One Chromium of this process, and a site on loopback."""

    starts = BROWSER
    skip = needs.chromium()

    async def setUp(self) -> None:
        endpoint = TCP4ServerEndpoint(reactor, 0, interface="127.0.0.1")
        port = await endpoint.listen(Site(Data(b"<title>a page</title>", "text/html")))
        self.addCleanup(port.stopListening)
        self.url = f"http://127.0.0.1:{port.getHost().port}/"

    async def take(self) -> Shared:
        found = await shared.take()
        self.addCleanup(self.end, found)
        return found

    async def end(self, taken: Shared) -> None:
        if taken.in_use:
            await taken.give_back(self._passed)

    async def page(self, taken: Shared, *, private: bool = False) -> Page:
        page = await (await taken.profile()).page(private=private)
        await page.goto(self.url)
        return page

    async def test_kept(self) -> None:
        """Pages, cookies, storage and permissions of a test are gone for the next one."""
        first = await self.take()
        urls = await first.browser.urls()
        for private in (False, True):
            page = await self.page(first, private=private)
            await page.allow("clipboard-read")
            await page.evaluate(KEEP)
            self.assertEqual(await page.evaluate(KEPT), ["kept=1", 1, "granted"])
        await first.give_back(True)
        self.assertEqual(first.differences, [])
        second = await self.take()
        self.assertIs(second, first)
        self.assertEqual(await second.browser.urls(), urls)
        for private in (False, True):
            page = await self.page(second, private=private)
            self.assertEqual(await page.evaluate(KEPT), ["", 0, "prompt"])

    async def test_page_of_nobody(self) -> None:
        """A page outside of all profiles, which would stay, ends the browser."""
        taken = await self.take()
        page = await taken.browser.page()
        await page.goto(self.url)
        while self.url not in await taken.browser.urls():  # a new page has no address at first
            await pause()
        await self.replaced(taken, f"pages {sorted(['about:blank', self.url])} are open")

    async def test_failed(self) -> None:
        """A test that has failed ends the browser."""
        await self.replaced(await self.take(), "the test failed", passed=False)

    async def test_ended(self) -> None:
        """A browser that ends during a test fails its commands at once; the next test has another."""
        taken = await self.take()
        page = await self.page(taken)
        waiting = page.evaluate("new Promise(() => 0)")
        os.kill(taken.pids["chromium"], signal.SIGKILL)
        with self.assertRaises(BrowserEndedError):
            await waiting
        with self.assertRaises(BrowserEndedError):
            await page.evaluate("1")
        await self.replaced(taken, "chromium has ended")

    async def test_ended_between_tests(self) -> None:
        """A test does not get a browser that has ended since the test before."""
        taken = await self.take()
        await taken.give_back(True)
        (pid,) = taken.pids.values()
        os.kill(pid, signal.SIGKILL)
        while procfs.is_alive(pid):
            await pause()
        self.assertIsNot(await self.take(), taken)

    async def replaced(self, taken: Shared, *differences: str, passed: bool = True) -> None:
        """Check that a browser is stopped because of differences, and not used again."""
        await taken.give_back(passed)
        self.assertEqual(taken.differences, list(differences))
        self.assertFalse(procfs.is_alive(taken.pids["chromium"]))
        self.assertFalse(os.path.exists(taken.browser.directory))
        self.assertIsNot(await self.take(), taken)

    def test_end_of_process(self) -> None:
        """The browser ends with the process that has run tests with it."""
        directory = Path(self.mktemp()).resolve()
        directory.mkdir()
        (directory / "test_one.py").write_text(ONE.format(str(directory / "seen")))
        root = Path(__file__).parents[3]
        subprocess.run(
            [sys.executable, "-m", "twisted.trial", "--jobs=1", "test_one"],
            cwd=directory,
            env={**os.environ, "PYTHONPATH": f"{root}:{directory}"},
            check=True,
            stdout=subprocess.DEVNULL,
        )
        files, pid = (directory / "seen").read_text().split()
        self.assertFalse(os.path.exists(files))
        self.assertFalse(procfs.is_alive(int(pid)))
