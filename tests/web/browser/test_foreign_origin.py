"""
Pages of other sites in the browser of a user whom a certificate authenticates, so that every request
of the browser is the user's: they open nothing, read nothing and change nothing.
"""

from __future__ import annotations

import json

from twisted.trial.unittest import TestCase

from tests import needs
from tests.flows.deployment import machine
from tests.interop.recorder import Recorder
from tests.tiers import BROWSER
from twisted_exec.api import kinds

from . import shared
from .attacker import Attacker, attack
from .deployment import HOSTILE, WebDeployment
from .page import Page

MACHINES = kinds.MACHINES.resource
LIST = "/apis/compute.ironcore.dev/v1alpha1/namespaces/default/machines"
EXEC = f"{LIST}/vm-1/exec?stdin=true&stdout=true&tty=true"
PROTOCOLS = ["v5.channel.k8s.io"]


class HostedPageTests(TestCase):
    """A page that an API server serves, and a relay that shows the user's certificate."""

    starts = BROWSER
    skip = needs.chromium()

    async def setUp(self) -> None:
        self.deployment = deployment = WebDeployment(self.mktemp())
        self.addCleanup(deployment.stop)
        await deployment.start()
        await deployment.create_machine("vm-1", HOSTILE)
        # Chromium shows a certificate only after a question to the user, which nobody answers here.
        user = deployment.pki.issue_user("eve", ["system:masters"])
        self.relay = relay = Recorder(
            deployment.port, deployment.pki.pair("apiserver"), user, deployment.pki.serving_ca
        )
        self.addCleanup(relay.stop)
        self.server = f"https://127.0.0.1:{relay.port}"
        self.attacker = Attacker()
        self.addCleanup(self.attacker.stop)
        await self.attacker.start()
        self.browser = await shared.profile(self)

    async def test_attacks(self) -> None:
        """
        Frames, forms, fetches, scripts, WebSockets and windows of another origin fail, and the same
        requests of the console's own origin succeed.
        """
        page = await self.browser.page()
        # Two origins: another site, and another port of the same host, which counts as the same site.
        for origin in (self.attacker.url, f"http://127.0.0.1:{self.attacker.port}/"):
            await page.goto(origin)
            await page.until("window.attacks && document.readyState === 'complete'")
            await self.check_attacks(page)
        self.assertEqual(set(self.answers_to_websockets()), {b"HTTP/1.1 403"})
        listed = await self.deployment.client.list(MACHINES)
        self.assertEqual([each["metadata"]["name"] for each in listed["items"]], ["vm-1"])
        self.assertEqual(self.deployment.received, b"")
        await self.check_own_origin()
        self.assertEqual(self.deployment.errors(), [])

    def answers_to_websockets(self) -> list[bytes]:
        """Return the status of each WebSocket handshake so far, as the server gave it."""
        return [
            bytes(each.received[:12])
            for each in self.relay.exchanges
            if b"Upgrade: websocket" in each.sent
        ]

    async def check_attacks(self, page: Page) -> None:
        """Try everything from the page of the attacker."""
        server, console = self.server, f"{self.server}/console/"
        body = json.dumps(machine("made", HOSTILE))
        attempts: list[tuple[object, ...]] = [
            ("read", console),
            ("read", server + LIST),
            ("cors", server + LIST, "POST", {"Content-Type": "application/json"}, body),
            ("cors", f"{server}{LIST}/vm-1", "DELETE", {}),
            ("cors", server + LIST, "GET", {"Authorization": "Bearer x"}),
            ("blind", f"{console}main.js", "GET", "text/plain"),
            ("socket", server.replace("https", "wss") + EXEC, PROTOCOLS),
            ("socket", server.replace("https", "wss") + f"{LIST}?watch=true", []),
            ("events", f"{server}{LIST}?watch=true"),
            ("script", f"{console}main.js"),
            ("script", f"{console}config.json"),
        ]
        for name, *arguments in attempts:
            outcome = await attack(page, str(name), *arguments)
            self.assertTrue(outcome.startswith("refused"), f"{name} {arguments}: {outcome}")
        # The browser does not say how these went; the server has the same objects afterwards.
        await attack(page, "blind", server + LIST, "POST", "text/plain", body)
        await attack(page, "form", server + LIST, body, "")
        await self.check_frames(page)
        await self.check_window(page)

    async def check_frames(self, page: Page) -> None:
        """The browser refuses to show the console in a frame."""
        for url in (f"{self.server}/console/", f"{self.server}/console/index.html"):
            await attack(page, "frame", url)
        tree = await page.call("Page.getFrameTree")
        urls = [each["frame"]["url"] for each in tree["frameTree"].get("childFrames", ())]
        self.assertFalse([url for url in urls if url.startswith(f"{self.server}/console")], urls)

    async def check_window(self, page: Page) -> None:
        """The attacker cannot reach into a window with the console."""
        console = f"{self.server}/console/"
        await attack(page, "window", console)
        window = await self.browser.page_at(console)
        await window.until("document.readyState === 'complete'")
        for name in ("reach", "message"):
            outcome = await attack(page, name)
            self.assertTrue(outcome.startswith("refused"), f"{name}: {outcome}")
        self.assertIsNone(await window.evaluate("window.opener"))
        await window.close()

    async def check_own_origin(self) -> None:
        """The requests that were refused are good ones."""
        page = await self.browser.page()
        await page.goto(f"{self.server}/console/index.html")
        status = f"fetch({json.dumps(LIST)}).then((each) => each.status)"
        self.assertEqual(await page.evaluate(status), 200)
        opened = f"""new Promise((resolve) => {{
            const socket = new WebSocket({json.dumps(EXEC)}, {json.dumps(PROTOCOLS)});
            socket.onopen = () => resolve('opened');
            socket.onerror = () => resolve('refused');
        }})"""
        self.assertEqual(await page.evaluate(opened), "opened")
