"""
A phone that is turned: what its user reads stays in view.
"""

from __future__ import annotations

import json

from .base import WebTestCase
from .page import Page
from .steps import VM
from .user import User

UPRIGHT, LYING = (390, 844), (844, 390)
LINES = 300
# Upright each line has two rows, or three.
_COMMAND = f'for i in $(seq {LINES}); do printf "line %03d %070d\\n" $i $i; done'
# The number of the line at the top of the terminal.
_TOP_LINE = """(() => {
    const {buffer: {active}} = terminals[0];
    let at = active.viewportY;
    while (active.getLine(at).isWrapped) at--;
    return Number(active.getLine(at).translateToString().match(/line (\\d+)/)?.[1]);
})()"""
_COLUMNS = "terminals[0].cols"
_SELECTED_IN_VIEW = """(() => {
    const {buffer: {active}, rows} = terminals[0];
    const lines = Array.from({length: rows}, (_, at) => active.getLine(active.viewportY + at)?.translateToString() ?? '');
    return lines.some((line) => line.includes('line 150 '));
})()"""
_SCROLL = "document.querySelector('.log').scrollTop"
_LAST = "[...document.querySelectorAll('.line-text')].some((each) => each.innerText.startsWith('line 300'))"
_SHOW_LINE_200 = "[...document.querySelectorAll('.line')].find((each) => each.innerText.includes('line 200')).scrollIntoView()"
_TOP_ROW = """(() => {
    const {top} = document.querySelector('.log').getBoundingClientRect();
    return [...document.querySelectorAll('.line')].find((each) => each.getBoundingClientRect().bottom > top + 2)
        .querySelector('.line-text').innerText.slice(0, 8);
})()"""
# Whether the found line is whole in view.
_MATCH_IN_VIEW = """(() => {
    const [log, row] = ['.log', '.line.match'].map((each) => document.querySelector(each)?.getBoundingClientRect());
    return row && row.top >= log.top && row.bottom <= log.bottom + 1;
})()"""


class TurnTests(WebTestCase):
    """A shell that has printed more than the window has room for, in lines that are broken elsewhere in each window."""

    async def reader(self) -> User[Page]:
        """A user with an upright phone and that terminal."""
        await self.deployment.create_machine("vm-1", "shell")
        ada = await self.user(width=390, height=844)
        await ada.page.set_touch()
        await self.open_terminal(ada)
        await ada.type_line(_COMMAND)
        await ada.until_terminal(f"line {LINES} 0+{LINES}\n.*$")
        return ada

    async def test_terminal(self) -> None:
        """
        The terminal shows the same lines after each turn: those that its user has scrolled to, the line that was
        found, or the newest.
        """
        ada = await self.reader()
        columns = await ada.page.evaluate(_COLUMNS)
        await ada.page.evaluate("terminals[0].scrollLines(-400)")
        before = await ada.page.evaluate(_TOP_LINE)
        self.assertTrue(before < LINES - 100)
        for size in (LYING, UPRIGHT, LYING, UPRIGHT):
            await ada.page.resize(*size)
            turned = f"({_COLUMNS} > {columns}) === {json.dumps(size == LYING)}"
            await ada.page.until(
                f"innerWidth === {size[0]} && {turned} && {_TOP_LINE} === {before}"
            )
            await ada.page.until("document.querySelector('.newest').checkVisibility()")
        await ada.page.drag(150, *range(300, 600, 20))
        await ada.page.until(f"{_TOP_LINE} < {before} && {_TOP_LINE} > {before - 20}")
        await ada.open_commands()
        await ada.page.press("f")
        await ada.page.until("document.activeElement.closest('.finder')")
        await ada.page.type("line 150")
        for size in (LYING, UPRIGHT):
            await ada.page.until(_SELECTED_IN_VIEW)
            await ada.page.resize(*size)
            turned = f"({_COLUMNS} > {columns}) === {json.dumps(size == LYING)}"
            await ada.page.until(f"innerWidth === {size[0]} && {turned} && {_SELECTED_IN_VIEW}")
        await ada.page.press("Escape")
        await ada.page.click(".newest")
        for size in (LYING, UPRIGHT):
            await ada.page.resize(*size)
            turned = f"({_COLUMNS} > {columns}) === {json.dumps(size == LYING)}"
            await ada.page.until(f"innerWidth === {size[0]} && {turned}")
            await ada.page.until("!document.querySelector('.newest').checkVisibility()")
        self.check_faults()

    async def test_log(self) -> None:
        """The log shows the same lines after each turn: those that its user has scrolled to, or a match."""
        ada = await self.reader()
        await ada.open(f"{VM}/logs")
        await ada.page.until(f"{_LAST} && {_SCROLL} > 0")
        await ada.page.evaluate(_SHOW_LINE_200)
        for size in (LYING, UPRIGHT, LYING, UPRIGHT):
            await ada.page.until(f"{_TOP_ROW} === 'line 200'")
            await ada.page.settled(_SCROLL)
            await ada.page.resize(*size)
            await ada.page.until(f"innerWidth === {size[0]} && {_TOP_ROW} === 'line 200'")
        await ada.page.focus("input[aria-label='Search the log']")
        await ada.page.type("line 100\n")
        await ada.page.until("document.querySelector('.line.match mark')")
        for size in (LYING, UPRIGHT, LYING, UPRIGHT):
            await ada.page.until(_MATCH_IN_VIEW)
            await ada.page.settled(_SCROLL)
            await ada.page.resize(*size)
            await ada.page.until(f"innerWidth === {size[0]} && {_MATCH_IN_VIEW}")
        self.check_faults()

    async def test_log_of_other_height(self) -> None:
        """The log stays where its user has scrolled to, also if its height changes in the same moment."""
        ada = await self.reader()
        await ada.open(f"{VM}/logs")
        await ada.page.until(f"{_LAST} && {_SCROLL} > 0")
        await ada.page.settled(_SCROLL)
        await ada.page.evaluate(
            f"document.querySelector('.log-foot').style.height = '90px'; {_SHOW_LINE_200}"
        )
        await ada.page.settled(_SCROLL)
        self.assertEqual(await ada.page.evaluate(_TOP_ROW), "line 200")
        self.check_faults()

    async def test_log_below_notice(self) -> None:
        """A match is in view, also if it takes the notice of a search without a match away."""
        ada = await self.reader()
        await ada.open(f"{VM}/logs")
        for size in (UPRIGHT, (1440, 900)):
            await ada.page.until("document.querySelector('.log-foot input')?.checked")
            await self.search(ada, "nosuchword")
            await ada.until_page("No line .*has .nosuchword")
            await ada.page.settled(_SCROLL)
            await self.search(ada, "line 017 ")
            await ada.page.until(
                "/line 017/.test(document.querySelector('.line.match mark')?.innerText)"
            )
            await ada.page.settled(_SCROLL)
            self.assertTrue(await ada.page.evaluate(_MATCH_IN_VIEW), size)
            await ada.page.resize(1440, 900)
            await ada.click_text("button", "End")
        self.check_faults()

    async def search(self, user: User[Page], text: str) -> None:
        await user.page.focus("input[aria-label='Search the log']")
        await user.page.evaluate("document.activeElement.select()")
        await user.page.type(f"{text}\n")
