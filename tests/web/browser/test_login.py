"""
Logins in a real browser: at an identity provider, and by a pasted token.
"""

from __future__ import annotations

import json
import os
import time
from typing import Any

from twisted.internet import reactor as _reactor

from tests import needs
from tests.apiserver.chain import ChainTestCase
from tests.auth.provider import Provider
from tests.flows.deployment import pause
from tests.tiers import BROWSER
from tests.tls.support import write
from twisted_exec.api import kinds
from twisted_exec.apiserver.identity.credentials import Identities
from twisted_exec.apiserver.settings import Settings
from twisted_exec.auth.oidc.authenticator import LEEWAY_SECONDS
from twisted_exec.auth.oidc.claims import Issuer, MappedClaim
from twisted_exec.auth.oidc.configuration import Issuers
from twisted_exec.streaming.interfaces import REVOKED
from twisted_exec.web.oidc import WebClient

from . import shared
from .base import WebTestCase
from .page import Page
from .user import User

reactor: Any = _reactor

SHOWN = "document.querySelector('.user')?.textContent"
"""The name of the user in the page's head."""
DIALOG = "document.querySelector('dialog')"
PANEL = "document.querySelector('.panel:not([hidden])')"
_IS_REFUSED = f"""/The server does not accept this token[^]*kubectl create token[^]*your administrator/.test({DIALOG}?.textContent) &&
    (({{selectionStart, selectionEnd, value}}) => value && selectionEnd - selectionStart === value.length)(document.getElementById('token'))"""
"""The user reads why, and where there is another one."""
TOKEN_SECONDS = 10
"""From the issue of a token to its end; the console is opened in the first half."""
BINDING = {
    "metadata": {"name": "jane"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
    "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "oidc:jane"}],
}


class LoginTests(ChainTestCase):
    """One server with one identity provider, whose user may do everything."""

    starts = BROWSER
    skip = needs.chromium()

    async def setUp(self) -> None:
        self.provider = Provider()
        self.provider.claims = {"sub": "jane", "groups": ["system:masters"]}
        await self.provider.listen(reactor, self.mktemp())
        self.addCleanup(self.provider.stop)
        await super().setUp()
        self.browser = await shared.profile(self)

    def settings(self, **more: Any) -> Settings:
        url, ca_pem = self.provider.url, self.provider.ca_pem
        issuer = Issuer(url, ("page",), MappedClaim("sub", "oidc:"), ca_pem=ca_pem)
        identities = Identities(issuers=Issuers(issuer=issuer))
        return super().settings(identities=identities, web_client=WebClient("page"), **more)

    async def click(self, page: Page, label: str) -> None:
        """Click a button of the dialog."""
        script = f"[...{DIALOG}?.querySelectorAll('button') ?? []].find((each) => each.textContent === {label!r})"
        await page.until(script + " !== undefined")
        await page.evaluate(script + ".click()")

    async def test_provider(self) -> None:
        """
        The user comes back from the provider to the view that they had opened, and the address has no
        code.  When the token has expired, the provider gets a window of its own, and the page stays.
        A link with a forged answer changes nothing.
        """
        page = await self.browser.page()
        await page.goto(f"{self.server.url}/console/#/sessions")
        await self.click(page, "Log in with localhost")
        await page.until(f"{SHOWN} === 'oidc:jane'")
        await page.until("document.querySelector('.view-sessions')")
        # The view may add the namespace that it shows.
        address = await page.evaluate("location.search + location.hash")
        self.assertRegex(address, r"^#/sessions(\?namespace=default)?$")
        await page.evaluate("window.stays = true")

        self.provider.claims["sub"] = "joan"
        await page.evaluate(
            "sessionStorage.setItem('twisted-exec.token', JSON.stringify('expired'));"
            "document.querySelector('a[href=\"#/recordings\"]').click()"
        )
        await page.until(f"{DIALOG}?.textContent.includes('expired')")
        await self.click(page, "Log in with localhost")
        await page.until(f"!{DIALOG}")
        token = await page.evaluate("sessionStorage.getItem('twisted-exec.token')")
        self.assertNotIn("expired", token)
        self.assertTrue(await page.evaluate("window.stays"))
        await page.until(f"{SHOWN} === 'oidc:joan'")
        for state in ("b", "popup.x"):  # links that anybody may make up
            await page.goto(f"{self.server.url}/console/?code=a&state={state}")
            await page.until(f"{SHOWN} === 'oidc:joan' && !location.search")
            self.assertEqual(
                await page.evaluate("sessionStorage.getItem('twisted-exec.token')"), token
            )
        self.assertEqual(page.violations + page.exceptions, [])

    async def test_token(self) -> None:
        """
        A token that the server refuses is refused in the dialog, which stays whatever the user does;
        log-out forgets a good one.
        """
        page = await self.browser.page()
        await page.goto(f"{self.server.url}/console/")
        await page.until(DIALOG + " !== null")
        for _ in range(3):
            await page.press("Escape")
        await page.until(f"{DIALOG}.open")
        views = "[...document.querySelectorAll('nav a')].filter((each) => each.checkVisibility()).map((each) => each.innerText).join()"
        self.assertEqual(
            await page.evaluate(views), "Machines,Consoles,Sessions,Recordings,Alerts,Requests"
        )
        offered = "/Log out/.test(document.getElementById('bar').innerText)"
        self.assertFalse(await page.evaluate(offered))
        for token, until in (
            *(
                (each.encode(), _IS_REFUSED)
                for each in ("nonsense", "a token of two words", "token…")
            ),
            (self.provider.token(aud="page", exp=2**33, **self.provider.claims), f"!{DIALOG}"),
        ):
            # What is typed takes the place of a token that was refused.
            await page.focus("#token")
            await page.insert(token.decode())
            await self.click(page, "Log in")
            await page.until(until)
        await page.until(f"{SHOWN} === 'oidc:jane'")
        await page.evaluate(
            "document.querySelector('button[title=\"Log out oidc:jane\"]')?.click()"
        )
        await page.until(DIALOG + " !== null")
        self.assertIsNone(await page.evaluate("sessionStorage.getItem('twisted-exec.token')"))
        self.assertEqual(page.violations + page.exceptions, [])


class ExpiryTests(WebTestCase):
    """Three programs and an identity provider."""

    async def setUp(self) -> None:
        self.provider = Provider()
        directory = self.mktemp()
        await self.provider.listen(reactor, directory)
        self.addCleanup(self.provider.stop)
        self.ca = write(directory, "ca.crt", self.provider.ca_pem)
        await super().setUp()
        await self.deployment.create_machine("vm-1", "shell")
        await self.deployment.client.create(kinds.CLUSTERROLEBINDINGS.resource, BINDING)

    def prepare(self) -> None:
        self.deployment.api_options = (
            f"--oidc-issuer-url={self.provider.url}",
            f"--oidc-ca-file={os.path.abspath(self.ca)}",
            "--oidc-client-id=page",
            "--oidc-username-prefix=oidc:",
        )

    async def test_expired(self) -> None:
        """
        A session goes on for as long as the server accepts its token, some seconds after its end, since clocks differ; then the
        user reads why the session has ended, and goes on with another token.
        """
        user = await User.visit(self.browser, self.deployment.console_url)
        self.users.append(user)
        await user.log_in(self.token(3600))
        end = await self.open_before_end(user)
        while not any(REVOKED.encode() in each for each in user.page.frames):
            await pause()
        self.assertGreater(time.time(), end + LEEWAY_SECONDS / 2)
        await user.page.until(f"/has expired or was withdrawn/.test({DIALOG}?.textContent)")
        await user.log_in(self.token(3600))
        await user.page.until("!" + PANEL)
        await user.echo("again")
        self.check_faults()

    def token(self, seconds: float) -> str:
        """Return a token that ends so late."""
        return self.provider.token(aud="page", sub="jane", exp=time.time() + seconds).decode()

    async def open_before_end(self, user: User) -> float:
        """
        Open the console with a token that ends some seconds later: a slow browser needs a longer one.

        :return: that end, in seconds since 1970.
        """
        seconds, began = TOKEN_SECONDS, 0.0
        while time.time() > began + seconds / 2:
            if began:
                await user.click_text("button", "Close the console of vm-1")
                seconds *= 2
            began = time.time()
            stored = json.dumps(json.dumps(self.token(seconds)))
            await user.page.evaluate(f"sessionStorage.setItem('twisted-exec.token', {stored})")
            await user.open("machines/default/vm-1")
            await user.until_terminal("[#$]$")
            await user.page.until("!" + PANEL)
        return began + seconds
