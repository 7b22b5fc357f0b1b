"""
Logins of the hosted page at Dex, with the configuration that the documentation recommends.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import yaml

from tests import needs
from tests.web.browser.abstract_page import AbstractPage
from tests.web.browser.base import WebTestCase
from tests.web.browser.firefox import Firefox
from tests.web.browser.user import User
from twisted_exec.api import kinds

from .programs import Programs, answers, free_port

CONFIGURATION = Path(__file__).parents[2] / "docs" / "deploy" / "dex" / "config.yaml"
CLIENT = "twisted-exec-web"
EMAIL, PASSWORD = "ada@example.org", "dex-test"
HASH = "$2b$10$vIz9bkiyiap7uh9WgCq0l.O.L.RVv2lAjc0xmob6SoJSQ9OmkNL0u"
TOKEN_SECONDS = 25
"""Lifetime of tokens; a user logs in and types into a terminal meanwhile."""
BINDING = {
    "metadata": {"name": "ada"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
    "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": EMAIL}],
}
LOG_IN = "Log in with localhost"
DIALOG = "document.querySelector('dialog[open]')"


class ProviderTests(WebTestCase):
    """A page whose users come from Dex."""

    skip = needs.chromium() or needs.page_vendor() or needs.dex()

    def prepare(self) -> None:
        self.programs = Programs("exec-dex-")
        self.addCleanup(self.programs.stop)
        self.origin = f"https://localhost:{free_port()}"
        self.deployment.pki.issue_apiserver(["localhost", "127.0.0.1"])
        self.deployment.api_options = (
            f"--oidc-issuer-url={self.origin}/dex",
            f"--oidc-ca-file={self.deployment.pki.serving_ca}",
            "--oidc-client-id=twisted-exec",
            f"--oidc-web-client-id={CLIENT}",
            "--oidc-web-scopes=openid,email",
            "--oidc-username-claim=email",
        )

    async def setUp(self) -> None:
        await super().setUp()
        self.start_dex()
        # A server that could not fetch the keys of its provider tries again after a while only.
        await self.deployment.restart("api", kill=False)
        await self.deployment.create_machine("vm-1", "shell")
        await self.deployment.client.create(kinds.CLUSTERROLEBINDINGS.resource, BINDING)

    def start_dex(self) -> None:
        """Start it with the documented configuration, with the addresses and paths of this test."""
        config = yaml.safe_load(CONFIGURATION.read_text())
        pair = self.deployment.pki.pair("apiserver")
        config["issuer"] = f"{self.origin}/dex"
        config["web"] = {
            "https": self.origin.removeprefix("https://").replace("localhost", "127.0.0.1"),
            "tlsCert": shutil.copy(pair.certificate, self.programs.path("tls.crt")),
            "tlsKey": shutil.copy(pair.key, self.programs.path("tls.key")),
        }
        config["storage"]["config"]["file"] = self.programs.path("dex.db")
        config["expiry"]["idTokens"] = f"{TOKEN_SECONDS}s"
        page = next(each for each in config["staticClients"] if each["id"] == CLIENT)
        page["redirectURIs"] = [self.deployment.console_url]
        config["staticPasswords"][0]["hash"] = HASH
        path = self.programs.write("config.yaml", yaml.safe_dump(config))
        self.programs.run("dex", needs.dex_program(), "serve", path)
        discovery = f"{self.origin}/dex/.well-known/openid-configuration"
        self.programs.until("dex", lambda: answers(discovery, self.deployment.pki.serving_ca))

    async def test_walk(self) -> None:
        """
        A user logs in with a password at the provider, lists machines and types into a terminal.  When
        the token expires, the provider gets a window of its own, the screen stays and the console goes
        on.  A log-out forgets the token.
        """
        user = await User.visit(self.browser, self.deployment.console_url, private=False)
        self.users.append(user)
        await user.click_text("button", LOG_IN)
        await self.log_in(user.page)
        await self.open_terminal(user)
        await user.echo("before")
        await user.until_page(f"1 viewer: {EMAIL}")

        await user.page.until(DIALOG)
        self.assertIn("before-42", await user.text())
        pages = await self.browser.urls()
        await user.click_text("button", LOG_IN)
        await self.log_in(await self.browser.page_at(self.origin))
        await user.page.until(f"!{DIALOG}")
        await user.until_page("You can type")
        await user.type_line("echo after-$((6*7))")
        await user.until_terminal("before-42[^]*after-42")
        self.assertEqual(await self.browser.urls(), pages)

        await user.click_text("button", "Log out")
        await user.page.until(f"{DIALOG}?.querySelector('input[type=password]')")
        self.assertEqual(await user.page.evaluate("sessionStorage.length"), 0)
        self.check_faults()

    async def log_in(self, page: AbstractPage) -> None:
        """Type name and password into Dex's form."""
        for name, text in (("login", EMAIL), ("password", PASSWORD)):
            await page.focus(f"#{name}")
            await page.type(text)
        await page.press("Enter")


class FirefoxTests(ProviderTests):
    """The same in Firefox, which has rules of its own for windows that a page opens."""

    skip = needs.firefox() or needs.page_vendor() or needs.dex()

    async def start_browser(self) -> Firefox:
        return await self.started(Firefox())
