"""The admission of a stream, which ends with the location of its next hop."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IStreamClientEndpoint
from zope.interface import Interface

from twisted_exec.api.obstacles import Obstacle, because
from twisted_exec.api.status import APIError, BadGateway, NotFound, Unauthorized
from twisted_exec.streaming.http.routes import UNKNOWN_PATH
from twisted_exec.streaming.interfaces import Ending, IStreamRecorder
from twisted_exec.wire.channel import Channel
from twisted_exec.wire.session_terms import FULL, Terms

if TYPE_CHECKING:
    from twisted_exec.api.logs import LogOptions
    from twisted_exec.streaming.context import RequestContext
    from twisted_exec.streaming.http.upgrade_client import UpgradeRefused


class Renewal(Enum):
    """What a further request of a session is for."""

    FORM = auto()
    """It asks for the stream in another form, because the first request was refused."""
    CONTROL = auto()
    """It ends the open stream, or changes its terms."""
    REJOIN = auto()
    """It gives the open stream another connection."""


class Upstream:
    """
    The next hop of a stream, for what happens after its :class:`Location` is known.

    The methods have defaults; a subclass overrides those about which it knows more.

    :param obstacle: names the next hop among the causes of an error about it.
    :param unknown_path: the user's error if the next hop does not serve the path at all; by default
        the next hop's.
    """

    def __init__(
        self, obstacle: Obstacle | None = None, unknown_path: APIError | None = None
    ) -> None:
        self._obstacle, self._unknown_path = obstacle, unknown_path

    def blame(self, error: APIError) -> APIError:
        """Name the next hop among the causes of an error; return the error."""
        return because(self._obstacle, error)

    def error_of(self, refused: UpgradeRefused) -> APIError:
        """Return the user's error for a refusal by the next hop."""
        if self._unknown_path is not None and refused.code == NotFound.code:
            status = refused.status()
            if status is None or status.message == UNKNOWN_PATH:
                return self._unknown_path
        if refused.code == Unauthorized.code:
            # The user is authenticated by now; the refused credentials are ours.
            ours = BadGateway(f"{refused.label} does not accept this server's credentials")
            return self.blame(because(Obstacle.CREDENTIALS_REFUSED, ours))
        error = refused.as_api_error()
        return self.blame(error) if refused.code < 400 else error

    async def confirm(self, ending: Ending | None) -> None:
        """
        Decide for the last time: the next hop has opened the stream, the user has no answer yet.

        :param ending: of the session, if it is to end already.
        :raises APIError: the user must not get the stream.
        """

    async def renew(self, location: Location, reason: Renewal) -> Location:
        """Return the location of a further request of the session; by default the same one."""
        return location


@dataclass(frozen=True)
class Location:
    """
    The next hop of a stream.

    :param endpoints: tried in order until connecting (TLS included) succeeds, each with a label for
        messages.
    :param headers: set on the backend's request, without the client's credentials.
    :param streams: the channels that the backend waits for, whatever the request says; ``None`` for
        those of the request.
    :param ends_here: the backend has no request that ends a session, so this hop writes the reason
        to the user.
    :param whole: the path has the complete query; otherwise the stream options of the user's
        request are added.
    :param terms: what the session is held to here; the next hop must confirm it.
    :param resumes: the next hop may resume sessions and rejoin streams
        (:mod:`twisted_exec.wire.resume`, :mod:`~twisted_exec.wire.rejoin`).
    :param log: the options of the log at this location; ``None`` if the path is complete.
    :param answer_headers: headers of the user's response, if it is a text or the next hop's 101.
    :param recorder: records the stream, which then is decoded here.
    :param upstream: has the answers that are needed later.
    """

    endpoints: Sequence[tuple[str, IStreamClientEndpoint]]
    path: bytes
    host: bytes
    headers: Sequence[tuple[bytes, bytes]] = field(default_factory=tuple)
    streams: Collection[Channel] | None = None
    ends_here: bool = False
    whole: bool = False
    answer_headers: Sequence[tuple[bytes, bytes]] = ()
    log: LogOptions | None = None
    terms: Terms = FULL
    resumes: bool = False
    recorder: IStreamRecorder | None = None
    upstream: Upstream = field(default_factory=Upstream)

    def path_with(self, query: bytes) -> bytes:
        """Return path and query for a request with a further query, which may be empty."""
        if not query:
            return self.path
        return self.path + (b"&" if b"?" in self.path else b"?") + query


class IStreamAdmission(Interface):
    """
    Decides whether a stream may be opened, and where it goes: *may they* and *where* of the five
    steps of an opening (:meth:`~twisted_exec.streaming.proxy.Proxy.handle`).
    """

    def admit(context: RequestContext) -> Deferred[Location]:
        """
        Admit the request of a known user, or refuse it.

        The admission adds what it learns about the session with :meth:`RequestContext.learn`, as
        soon as it knows it: the record of a refusal has it, and so has the session.

        :return: fires with the :class:`Location` of the next hop, or fails with an
            :class:`~twisted_exec.api.status.APIError` for the user.
        """
