"""
The page as an API server serves it: for anyone, with a login.
"""

from __future__ import annotations

from typing import Any

from twisted_exec.auth.dispatcher import GatedRoutes
from twisted_exec.web.oidc import IssuerLogin
from twisted_exec.web.static import Page


class HostedPage:
    """
    The page, its configuration and its login.

    :param version: release of the program.
    :param login: login at OIDC issuers, if the page is registered there.
    """

    def __init__(self, version: str, login: IssuerLogin | None = None) -> None:
        self._login = login
        self._page = Page(self._config, version)

    def add_to(self, routes: GatedRoutes) -> None:
        """Add the routes."""
        self._page.add_to(routes)
        if self._login is not None:
            self._login.add_to(routes)

    def _config(self) -> dict[str, Any]:
        issuers = [] if self._login is None else self._login.offers()
        ways = ["oidc", "token", "certificate"] if issuers else ["token", "certificate"]
        return {"local": False, "login": ways, "oidc": issuers, "cluster": ""}
