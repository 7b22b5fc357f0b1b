"""
The page of ``twisted-exec web`` in the engines of Firefox and of Safari.
"""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import TestCase

from tests import needs
from tests.flows import programs
from tests.flows.deployment import pause
from tests.flows.resuming import BUSY
from tests.web.browser.deployment import WebDeployment
from tests.web.browser.firefox import Firefox
from tests.web.browser.test_resume import check, first_number, last_number
from tests.web.browser.user import User
from tests.web.browser.webkit import WebKit
from twisted_exec.api import kinds

RECORDINGS = kinds.CONSOLERECORDINGS.resource
URL = rb"(http://127\.0\.0\.1:\d+/console/#secret=\S+)\n"
FLOOD_BYTES = 400_000
SIZE = "(({cols, rows}) => `${rows} ${cols}`)(terminals.find((each) => each.element?.offsetParent))"
PLAYED = "document.querySelector('.player .ap-term-text, .player .ap-term')?.innerText"


class EngineTests:
    """One browser, three programs, and the command of a user who is an administrator."""

    timeout = 170
    browser: Any

    async def setUp(self) -> None:
        self.deployment = deployment = WebDeployment(self.mktemp())
        self.addCleanup(deployment.stop)
        self.addCleanup(self.browser.stop)
        await self.browser.start()
        await deployment.start()
        words = ["twisted-exec", "web", "--no-browser"]
        kubeconfig = deployment.through_cable("ada")
        self.command = programs.start(words, env={"KUBECONFIG": kubeconfig})
        self.addCleanup(self.command.stop)

    async def open(self) -> User[Any]:
        """Open the page at the URL that the command has printed."""
        url = (await self.command.until(URL))[1].decode()
        user: User[Any] = await User.visit(self.browser, url, private=False)
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
        await self.use_keyboard(user)
        self.assertEqual(user.faults(), [])
        self.assertEqual(self.deployment.errors(), [])
        # The driver reports violations.
        await user.page.evaluate("fetch('https://attacker.example/').catch(() => 0)")
        await user.page.evaluate("1")
        self.assertEqual(len(user.page.violations), 1, user.page.violations)

    async def drive(self, user: User[Any]) -> None:
        """Find a machine, type into its terminal, and give the window another size."""
        await user.page.click("a[href='#/machines/default/vm-1']")
        await user.until_terminal("[#$]$")
        await user.type_line("echo drive-$((6*7)) 'ä€😀'")
        await user.until_terminal("drive-42 ä€😀")
        for width in (1000, 1280):
            before = await user.page.evaluate(SIZE)
            await user.page.resize(width, 800)
            await user.page.until(f"{SIZE} !== {before!r}")
            size = await user.page.evaluate(SIZE)
            await user.type_line("stty size")
            await user.until_terminal(f"\n{size}\n")

    async def play_recording(self, user: User[Any]) -> None:
        """Record a line, and seek to it in the player, which is WebAssembly."""
        client = self.deployment.client
        body = {"metadata": {"name": "seen"}, "spec": {"machine": "vm-1", "input": "none"}}
        await client.create(RECORDINGS, body, "default")
        await self.recording_is("Recording")
        await user.type_line("echo recorded-$((6*7))")
        await user.until_terminal("recorded-42")
        await client.patch(RECORDINGS, "seen", {"spec": {"ended": True}}, "default")
        await self.recording_is("Closed")
        await user.open("recordings/default/seen")
        await user.page.focus("input[placeholder='1:30 or 90']")
        await user.page.type("3600\n")
        await user.page.until(f"/recorded-42/.test({PLAYED})")

    async def recording_is(self, state: str) -> None:
        while True:
            found = await self.deployment.client.get(RECORDINGS, "seen", "default")
            if found.get("status", {}).get("phase") == state:
                return
            await pause()

    async def use_keyboard(self, user: User[Any]) -> None:
        """Keys leave the terminal and come back to it, and reach the list."""
        await user.open("machines/default/vm-1")
        await user.type_line("echo keys-$((6*7))")
        await user.until_terminal("keys-42")
        await user.page.press("Control+]")
        await user.page.until("document.querySelector('dialog[open]')")
        await user.page.press("Escape")
        await user.page.until("document.activeElement.matches('.xterm-helper-textarea')")
        await user.page.type("echo back-$((6*7))\n")
        await user.until_terminal("back-42")
        await user.page.press("Control+]")
        await user.page.until("document.querySelector('dialog[open]')")
        await user.page.press("l")
        await user.page.until("location.hash === '#/machines'")

    async def test_resume(self) -> None:
        """Over a lost connection and a reload the terminal gets each byte of a busy machine."""
        await self.deployment.create_machine("busy-1", BUSY)
        user = await self.open()
        await user.open("machines/default/busy-1")
        await self.more(user)
        self.deployment.near.cut()
        await user.until_page("reconnected")
        await self.more(user)
        await user.page.reload()
        await self.more(user)
        self.assertEqual(len(user.written), 2)
        await user.focus_terminal()
        await user.page.type("typed")
        self.deployment.stop_printing()
        await user.until_terminal("END$")
        before, after = (check(user.pieces(number)) for number in (0, 1))
        self.assertTrue(after.has_ended)
        self.assertLessEqual(first_number(user.pieces(1)), last_number(user.pieces(0)) + 1)
        print(f"{before.size} bytes before the reload, {after.size} after it")
        self.assertEqual(self.deployment.typed, b"typed")
        self.assertEqual(user.faults(), [])
        self.assertEqual(self.deployment.errors(), [])

    async def more(self, user: User[Any]) -> None:
        """Wait until the terminals have got much more output."""
        size = user.written_bytes + FLOOD_BYTES
        while user.written_bytes < size:
            await pause()
            await user.page.evaluate("1")


class FirefoxTests(EngineTests, TestCase):
    """Gecko."""

    skip = needs.firefox() or needs.page_vendor()

    async def setUp(self) -> None:
        self.browser = Firefox()
        await super().setUp()


class WebKitTests(EngineTests, TestCase):
    """WebKitGTK, the engine of Safari."""

    skip = needs.webkit() or needs.page_vendor()

    async def setUp(self) -> None:
        self.browser = WebKit()
        await super().setUp()
