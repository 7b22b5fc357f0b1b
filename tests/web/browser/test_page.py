"""
Tests for the driver of Chromium, with a small site of two pages.
"""

from __future__ import annotations

from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.endpoints import TCP4ServerEndpoint
from twisted.trial.unittest import TestCase
from twisted.web.resource import Resource
from twisted.web.server import Site

from tests import needs
from tests.flows.deployment import pause
from tests.tiers import BROWSER

from . import shared
from .devtools import DevToolsError

reactor: Any = _reactor

HOST = "console.example"
PAGE = b"""<!doctype html>
<meta charset="utf-8">
<title>first</title>
<label>Name <input id="name"></label>
<button id="greet">Greet</button>
<div style="overflow: auto; height: 60px"><div style="height: 4000px"></div><button id="low">Low</button></div>
<a id="next" href="/second">second</a>
<p id="said"></p>
<script>
const said = document.getElementById('said');
document.getElementById('greet').onclick = () => setTimeout(() => {
    said.textContent = 'hello ' + document.getElementById('name').value;
});
document.getElementById('low').onclick = () => requestAnimationFrame(() => { said.textContent = 'low'; });
console.warn('a warning', 7);
report('from the page');
setTimeout(() => { throw Error('nobody catches this'); });
</script>
"""
MOVE = """(() => {
    const other = document.createElement('button');
    Object.assign(other, {id: 'other', textContent: 'Other', onclick: () => { said.textContent = 'other'; }});
    other.style = 'display: block; width: 300px; height: 300px';
    document.body.prepend(other);
})()"""
FLASH = """(() => {
    const late = document.createElement('p');
    Object.assign(late, {id: 'late', textContent: 'now'});
    document.body.append(late);
    setTimeout(() => late.remove());
})()"""


class _Page(Resource):
    isLeaf = True

    def render_GET(self, request: Any) -> bytes:
        if request.path == b"/second":
            request.setHeader(b"content-security-policy", b"script-src 'none'")
            return b"<title>second</title><p>two</p><script>alert(1)</script>"
        return PAGE


class DriverTests(TestCase):
    """One browser and a site on loopback."""

    starts = BROWSER
    skip = needs.chromium()

    async def setUp(self) -> None:
        endpoint = TCP4ServerEndpoint(reactor, 0, interface="127.0.0.1")
        self.site = Site(_Page())
        port = await endpoint.listen(self.site)
        self.addCleanup(port.stopListening)
        self.url = f"http://{HOST}:{port.getHost().port}"
        self.browser = await shared.profile(self)

    async def test_walk(self) -> None:
        """
        A test types, clicks and waits as a user does, and gets all that went wrong.  A condition that
        stays false fails with the page's text, and is not computed any more.
        """
        page = await self.browser.page()
        reports: list[str] = []
        await page.record("report", reports.append)
        await page.goto(self.url + "/")
        await page.focus("#name")
        await page.type("Ada <b>")
        await page.press("Backspace")
        await page.press("Tab")
        await page.press("Enter")
        await page.until("document.querySelector('#said').textContent === 'hello Ada <b'")
        await page.click("#low")
        await page.until("document.querySelector('#said').textContent === 'low'")
        self.assertEqual(reports, ["from the page"])
        self.assertIn("warning: a warning 7", page.messages)
        (exception,) = page.exceptions
        self.assertIn("nobody catches this", exception)
        # The page may be there before the browser has reported its end.
        while page.received_bytes(self.url) <= len(PAGE):
            await pause()
        self.assertTrue((await page.screenshot()).startswith(b"\x89PNG"))
        await page.resize(360, 740)
        await page.until("innerWidth === 360")

        self.assertEqual(page.violations, [])
        later = page.until("document.title === 'second' && document.readyState === 'complete'")
        await page.click("#next")
        await later
        while not page.violations:
            await pause()
        self.assertEqual(len(page.violations), 1)
        self.assertEqual(page.dialogs, [])

        with self.assertRaises(AssertionError) as caught:
            await page.until("(self.looks = (self.looks ?? 0) + 1) < 0", seconds=0.1)
        self.assertIn("two", str(caught.exception))
        looks = await page.evaluate("self.looks")
        await page.evaluate("document.body.append('more'); new Promise(requestAnimationFrame)")
        self.assertEqual(await page.evaluate("self.looks"), looks)

    async def test_moved(self) -> None:
        """A click on an element that moves before the click arrives reaches no other, and is repeated."""
        page = await self.browser.page()
        await page.goto(self.url)
        click_at = page.click_at

        async def click_late(x: float, y: float) -> None:
            self.patch(page, "click_at", click_at)
            await page.evaluate(MOVE)
            await click_at(x, y)

        self.patch(page, "click_at", click_late)
        await page.click("#greet")
        await page.until("document.querySelector('#said').textContent === 'hello '")
        await page.click("#other")
        await page.until("document.querySelector('#said').textContent === 'other'")

    async def test_moment(self) -> None:
        """
        A test sees what is true for a moment only, of an element that is not there yet, and in the new
        document after a reload.
        """
        page = await self.browser.page()
        await page.goto(self.url)
        seen = await page.watch("document.querySelector('#late').textContent")
        await page.evaluate(FLASH)
        self.assertEqual(await seen(), "now")
        await page.evaluate("self.isOld = true")
        await page.reload()
        self.assertIs(await page.evaluate("self.isOld === true"), False)

    async def test_pages(self) -> None:
        """Pages of several users are visible at the same time, and one can be offline."""
        pages = [await self.browser.page(), await self.browser.page(private=True)]
        for page in pages:
            await page.goto(self.url)
        for page in pages:
            await page.click("#low")
            await page.until("document.querySelector('#said').textContent === 'low'")
        first, second = pages
        await first.set_offline(True)
        with self.assertRaises(DevToolsError):
            await first.evaluate("fetch('/second')")
        await second.evaluate("fetch('/second')")
        await first.set_offline(False)
        await first.evaluate("fetch('/second')")
