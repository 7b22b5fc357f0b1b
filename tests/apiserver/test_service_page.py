"""The web console within an API server."""

from __future__ import annotations

from typing import Any

from tests.apiserver.support import APITestCase
from twisted_exec.web.oidc import HostedPage


class PageTests(APITestCase):
    """A server that serves the page."""

    def more(self) -> dict[str, Any]:
        """See :meth:`APITestCase.more`."""
        return {"page": HostedPage("9.9")}

    def test_open(self) -> None:
        """The page needs no authentication, whatever the browser sends."""
        for path in ("/console/", "/console/main.js", "/console/style.css"):
            for user in ("", "admin", "unknown-token"):
                self.assertEqual(self.ask("GET", path, user=user).code, 200, (path, user))
        config = self.ask("GET", "/console/config.json?pretty=true", user="").json()
        self.assertEqual(config["login"], ["token", "certificate"])

    def test_paths(self) -> None:
        """Other paths below the page fail in plain text; the API still asks for a user."""
        for path in ("/console/none", "/console/a/b", "/console/a/b/c"):
            response = self.ask("GET", path, user="")
            self.assertEqual((response.code, response.body[:9]), (404, b"there is "), path)
        self.assertEqual(self.ask("DELETE", "/console/main.js", user="").code, 405)
        self.refused(401, "GET", "/apis", user="")
        self.refused(401, "GET", "/consoles", user="")


class NoPageTests(APITestCase):
    """A server without the page."""

    def test_unknown(self) -> None:
        """The paths do not exist."""
        self.refused(401, "GET", "/console/", user="")
        self.refused(404, "GET", "/console/")
