"""Where a stream goes next."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IStreamClientEndpoint
from zope.interface import Interface

from twisted_exec.api.status import APIError
from twisted_exec.streaming.interfaces import IStreamRecorder
from twisted_exec.streaming.subject import Subject
from twisted_exec.wire.channel import Channel
from twisted_exec.wire.session_terms import FULL, Terms

if TYPE_CHECKING:
    from twisted_exec.api.logs import LogOptions
    from twisted_exec.streaming.context import RequestContext


@dataclass(frozen=True)
class Location:
    """
    The next hop of a stream.

    :param endpoints: tried in order until connecting (TLS included) succeeds, each with a label for
        messages.
    :param headers: set on the backend's request, without the client's credentials.
    :param streams: the channels that the backend waits for, whatever the request says; ``None`` for
        those of the request.
    :param again: makes a new location for a second request of the same session; ``None`` if the
        path may be used twice.
    :param ends_here: the backend has no request that ends a session, so this hop writes the reason
        to the user.
    :param later: makes the location anew, with current credentials, for a request about an open
        stream; ``None`` if the endpoints follow new credentials by themselves.
    :param anew: locates the same object again, for a stream that is rejoined; by default ``again``
        or ``later`` does that.
    :param whole: the path has the complete query; otherwise the stream options of the user's
        request are added.
    :param refusal: converts a refusal by the backend, also 401, into the user's error.
    :param terms: what the session is held to here; the next hop must confirm it.
    :param resumes: the next hop may resume sessions and rejoin streams
        (:mod:`twisted_exec.wire.resume`).
    :param log: the options of the log at this location; ``None`` if the path is complete.
    :param unknown_path: the user's error if the backend does not serve the path of a text at all;
        by default the backend's.
    :param answer_headers: headers of the user's response, if it is a text or the next hop's 101.
    :param recorder: records the stream, which then is decoded here.
    :param confirm: called once the next hop has opened the session, before the user is answered;
        fails with an :class:`~twisted_exec.api.status.APIError` if it must not be opened.
    """

    subject: Subject
    endpoints: Sequence[tuple[str, IStreamClientEndpoint]]
    path: bytes
    host: bytes
    headers: Sequence[tuple[bytes, bytes]] = field(default_factory=tuple)
    streams: Collection[Channel] | None = None
    again: Callable[[], Deferred[Location]] | None = None
    ends_here: bool = False
    later: Callable[[], Deferred[Location]] | None = None
    anew: Callable[[], Deferred[Location]] | None = None
    whole: bool = False
    refusal: Callable[[APIError], APIError] | None = None
    unknown_path: APIError | None = None
    answer_headers: Sequence[tuple[bytes, bytes]] = ()
    log: LogOptions | None = None
    terms: Terms = FULL
    resumes: bool = False
    recorder: IStreamRecorder | None = None
    confirm: Callable[[], Deferred[None]] | None = None

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

        The locator adds what it learns about the object with :meth:`RequestContext.learn`, so that
        the record of a refusal has it.

        :return: fires with a :class:`Location`, or fails with an
            :class:`~twisted_exec.api.status.APIError` for the user.
        """
