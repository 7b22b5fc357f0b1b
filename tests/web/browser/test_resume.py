"""
A console in a real browser loses no byte of a busy machine: over a reload, a lost connection and a
killed API server.
"""

from __future__ import annotations

import os
import signal
from typing import Any

from twisted.internet import reactor as _reactor

from tests.flows.deployment import pause
from tests.flows.resuming import BUSY
from twisted_exec.cli.web import login
from twisted_exec.cli.web.server import LocalServer
from twisted_exec.kube.kubeconfig.loader import load

from .base import WebTestCase
from .deployment import HOSTILE
from .steps import FLOOD_BYTES, VM

reactor: Any = _reactor


class ResumeTests(WebTestCase):
    """A machine that prints numbered lines, and a user who watches it."""

    exact = True

    async def setUp(self) -> None:
        await super().setUp()
        await self.deployment.create_machine("busy-1", BUSY)

    async def test_flood(self) -> None:
        """
        The terminal gets each byte once while the connection is cut and the API server is killed; a
        reloaded page goes on before the last byte that the page before it has shown.  The machine gets
        all keys, also those that were typed before the console was open.
        """
        user = await self.user()
        await user.page.delay(300)
        await user.open("machines/default/busy-1")
        await user.focus_terminal()
        await user.page.type("early")
        await user.page.delay(0)
        await self.cut_and_reload(user)
        await self.deployment.end("api")
        await user.until_page("Connection lost")
        shown = await user.text()
        self.assertRegex(shown, r"\d{15}\n")
        said = await user.watch_page("Reconnected")  # for ten seconds
        await self.deployment.start_api()
        await said()
        await user.until_more_output(FLOOD_BYTES)
        await user.page.type("typed")
        await self.end_output(user)
        # Keys and output go in opposite directions: the end is no proof that all keys have arrived.
        while len(self.deployment.typed) < len(b"earlytyped"):
            await pause()
        self.assertEqual(self.deployment.typed, b"earlytyped")
        self.check_faults()


class LocalReloadTests(WebTestCase):
    """The page of ``twisted-exec web``, which loads also while the API server is away."""

    async def setUp(self) -> None:
        await super().setUp()
        self.patch(login, "VALID_SECONDS", 3600.0)  # a slow browser needs more than 30 s
        config = load(self.deployment.admin)
        local = LocalServer(lambda: config, {"cluster": "lab"}, reactor)
        await local.listen(0)
        self.addCleanup(local.close)
        self.page = await self.browser.page()
        await self.page.goto(local.new_url())
        await self.page.until("document.querySelector('.user')?.textContent")

    async def says(self, pattern: str) -> list[int]:
        """Wait until the page says this, and return its numbers."""
        found = f"document.body?.innerText.match(/{pattern}/)?.slice(1)"
        return [int(each) for each in await self.page.until(found)]

    async def type(self, text: str) -> None:
        await self.page.until("document.querySelector('.terminal-box textarea')")
        await self.page.evaluate("document.querySelector('.terminal-box textarea').focus()")
        await self.page.type(text)

    async def test_stopped(self) -> None:
        """A page that is loaded again while the API server does not answer says which consoles come back."""
        await self.deployment.create_machine("vm-1", HOSTILE)
        await self.page.evaluate(f"location.hash = '#/{VM}'")
        await self.page.until("document.body.innerText.includes('You can type')")
        os.kill(self.deployment.api.pid, signal.SIGSTOP)
        try:
            await self.page.reload()
            await self.page.until(
                "document.body?.innerText.includes('The console of vm-1 comes back with the answer')"
            )
        finally:
            os.kill(self.deployment.api.pid, signal.SIGCONT)
        await self.page.until("document.body.innerText.includes('You can type')")

    async def test_keys(self) -> None:
        """
        A page that is loaded again in an outage counts the keys of the page before, too, and says what has become of
        keys: those that another page cannot send, and all of them when the session is gone.
        """
        await self.deployment.create_machine("vm-1", HOSTILE)
        await self.page.evaluate(f"location.hash = '#/{VM}'")
        await self.page.until("document.body.innerText.includes('You can type')")
        await self.type("abc")
        while self.deployment.received != b"abc":
            await pause()
        for program in ("api", "runtime"):
            await self.deployment.end(program)
        await self.page.until("document.body.innerText.includes('Connection lost')")
        await self.type("de")
        await self.page.reload()
        (lost,) = await self.says("([0-9]+) keys(?:, unless they have arrived,)? will be sent if")
        await self.page.until(
            "document.body.innerText.includes('The output before the reload comes back')"
        )
        self.assertIn(lost, range(2, 6))  # the runtime may not have confirmed those before
        await self.type("fgh")
        await self.says(f"({lost + 3}) keys(?:, unless they have arrived,)? will be sent if")
        await self.page.reload()
        await self.says("(3) keys typed meanwhile were discarded")
        await self.says(f"({lost}) keys(?:, unless they have arrived,)? will be sent if")
        await self.type("ij")
        await self.says(f"({lost + 2}) keys(?:, unless they have arrived,)? will be sent if")
        for start in (self.deployment.start_api, self.deployment.start_runtime):
            await start()
        unsure = lost - 2
        text = "([0-9]+) keys typed meanwhile were discarded"
        if unsure:
            text = f"{unsure} keys? may not have reached the machine; ([0-9]+) keys typed after"
        text = f"This is a new session. {text}"
        await self.page.until(f"/{text}/.exec(document.body.innerText)?.[1] === '4'")
