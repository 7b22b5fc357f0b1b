"""
The credentials of a request, kept to be asked about again while its session lives.
"""

from __future__ import annotations

from typing import Any

from twisted.web.http import Request

from twisted_exec.api.status import Unauthorized
from twisted_exec.auth.impersonation import impersonation_headers
from twisted_exec.auth.interfaces import User
from twisted_exec.auth.tokens import bearer_token


class Shown:
    """
    What authenticators look at, without the rest of the request.

    Its token, the connection, which has the client's certificate, and as whom they
    asked to act.  What a proxy said of others is kept as it was believed: whether they are still
    who it said is the proxy's to ask about, what they may is ours.

    :ivar acts: they asked to act as someone else.
    :ivar forwarded: for whom a trusted proxy spoke, if one did.
    """

    def __init__(self, request: Request) -> None:
        tokens = request.requestHeaders.getRawHeaders(b"authorization", []) or _meant(request)
        self.requestHeaders = impersonation_headers(request.requestHeaders)
        self.acts = any(True for _ in self.requestHeaders.getAllRawHeaders())
        self.requestHeaders.setRawHeaders(b"authorization", tokens)
        self.forwarded: User | None = getattr(request, "forwarded", None)
        # A transport that is lost forgets its certificate, and to lose a connection while
        # the last bytes are still on their way is not to lose a right.
        self._handle = getattr(request.channel.transport, "getHandle", lambda: None)()

    @property
    def channel(self) -> Shown:
        """
        Authenticators find the client's certificate at ``request.channel.transport``.

        No attribute: a cycle would keep the connection's memory until the garbage
        collector happens to run.
        """
        return self

    @property
    def transport(self) -> Shown:
        """See :attr:`channel`."""
        return self

    def getHandle(self) -> Any:
        """As of the connection's transport."""
        return self._handle


def _meant(request: Request) -> list[bytes]:
    """The token that a browser could not send as it should, as it should be sent."""
    try:
        token = bearer_token(request)  # type: ignore[arg-type]
    except Unauthorized:
        return []  # they are known by something else
    return [b"Bearer " + token] if token else []
