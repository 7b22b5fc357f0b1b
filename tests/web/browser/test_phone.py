"""
The view of a console on a phone, whose keyboard leaves little of the window.
"""

from __future__ import annotations

from .base import WebTestCase
from .layout import faults_of

MOST_BAR_PIXELS = 125
_IS_COMPACT = """!['#bar', '.tab-bar', '.console-head .parts'].some((each) => document.querySelector(each).checkVisibility()) &&
    ['.console-head h2', '.key-bar', '.status-line .badge'].every((each) => document.querySelector(each).checkVisibility())"""
_BARS = "innerHeight - document.querySelector('.terminal-box').getBoundingClientRect().height"


class PhoneTests(WebTestCase):
    """A shell, and a user whose main pointer is a finger."""

    async def test_low_window(self) -> None:
        """
        Above the keyboard of a phone, and on one that lies on its side, a terminal with the focus has
        nearly all of the window; its commands are a sheet for fingers that leads to all other views.
        """
        await self.deployment.create_machine("vm-1", "shell")
        ada = await self.user()
        await self.open_terminal(ada)
        await ada.page.set_touch()
        for width, height in ((390, 500), (844, 390)):
            await ada.page.resize(width, height)
            await ada.focus_terminal()
            await ada.page.until(_IS_COMPACT)
            self.assertEqual(await faults_of(ada.page, taps=True), [], width)
            self.assertLess(await ada.page.evaluate(_BARS), MOST_BAR_PIXELS)
            await ada.click_text("button", "Commands")
            await ada.until_page("Recordings[^]*Events[^]*List of machines")
            self.assertEqual(await faults_of(ada.page, taps=True), [], width)
            await ada.click_text("dialog button", "Close")
            await ada.until_terminal_focus()
        await ada.page.evaluate("document.activeElement.blur()")
        await ada.page.until("document.querySelector('#bar').checkVisibility()")
        self.check_faults()
