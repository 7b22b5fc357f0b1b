"""
A client certificate in a browser's store, imported by the commands of ``howto/hosted-web-console``.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from tests import needs
from tests.web.browser.base import WebTestCase
from tests.web.browser.chromium import Chromium
from tests.web.browser.firefox import Firefox
from tests.web.browser.user import User

POLICIES = Path("/etc/chromium/policies/managed")
"""Where Debian's Chromium looks for policies; no option names another directory."""
PASSWORD = "of the file"


class CertificateTests(WebTestCase):
    """A user whose Chromium has a certificate of theirs, and trusts the CA of the API server."""

    skip = needs.chromium() or needs.page_vendor() or needs.certificate_store()
    if not skip and os.geteuid() != 0:
        skip = f"only root may write to {POLICIES}"

    async def start_browser(self) -> Any:
        home = Path(self.mktemp()).resolve()
        self.import_certificate(home / ".pki" / "nssdb")
        self.select_automatically()
        return await self.started(Chromium(home=str(home)))

    def import_certificate(self, directory: Path) -> None:
        """Import the user's certificate, and trust the CA, in a new database of certificates."""
        pki = self.deployment.pki
        pair = pki.issue_user("grace", ["system:masters"])
        directory.mkdir(parents=True)
        store, archive = f"sql:{directory}", self.deployment.path("grace.p12")
        pem = ("-in", pair.certificate, "-inkey", pair.key)
        for command in (
            ("openssl", "pkcs12", "-export", *pem, "-out", archive, "-passout", f"pass:{PASSWORD}"),
            ("certutil", "-d", store, "-N", "--empty-password"),
            ("pk12util", "-d", store, "-i", archive, "-W", PASSWORD),
            ("certutil", "-d", store, "-A", "-n", "ca", "-t", "C,,", "-i", pki.serving_ca),
        ):
            subprocess.run(command, check=True, capture_output=True)

    def select_automatically(self) -> None:
        """Let Chromium use the certificate without a question, which only a user could answer."""
        made = [each for each in (POLICIES, *POLICIES.parents) if not each.exists()]
        for directory in reversed(made):
            directory.mkdir()
            self.addCleanup(directory.rmdir)
        policy = POLICIES / f"exec-interop-{os.getpid()}.json"
        issuer = {"ISSUER": {"CN": "twisted-exec user CA"}}
        rule = json.dumps({"pattern": "https://127.0.0.1", "filter": issuer})
        self.addCleanup(policy.unlink)
        policy.write_text(json.dumps({"AutoSelectCertificateForUrls": [rule]}))

    async def test_walk(self) -> None:
        """
        The page offers to continue as the certificate's user, lists machines, and opens a terminal; a
        reload asks for nothing, and after a log-out the page offers the certificate again.
        """
        await self.deployment.create_machine("vm-1", "shell")
        user = await User.visit(self.browser, self.deployment.console_url, private=False)
        self.users.append(user)
        await user.click_text("button", "Continue as grace (client certificate)")
        await self.open_terminal(user)
        await user.echo("certificate")
        await user.until_page("1 viewer: grace")
        await user.page.reload()
        await user.until_terminal("certificate-42")
        await user.echo("again")
        token = "sessionStorage.getItem('twisted-exec.token')"
        self.assertIsNone(await user.page.evaluate(token))
        await user.click_text("button", "Log out")
        await user.page.until("document.querySelector('dialog[open] input[type=password]')")
        await user.click_text("button", "Continue as grace (client certificate)")
        await user.until_page("You can type")
        self.check_faults()


class FirefoxTests(CertificateTests):
    """The same with Firefox, which has the certificate in its profile."""

    skip = needs.firefox() or needs.page_vendor() or needs.certificate_store()

    async def start_browser(self) -> Any:
        profile = Path(self.mktemp()).resolve()
        self.import_certificate(profile)
        return await self.started(Firefox(profile=str(profile)))
