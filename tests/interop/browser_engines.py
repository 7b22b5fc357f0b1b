"""
The page of ``twisted-exec web`` in the engines of Firefox and of Safari.
"""

from __future__ import annotations

from typing import Any

from tests import needs
from tests.flows import programs
from tests.flows.resuming import BUSY
from tests.web.browser.base import WebTestCase
from tests.web.browser.firefox import Firefox
from tests.web.browser.steps import VM
from tests.web.browser.user import User
from tests.web.browser.webkit import WebKit

URL = rb"(http://127\.0\.0\.1:\d+/console/#secret=\S+)\n"
SIZE = "(({cols, rows}) => `${rows} ${cols}`)(terminals.find((each) => each.element?.offsetParent))"


class EngineTests:
    """One browser, three programs, and the command of a user who is an administrator."""

    async def setUp(self) -> None:
        await super().setUp()
        words = ["twisted-exec", "web", "--no-browser"]
        kubeconfig = self.deployment.through_cable("ada")
        self.command = programs.start(words, env={"KUBECONFIG": kubeconfig})
        self.addCleanup(self.command.stop)

    async def open(self) -> User[Any]:
        """Open the page at the URL that the command has printed."""
        url = (await self.command.until(URL))[1].decode()
        user: User[Any] = await User.visit(self.browser, url, private=False)
        self.users.append(user)
        await user.page.until("document.querySelector('.user')?.textContent === 'ada'")
        return user

    async def test_walk(self) -> None:
        """
        List, terminal, resize, log, screen, the recording with its player, and the keyboard: no step
        violates the content security policy or throws an exception.
        """
        await self.deployment.create_machine("vm-1", "shell")
        user = await self.open()
        await self.drive(user)
        await self.play_recording(user)
        await user.open(VM)
        await user.focus_terminal()
        await self.use_commands(user)
        self.check_faults()
        # The driver reports violations.
        await user.page.evaluate("fetch('https://attacker.example/').catch(() => 0)")
        await user.page.evaluate("1")
        self.assertEqual(len(user.page.violations), 1, user.page.violations)

    async def drive(self, user: User[Any]) -> None:
        """Find a machine, type into its terminal, and give the window another size."""
        await self.open_terminal(user)
        await user.type_line("echo drive-$((6*7)) 'ä€😀'")
        await user.until_terminal("drive-42 ä€😀")
        for width in (1000, 1280):
            before = await user.page.evaluate(SIZE)
            await user.page.resize(width, 800)
            await user.page.until(f"{SIZE} !== {before!r}")
            size = await user.page.evaluate(SIZE)
            await user.type_line("stty size")
            await user.until_terminal(f"\n{size}\n")

    async def test_resume(self) -> None:
        """Over a lost connection and a reload the terminal gets each byte of a busy machine."""
        await self.deployment.create_machine("busy-1", BUSY)
        user = await self.open()
        await user.open("machines/default/busy-1")
        await self.cut_and_reload(user)
        await user.focus_terminal()
        await user.page.type("typed")
        await self.end_output(user)
        self.assertEqual(self.deployment.typed, b"typed")
        self.check_faults()


class FirefoxTests(EngineTests, WebTestCase):
    """Gecko."""

    skip = needs.firefox() or needs.page_vendor()

    async def start_browser(self) -> Firefox:
        return await self.started(Firefox())


class WebKitTests(EngineTests, WebTestCase):
    """WebKitGTK, the engine of Safari."""

    skip = needs.webkit() or needs.page_vendor()

    async def start_browser(self) -> WebKit:
        return await self.started(WebKit())
