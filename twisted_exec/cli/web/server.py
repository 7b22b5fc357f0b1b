"""
The server of ``twisted-exec web``, on 127.0.0.1.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IStreamClientEndpoint

from twisted_exec import __version__
from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.cli.web.forwarding import Forwarder
from twisted_exec.cli.web.login import Login
from twisted_exec.cli.web.site import LocalConsole
from twisted_exec.cli.web.sockets import Sockets
from twisted_exec.kube.kubeconfig.client_config import ClientConfig
from twisted_exec.streaming.http.site import Site
from twisted_exec.tls.endpoints import server_endpoint
from twisted_exec.web.static import Page

_MOST_CONNECTIONS = 256
"""Besides WebSockets; a browser opens six for all tabs."""


class LocalServer:
    """
    The server on 127.0.0.1.

    :param config: returns the cluster and the current credentials.
    :param place: tells the page after its login where it is: ``cluster``, ``namespace`` and ``machine``.
    :param server: the endpoint of the API server, instead of the one that ``config`` names.
    :ivar login: exchanges the secret of the URL.
    :ivar site: makes the protocol of each connection.
    """

    def __init__(
        self,
        config: Callable[[], ClientConfig],
        place: Mapping[str, Any],
        reactor: Any,
        *,
        server: IStreamClientEndpoint | None = None,
    ) -> None:
        self._reactor = reactor
        self.login = Login(reactor)
        self._forwarder = Forwarder(config, reactor, server)
        self._sockets = Sockets(config, reactor, server)
        page = Page(lambda: {"local": True, "login": [], "oidc": []}, __version__)
        self._console = LocalConsole(page, self.login, place, self._forwarder, self._sockets)
        self.site = Site(self._console, reactor, max_connections=_MOST_CONNECTIONS)
        self._listening: Any = None

    async def listen(self, port: int) -> None:
        """
        Start the server.

        :param port: 0 for a free one.
        :raises ServiceUnavailable: the port is not free.
        """
        endpoint = server_endpoint(self._reactor, f"tcp:{port}:interface=127.0.0.1")
        try:
            self._listening = await endpoint.listen(self.site)
        except CannotListenError as problem:
            reason = os.strerror(getattr(problem.socketError, "errno", None) or 0)
            raise ServiceUnavailable(
                f"cannot listen on 127.0.0.1:{port}: {reason}; choose another --port"
            ) from None
        self.serve_at(self._listening.getHost().port)

    def serve_at(self, port: int) -> None:
        """Answer requests for this port."""
        self._console.port = port

    def new_url(self) -> str:
        """Return a URL with a new secret."""
        return f"http://127.0.0.1:{self._console.port}/console/#secret={self.login.new_secret()}"

    async def close(self) -> None:
        """Stop listening, and tell the open pages."""
        if self._listening is not None:
            await self._listening.stopListening()
        await self._sockets.close()
        self.site.drain()
        self._forwarder.close()  # not awaited: a server that is lost would hold up the end
