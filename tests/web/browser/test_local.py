"""
The page of ``twisted-exec web`` in a real browser: its login, and pages of other sites that attack it.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from twisted.internet import reactor as _reactor

from tests import needs
from tests.apiserver.chain import ChainTestCase
from tests.flows import programs
from tests.tiers import BROWSER
from twisted_exec.api import kinds
from twisted_exec.cli.web import login
from twisted_exec.cli.web.server import LocalServer
from twisted_exec.kube.kubeconfig.client_config import Material
from twisted_exec.kube.kubeconfig.loader import load

from . import shared
from .attacker import HOST, Attacker, attack
from .base import WebTestCase
from .page import Page
from .steps import VM
from .user import User

reactor: Any = _reactor

MACHINES = kinds.MACHINES.resource
LIST = MACHINES.path("default")
CLUSTER = "document.querySelector('#bar .cluster')?.textContent"
SHOWN = "document.querySelector('.user')?.textContent"
DIALOG = "document.querySelector('dialog')"
BUTTON_IS_SEEN = """((button, dialog) => button.bottom < Math.min(dialog.bottom, innerHeight))(
    ...['dialog button', 'dialog'].map((each) => document.querySelector(each).getBoundingClientRect()))"""
LISTED = "document.body?.textContent.includes('vm-1')"
URL = rb"http://127[.]0[.]0[.]1:\d+/console/#secret=[\w-]+"
# The text in the message over a console that may be hidden; a message that is over keeps its text, but not for a user.
ANEW = """[...document.querySelectorAll('.console')].find((each) => each.querySelector('h2').title === 'vm-1')
    ?.querySelector('.message:not([hidden])')?.textContent.includes('This is a new session.')"""
_PATIENT = """
import sys
from twisted_exec.cli.web import login
from twisted_exec.cli.start import twisted_exec
login.VALID_SECONDS = 3600.0
sys.exit(twisted_exec())
"""
"""In place of ``twisted-exec``: a slow browser needs more than half a minute for a URL."""
TOKEN = "JSON.parse(sessionStorage.getItem('twisted-exec.token'))"


class LocalPageTests(ChainTestCase):
    """An API server, and the local server with the kubeconfig of its administrator."""

    starts = BROWSER
    skip = needs.chromium()

    async def setUp(self) -> None:
        await super().setUp()
        self.config = load(self.kubeconfig("user-admin"))
        self.place: dict[str, Any] = {"cluster": "lab"}
        self.patch(login, "VALID_SECONDS", 3600.0)  # a slow browser needs more than 30 s
        self.local = LocalServer(lambda: self.config, self.place, reactor)
        await self.local.listen(0)
        self.addCleanup(self.local.close)
        self.url = self.local.new_url()
        self.origin = self.url.partition("/console/")[0]
        self.browser = await shared.profile(self)
        self.page = await self.browser.page()

    async def log_in(self) -> None:
        await self.page.goto(self.url)
        await self.page.until(f"{SHOWN} === 'admin'")

    async def test_login(self) -> None:
        """
        The URL logs one browser in; the secret leaves the address, and a reload needs no other.  A
        second browser reads what to do, and takes a new URL.
        """
        await self.make_machine("vm-1")
        await self.log_in()
        self.assertNotIn("secret", await self.page.evaluate("location.href"))
        await self.page.until(LISTED)
        await self.page.until(f"{CLUSTER} === 'lab'")
        await self.page.reload()
        await self.page.until(LISTED)
        await self.page.until(f"{CLUSTER} === 'lab'")
        self.assertEqual(self.page.violations, [])

        group, version, resource = MACHINES.group, MACHINES.version, MACHINES.plural
        kind = {"group": group, "version": version, "resource": resource}
        self.place["machine"] = {"namespace": "default", "name": "vm-1", **kind}
        other = await self.browser.page(private=True)
        await other.goto(self.url)
        await other.until(f"{DIALOG}?.textContent.includes('press Enter in the terminal')")
        await other.resize(844, 390)  # a phone on its side
        await other.until(f"innerHeight === 390 && {BUTTON_IS_SEEN}")
        new = json.dumps(self.local.new_url())
        await other.evaluate(
            f"document.querySelector('dialog input').value = {new};"
            "document.querySelector('dialog form').requestSubmit()"
        )
        await other.until(f"{SHOWN} === 'admin'")
        await other.until("location.hash === '#/machines/default/vm-1'")

    async def test_old_url(self) -> None:
        """A URL that was used logs nobody out who opens it in a tab that is logged in."""
        await self.log_in()
        await self.page.goto(self.url)
        await self.page.until(f"{DIALOG}?.textContent.includes('This URL is old')")
        self.assertNotIn("secret", await self.page.evaluate("location.href"))
        await self.page.press("Enter")
        await self.page.until(f"!{DIALOG} && {SHOWN} === 'admin'")
        self.assertEqual(await self.page.evaluate(TOKEN), self.local.login.token)

    async def test_expired(self) -> None:
        """
        When the API server refuses the kubeconfig, the page asks to renew that, and not for a new URL.  The
        user may leave the dialog and come back to it; the page goes on with the renewed one by itself.
        """
        await self.log_in()
        good = self.config
        self.config = replace(good, certificate=Material(), key=Material(), token="expired")
        await self.page.evaluate("document.querySelector('a[href=\"#/sessions\"]').click()")
        await self.page.until(f"{DIALOG}?.textContent.includes('Renew your credentials')")
        said = await self.page.evaluate(f"{DIALOG}?.textContent")
        for part in (
            "Your login as admin has expired",
            "answers: Unauthorized.",
            "ask your administrator",
        ):
            self.assertIn(part, said)
        # The answer to the click replaces the text; before it, the kubeconfig is still the expired one.
        await self.page.evaluate("document.querySelector('dialog .notice').id = 'former'")
        await self.page.click("dialog .primary")
        await self.page.until("!document.getElementById('former')")
        self.assertIn("Tried again", await self.page.evaluate(f"{DIALOG}?.textContent"))
        await self.page.press("Escape")
        await self.page.until(f"!{DIALOG}")
        await self.page.click("#bar .danger")
        await self.page.until(f"{DIALOG}?.textContent.includes('Tried again')")
        self.config = good
        await self.page.until(f"!{DIALOG} && !document.querySelector('#bar .danger')")
        self.assertEqual(await self.page.evaluate(TOKEN), self.local.login.token)

    async def test_other_sites(self) -> None:
        """
        Pages of another site, and of another port of this host, read nothing, change nothing and open
        no WebSocket: neither without the token nor with it, and the secret stays good.
        """
        await self.make_machine("vm-1")
        await self.log_in()
        token = await self.page.evaluate(TOKEN)
        secret = self.local.new_url().partition("#secret=")[2]
        attacker = Attacker()
        await attacker.start()
        self.addCleanup(attacker.stop)
        foreign = await self.browser.page()
        for origin in (attacker.url, f"http://127.0.0.1:{attacker.port}/"):
            await foreign.goto(origin)
            await foreign.until("window.attacks && document.readyState === 'complete'")
            await self.check_attacks(foreign, token, secret)
        names = [each["metadata"]["name"] for each in (await self.admin.list(MACHINES))["items"]]
        self.assertEqual(names, ["vm-1"])
        await self.page.goto(f"{self.origin}/console/#secret={secret}")
        await self.page.until(f"{SHOWN} === 'admin'")

    async def check_attacks(self, page: Page, token: str, secret: str) -> None:
        url, socket = self.origin, self.origin.replace("http", "ws") + LIST
        bearer = {"Authorization": f"Bearer {token}"}
        encoded = await page.evaluate(f"btoa({token!r}).replace(/=*$/, '')")
        protocols = [f"base64url.bearer.authorization.k8s.io.{encoded}", "v5.channel.k8s.io"]
        login, document = f"{url}/console/login", json.dumps({"secret": secret})
        typed = {"Content-Type": "application/json"}
        for name, *arguments in (
            ("read", f"{url}/console/"),
            ("read", f"{url}/console/config.json"),
            ("read", url + LIST),
            ("cors", url + LIST, "GET", bearer),
            ("cors", f"{url}{LIST}/vm-1", "DELETE", bearer),
            ("cors", login, "POST", typed, document),
            ("cors", login, "POST", {}, document),
            ("script", f"{url}/console/main.js"),
            ("events", f"{url}{LIST}?watch=true"),
            ("socket", f"{socket}?watch=true", []),
            ("socket", f"{socket}?watch=true", protocols),
            ("socket", f"{socket}/vm-1/exec?stdin=true&stdout=true", protocols),
        ):
            outcome = await attack(page, name, *arguments)
            self.assertTrue(outcome.startswith("refused"), f"{name} {arguments}: {outcome}")
        await attack(page, "blind", login, "POST", "text/plain", document)
        await attack(page, "form", login, document, "")
        await attack(page, "frame", f"{url}/console/")
        tree = await page.call("Page.getFrameTree")
        frames = [each["frame"]["url"] for each in tree["frameTree"].get("childFrames", ())]
        self.assertFalse([each for each in frames if each.startswith(f"{url}/console")], frames)

    async def test_rebound_name(self) -> None:
        """
        A name of another site that now resolves to 127.0.0.1 reaches nothing, although the browser
        takes the requests for those of the site itself.
        """
        secret = self.url.partition("#secret=")[2]
        rebound = self.origin.replace("127.0.0.1", HOST)
        page = await self.browser.page()
        await page.goto(f"{rebound}/console/")
        await page.until("document.readyState === 'complete'")
        self.assertEqual([each.status for each in page.transfers.values()][:1], [421])
        body = json.dumps(json.dumps({"secret": secret}))
        options = (
            f"{{method: 'POST', headers: {{'Content-Type': 'application/json'}}, body: {body}}}"
        )
        statuses = f"Promise.all([fetch('/console/login', {options}), fetch({LIST!r})])"
        script = f"{statuses}.then((all) => [location.host, ...all.map((each) => each.status)])"
        host = rebound.removeprefix("http://")
        self.assertEqual(await page.evaluate(script), [host, 421, 421])
        await self.log_in()  # the secret is still good


class LocalConsoleTests(WebTestCase):
    """Two shells, and a user whose page comes from a local server that is stopped and started again."""

    async def setUp(self) -> None:
        await super().setUp()
        for name in ("vm-1", "vm-2"):
            await self.deployment.create_machine(name, "shell")
        self.url = await self.start()

    async def start(self, *options: str) -> str:
        """Start the command; return its URL."""
        words = ["web", "--no-browser", f"--kubeconfig={self.deployment.admin}"]
        self.program = programs.start([sys.executable, "-c", _PATIENT, *words, *options])
        self.addCleanup(self.program.stop)
        return (await self.program.until(URL))[0].decode()

    async def restart(self) -> str:
        """Start the command again at the same port; return its URL."""
        return await self.start(f"--port={urlsplit(self.url).port}")

    async def test_restart(self) -> None:
        """
        Open consoles open again by themselves once their user has logged in at the server that was started
        again, and say so.  The new URL may be pasted into the dialog, or opened in the same tab.
        """
        user: User[Page] = await User.visit(self.browser, self.url)
        self.users.append(user)
        await user.page.until(LISTED)
        await self.open_terminal(user)
        await user.open("machines/default/vm-2")
        await user.until_page("default /\\s+vm-2[^]*You can type")
        await user.until_terminal("[#$]$")
        await self.program.stop()
        await user.until_page(
            "Web console on this computer stopped for .* Start it again with "
            f"“twisted-exec web --port={urlsplit(self.url).port}” and log in here"
        )
        await user.focus_terminal()
        await user.page.type("lost")
        await user.until_page(
            "Web console on this computer stopped for [^]*4 keys will not be sent"
        )
        await self.check_layout(user, "web-stopped", ".status-line", ".console-head", ".outage")
        url = await self.restart()
        await user.until_page(
            "started again; waiting for your login. A new session opens after it[^]*Open consoles come back"
            "|Open consoles come back[^]*started again; waiting for your login. A new session opens after it"
        )
        said = await user.page.watch(ANEW)  # for ten seconds
        await user.log_in(url)
        await said()
        await user.until_page("This is a new session. 4 keys [^.]*discarded[.][^]*You can type")
        await user.echo("again")
        await user.open(VM)
        await user.until_page("default /\\s+vm-1[^]*You can type")
        await user.echo("also")

        await self.program.stop()
        await user.until_page("Web console on this computer stopped for ")
        url = await self.restart()
        await user.page.evaluate(f"self.isOld = true; location.href = {json.dumps(url)}")
        await user.page.until(f"!self.isOld && {LISTED}")
        await user.open(VM)
        await user.until_page("default /\\s+vm-1[^]*You can type")
        await user.echo("reloaded")
        self.check_faults()
