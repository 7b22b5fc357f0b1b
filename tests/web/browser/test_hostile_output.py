"""
What a machine prints, and how users are called, is never executed in a real browser, and never answered
into the machine.
"""

from __future__ import annotations

import re

from tests.flows.deployment import pause

from .base import WebTestCase
from .deployment import HOSTILE
from .user import User

CLIPBOARD = "copied by the user"
MARKUP = "<img src=x onerror=document.title='executed'>"
EVE = f"eve\u202e{MARKUP}"
"""A user whose name would be markup, and hides what is behind it."""
# The centres of the cells of the first line that the links are in.
_CELLS = """(() => {
    const {left, top, width} = document.querySelector('.xterm-screen').getBoundingClientRect();
    const terminal = self.terminals[0];
    const cell = width / terminal.cols;
    return [2, 12, 20].map((column) => [left + cell * (column + 0.5), top + 8]);
})()"""


class HostileOutputTests(WebTestCase):
    """A machine that prints a corpus of hostile sequences, and a user who watches it."""

    def prepare(self) -> None:
        self.deployment.tokens[EVE] = "token-of-eve"
        self.deployment.write_tokens()

    async def setUp(self) -> None:
        await super().setUp()
        await self.deployment.create_machine("hostile-1", HOSTILE)

    async def test_corpus(self) -> None:
        """
        Title, clipboard and document are as before, no link is one, nothing else was loaded, and the
        machine received the user's keys alone.
        """
        user = await self.user()
        page, url = user.page, self.deployment.console_url
        await page.allow("clipboard-read", "clipboard-write", "notifications")
        await user.open("machines/default/hostile-1")
        await user.until_terminal("READY")
        await page.evaluate(f"navigator.clipboard.writeText({CLIPBOARD!r})")
        title = await page.evaluate("document.title")
        await user.focus_terminal()
        await page.press("g")
        await user.until_terminal("DONE$")
        await self.click_links(user)
        await self.read_names(user)
        await page.evaluate("document.activeElement.blur()")
        await user.focus_terminal()
        await page.press("x")
        await self.until_received(b"gkx")
        self.assertEqual(await page.evaluate("document.title"), title)
        self.assertEqual(await page.evaluate("navigator.clipboard.readText()"), CLIPBOARD)
        self.assertEqual(await page.evaluate("document.scripts.length + document.images.length"), 1)
        foreign = [
            each.url for each in page.transfers.values() if not each.url.startswith(url[:20])
        ]
        self.assertEqual([each for each in foreign if not each.startswith("data:")], [])
        self.check_faults()

    async def click_links(self, user: User) -> None:
        """A click on the text of a link opens nothing."""
        await user.page.press("k")
        await user.until_terminal("a link another https://attacker.example/\nDONE$")
        pages = await self.browser.urls()
        for x, y in await user.page.evaluate(_CELLS):
            await user.page.click_at(x, y)
        self.assertEqual(
            await user.page.evaluate("document.querySelectorAll('.xterm a').length"), 0
        )
        self.assertEqual(await self.browser.urls(), pages)

    async def read_names(self, user: User) -> None:
        """The name of another user is text in notices and lists, with its controls as escapes."""
        eve = await self.user(EVE)
        await eve.open("machines/default/hostile-1")
        await eve.click_text(".console-head button", "Take over")
        await eve.click_text("dialog button", "Take over")
        await user.until_page(f"{re.escape(MARKUP)} types here now")
        await eve.click_text("button", "Observe only")
        await user.click_text("button", "Type here")
        await user.until_page("You can type")
        for route in ("sessions", "machines/default/hostile-1"):
            await user.open(route)
            await user.until_page(re.escape(MARKUP))
            self.assertNotIn("\u202e", await user.page.evaluate("document.body.innerText"))

    async def until_received(self, keys: bytes) -> None:
        """Wait until the machine has received its last key; fail if there are others."""
        while not self.deployment.received.endswith(keys[-1:]):
            await pause()
        self.assertEqual(self.deployment.received, keys)
