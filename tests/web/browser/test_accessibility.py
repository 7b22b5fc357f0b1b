"""
Accessibility of every view: axe-core finds nothing, in light and in dark colours, on a desktop and on a phone.

axe-core runs in the page.  It is installed with what the JavaScript client needs (``tests/clients/javascript``).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests import needs

from .abstract_page import AbstractPage
from .base import WebTestCase
from .fleet import SIZES, FleetTestCase
from .layout import faults_of, lasting
from .steps import VM
from .user import User

RULES = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice")
OTHERS = (".xterm", ".ap-player")
"""Insides of the vendored terminal and player, which their own projects test."""
LISTS = ("machines", "sessions", "recordings", "alerts", "requests", "consoles")
PARTS = ("logs", "screen", "recordings", "events")
MACHINE = (*(f"{VM}/{part}" for part in PARTS), "recordings/default/seen", VM)
_SIZES = {"side": (844, 390), "phone": SIZES["phone"], "desktop": SIZES["desktop"]}
_SETTLED = "!document.querySelector('.skeleton')?.checkVisibility()"


async def violations_of(page: AbstractPage) -> list[str]:
    """Return what axe-core finds in a page: rules, and for each the elements that violate it."""
    if not await page.evaluate("Boolean(self.axe)"):
        await page.evaluate(Path(needs.axe_program()).read_text() + "; null")
    return await lasting(page, _RUN % (json.dumps(OTHERS), json.dumps(RULES)), looks=3)


_RUN = """axe.run({exclude: %s}, {runOnly: %s, resultTypes: ['violations']}).then(({violations}) =>
    violations.flatMap(({id, nodes}) => nodes.slice(0, 4).map(({html, failureSummary}) =>
        id + ': ' + html.slice(0, 160) + ' ' + failureSummary.replace(/\\s+/g, ' ').slice(0, 240))))"""


class _Visits:
    """Visits of views in all appearances."""

    async def visit(self, user: User[Any], views: Sequence[str]) -> list[str]:
        """Return the violations of views, each with its view."""
        found = []
        for view in views:
            await user.open(view)
            await user.page.until("document.querySelector('#view > .view')?.innerText")
            await user.page.until(_SETTLED)
            found += await self.appearances(user, view)
        return found

    async def appearances(self, user: User[Any], view: str) -> list[str]:
        """Return the violations and the faults of the layout, on a desktop and on a phone, also on its side, in light and in dark."""
        found = []
        for name, size in _SIZES.items():
            await user.page.resize(*size)
            for dark in (True, False):
                await user.page.set_dark(dark)
                where = f"{view}, {name}, {'dark' if dark else 'light'}"
                faults = [
                    *await violations_of(user.page),
                    *await faults_of(user.page, taps=name == "phone"),
                ]
                found += [f"{where}: {each}" for each in faults]
        return found


class ListTests(_Visits, FleetTestCase):
    """Views of lists, with machines in all states, users and recordings, and without any."""

    skip = needs.chromium() or needs.axe()

    async def test_full(self) -> None:
        """The lists have no violation, nor have a machine's menu, and the questions before it is powered off and a request is approved."""
        await self.add_fleet()
        user = await self.user()
        await user.until_page("ada, bob")
        self.assertEqual("\n".join(await self.visit(user, LISTS)), "")
        await user.open("machines")
        await user.page.resize(*SIZES["phone"])
        await user.page.until("document.querySelector('.machines .power:enabled')")
        await user.click_text("button", "More of build-7")
        self.assertEqual("\n".join(await self.appearances(user, "menu")), "")
        await user.click_text("dialog button", "Cancel")
        await user.click_text("button", "Power off web-1")
        self.assertEqual("\n".join(await self.appearances(user, "question")), "")
        await user.click_text("dialog button", "Cancel")
        await user.open("requests")
        await user.click_text("button", "Approve the request of bob for web-1")
        self.assertEqual("\n".join(await self.appearances(user, "approval")), "")

    async def test_empty(self) -> None:
        """Nor have empty lists; an image without a description would be one."""
        user = await self.user()
        self.assertEqual("\n".join(await self.visit(user, LISTS)), "")
        await user.page.evaluate("document.getElementById('view').append(new Image(9, 9)); null")
        self.assertIn("image-alt", "\n".join(await violations_of(user.page)))


class MachineTests(_Visits, WebTestCase):
    """Views of a machine with a shell."""

    skip = needs.chromium() or needs.page_vendor() or needs.axe()

    async def test_views(self) -> None:
        """The login, the console with its dialogs, the log, the screen and a recording have no violation."""
        await self.deployment.create_machine("vm-1", "shell")
        stranger = await User.visit(self.browser, self.deployment.console_url)
        await stranger.page.until("document.querySelector('dialog[open] input[type=password]')")
        found = await self.appearances(stranger, "login")
        ada = await self.user("ada")
        await ada.open(VM)
        await ada.until_terminal("[#$]$")
        await self.play_recording(ada)
        found += await self.visit(ada, MACHINE)
        await ada.open_commands()
        found += await self.appearances(ada, "commands")
        await ada.page.press("e")
        await ada.until_page("Debug")
        found += await self.appearances(ada, "details")
        await ada.page.press("Escape")
        await ada.until_terminal_focus()
        await ada.open_commands()
        await ada.page.press("x")
        await ada.page.until("document.querySelector('dialog pre')")
        found += await self.appearances(ada, "text")
        self.assertEqual(found, [])
