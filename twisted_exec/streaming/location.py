"""Where a stream goes next."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IStreamClientEndpoint
from zope.interface import Interface

from twisted_exec.api.obstacles import Obstacle, because
from twisted_exec.api.status import APIError
from twisted_exec.streaming.interfaces import IStreamRecorder
from twisted_exec.wire.channel import Channel
from twisted_exec.wire.session_terms import FULL, Terms

if TYPE_CHECKING:
    from twisted_exec.api.logs import LogOptions
    from twisted_exec.streaming.context import RequestContext


class Renewal(Enum):
    """What a further request of a session is for."""

    FORM = auto()
    """It asks for the stream in another form, because the first request was refused."""
    CONTROL = auto()
    """It ends the open stream, or changes its terms."""
    REJOIN = auto()
    """It gives the open stream another connection."""


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
    :param renew: makes the location of a further request of the session; fires with ``None`` if
        this location serves for it, as it does without the function.
    :param whole: the path has the complete query; otherwise the stream options of the user's
        request are added.
    :param refusal: converts a refusal by the backend, also 401, into the user's error.
    :param terms: what the session is held to here; the next hop must confirm it.
    :param resumes: the next hop may resume sessions and rejoin streams
        (:mod:`twisted_exec.wire.resume`, :mod:`~twisted_exec.wire.rejoin`).
    :param log: the options of the log at this location; ``None`` if the path is complete.
    :param unknown_path: the user's error if the backend does not serve the path of a text at all;
        by default the backend's.
    :param answer_headers: headers of the user's response, if it is a text or the next hop's 101.
    :param recorder: records the stream, which then is decoded here.
    :param confirm: called once the next hop has opened the session, before the user is answered;
        fails with an :class:`~twisted_exec.api.status.APIError` if it must not be opened.
    :param failed: names the next hop among the causes of an error about it.
    """

    endpoints: Sequence[tuple[str, IStreamClientEndpoint]]
    path: bytes
    host: bytes
    headers: Sequence[tuple[bytes, bytes]] = field(default_factory=tuple)
    streams: Collection[Channel] | None = None
    ends_here: bool = False
    renew: Callable[[Renewal], Deferred[Location | None]] | None = None
    whole: bool = False
    refusal: Callable[[APIError], APIError] | None = None
    unknown_path: APIError | None = None
    answer_headers: Sequence[tuple[bytes, bytes]] = ()
    log: LogOptions | None = None
    terms: Terms = FULL
    resumes: bool = False
    recorder: IStreamRecorder | None = None
    confirm: Callable[[], Deferred[None]] | None = None
    failed: Obstacle | None = None

    def blamed(self, error: APIError) -> APIError:
        """Name the next hop among the causes of an error; return the error."""
        return because(self.failed, error)

    async def renewed(self, reason: Renewal) -> Location:
        """Return the location of a further request of the session."""
        location = None if self.renew is None else await self.renew(reason)
        return self if location is None else location

    def path_with(self, query: bytes) -> bytes:
        """Return path and query for a request with a further query, which may be empty."""
        if not query:
            return self.path
        return self.path + (b"&" if b"?" in self.path else b"?") + query


class IStreamLocator(Interface):
    """Finds the next hop of a stream, and authorizes it."""

    def locate(context: RequestContext) -> Deferred[Location]:
        """
        Find the next hop of a request whose user is known.

        The locator adds what it learns about the session with :meth:`RequestContext.learn`, as soon
        as it knows it: the record of a refusal has it, and so has the session.

        :return: fires with a :class:`Location`, or fails with an
            :class:`~twisted_exec.api.status.APIError` for the user.
        """
