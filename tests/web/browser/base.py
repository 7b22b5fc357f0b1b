"""
The set-up of tests with a real browser: the browser, three programs, and users who log in.
"""

from __future__ import annotations

from typing import Any

from tests import needs

from . import shared
from .deployment import WebDeployment
from .layout import layout_faults
from .steps import Steps
from .user import User, open_user


class WebTestCase(Steps):
    """
    A browser, and a deployment without machines.

    :ivar users: everybody whose page :meth:`user` has opened.
    """

    skip = needs.chromium() or needs.page_vendor()

    async def setUp(self) -> None:
        self.users: list[User] = []
        self.deployment = self.make_deployment()
        self.addCleanup(self.deployment.stop)
        self.prepare()
        await self.deployment.start()
        self.browser = await self.start_browser()

    def make_deployment(self) -> WebDeployment:
        """Return the deployment, not started."""
        return WebDeployment(self.mktemp())

    def prepare(self) -> None:
        """Change the deployment before its start."""

    async def start_browser(self) -> Any:
        """Return a profile of the process's Chromium, or a browser of the test's own; see :meth:`started`."""
        return await shared.profile(self)

    async def started(self, browser: Any) -> Any:
        """Start a browser for this test alone."""
        self.addCleanup(browser.stop)
        await browser.start()
        return browser

    async def user(self, name: str = "ada", **options: Any) -> User:
        """Open the page as a user who logs in with a token; fires when all views are loaded."""
        url, token = self.deployment.console_url, self.deployment.tokens[name]
        user = await open_user(self.browser, url, token, **options)
        await user.until_loaded()
        self.users.append(user)
        return user

    async def check_layout(self, user: User, name: str, *selectors: str) -> None:
        """Fail if a part is hidden, cut off or covered in a window; keep a picture of the last."""
        self.assertEqual(await layout_faults(user.page, *selectors), [], name)
        with open(f"{self.mktemp()}-{name}.png", "wb") as picture:
            picture.write(await user.page.screenshot())
        await user.page.resize(1280, 800)

    def check_faults(self) -> None:
        """Fail if a page of a user, or a program, had an error."""
        for user in self.users:
            self.assertEqual(user.faults(), [])
        self.assertEqual(self.deployment.errors(), [])

    async def write_message(self, sender: User[Any], text: str) -> None:
        """Write to the other viewer of the console."""
        await sender.page.evaluate(
            "document.querySelectorAll('.said.own').forEach(({dataset}) => (dataset.before = ''))"
        )
        receipt = await sender.page.watch("document.querySelector('.said.own:not([data-before])')")
        await sender.open_commands()
        await sender.page.press("M")
        await sender.page.until("document.querySelector('dialog[open] input:focus')")
        await sender.page.type(text)
        await sender.page.press("Enter")
        await receipt()
