"""
The middle of the chain for what is only read: locate, ask, pass on.

A log is a plain GET on every hop, and all that holds for a console's stream holds for it: each hop
decides for itself (its locator does), nothing of the client's own request but what the locator read
passes on, a refusal is a Status, no redirect is followed, and there is one audit start and one end.
The bytes pass as they come and as fast as the client takes them: when it stops, so does the
machine's end, which marks what a slow reader missed.  A client that leaves ends it on every hop.

A backend that passes on what others print (a kubelet does) may answer with its head only when there is
something to pass on: whoever follows a silent container waits for its first line, for hours if need be.
For such a backend there is no time limit, and a session that is ended while it waits is told why
like any other.
A page in a browser may ask for it over a WebSocket; the hops behind this one never know.
"""

from __future__ import annotations

from functools import partial

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from twisted_exec.api.status import APIError, BadGateway, MethodNotAllowed, Unauthorized
from twisted_exec.streaming.http.outcomes import naming, outcome
from twisted_exec.streaming.http.site import Request
from twisted_exec.streaming.http.upgrade_client import (
    AskingFactory,
    UpgradeRefused,
    UpgradeRequest,
    connect_first,
)
from twisted_exec.streaming.http.upgrade_server import is_upgrade
from twisted_exec.streaming.interfaces import (
    LINE_LOST,
    MACHINE_DELETED,
    Ending,
    IStreamLocator,
    Location,
)
from twisted_exec.streaming.sessions.registry import Session, Sessions
from twisted_exec.streaming.text.connection import TextConnection, can_carry
from twisted_exec.streaming.text.download import DOWNLOADS, Download, fetch
from twisted_exec.streaming.text.stream import TextAnswer, TextStream
from twisted_exec.streaming.text.websocket import TextSocket
from twisted_exec.wire.upgrade import WEBSOCKET


class Relay:
    """
    CoalescedRuns plain GETs on to where the locator says.

    :param locator: its location's path has the whole query.
    :param connect_seconds: for each address, TLS included.
    :param answer_seconds: from the request to the head of the answer; ``None``: without limit.
    :param end_seconds: how long the log of a deleted machine may take for its last words.
    :param keeps_connections: a connection may be used again after a text; without that it ends with
        it, and one that goes on for hours holds less.
    :param tells_loss: a text whose backend was lost says so in a last line: the hop in front, such
        as a kube-apiserver, tells its user nothing of a connection that was cut.
    :param downloads: makes connections, and says what of the answers to them is a text.
    """

    def __init__(
        self,
        locator: IStreamLocator,
        *,
        sessions: Sessions,
        clock: IReactorTime,
        connect_seconds: float = 5,
        answer_seconds: float | None = 10,
        end_seconds: float = 2,
        keeps_connections: bool = True,
        tells_loss: bool = False,
        downloads: AskingFactory = DOWNLOADS,
    ) -> None:
        self.locator, self.sessions, self.clock = locator, sessions, clock
        self.connect_seconds, self.answer_seconds = connect_seconds, answer_seconds
        self.end_seconds, self.downloads = end_seconds, downloads
        self.keeps_connections, self.tells_loss = keeps_connections, tells_loss

    async def handle(self, request: Request) -> None:
        """
        Answer a request for a text; returns once it passes.

        :raises APIError: it was refused, here or by the next hop; the caller
            answers with it.  Cancelling (the client left) closes everything.
        """
        if request.method != b"GET":
            request.setHeader(b"Allow", b"GET")
            raise MethodNotAllowed("a log is read with GET")
        try:
            await _Passage(self, request).run()
        except APIError as error:
            raise naming(error, request.subject) from None


class _Passage:
    """One request's way through a relay."""

    _text: TextStream
    _download: Download | None = None
    _label = ""  # of the backend
    _late: IDelayedCall | None = None

    def __init__(self, relay: Relay, request: Request) -> None:
        self._relay, self._request = relay, request

    async def run(self) -> None:
        sessions, request = self._relay.sessions, self._request
        try:
            location = await self._relay.locator.locate(request)
        except BaseException as problem:
            sessions.refused(request.subject, *outcome(problem))
            raise
        request.subject = location.subject
        session = sessions.open(location.subject, request.evidence)
        try:
            self._text = self._form()(request, self._pause, self._resume)
            reaching = Deferred.fromCoroutine(self._reach(location))
            if self._relay.answer_seconds is None:
                session.wait(lambda ending: reaching.cancel())
            self._download = await reaching
        except BaseException as problem:
            if session.ending is None or request.gone or not isinstance(problem, CancelledError):
                code, reason = outcome(problem)
                session.over(reason, code=code)
                raise
        self._pass_on(session)

    def _form(self) -> type[TextAnswer | TextSocket | TextConnection]:
        """What is to be answered with."""
        if is_upgrade(self._request) == WEBSOCKET:
            return TextSocket
        if self._relay.keeps_connections or not can_carry(self._request):
            return TextAnswer
        return TextConnection

    def _pause(self) -> None:
        if self._download is not None:
            self._download.pause()

    def _resume(self) -> None:
        if self._download is not None:
            self._download.resume()

    async def _reach(self, location: Location) -> Download:
        relay = self._relay
        label, connection = await connect_first(
            location.endpoints,
            clock=relay.clock,
            timeout_seconds=relay.connect_seconds,
            factory=relay.downloads,
        )
        self._label = label
        audit_id = (b"Audit-Id", location.subject.session.encode("ascii"))
        head = UpgradeRequest(b"GET", location.path, location.host, [*location.headers, audit_id])
        try:
            return await fetch(
                connection, head, clock=relay.clock, timeout_seconds=relay.answer_seconds
            )
        except UpgradeRefused as refused:
            raise _refusal(label, refused, location) from None
        except APIError as error:
            raise APIError(
                f"{label}: {error.message}", code=error.code, reason=error.reason
            ) from None

    def _pass_on(self, session: Session) -> None:
        text = self._text
        del self._request  # a follower who waits for hours owns next to nothing
        try:
            text.begin()
        except ConnectionDone:  # in this very turn
            self._over(session, "client closed")
            raise CancelledError from None
        text.watch()
        text.done.addCallback(partial(self._over, session))
        session.carry(self._end, partial(text.cut, "cut"))
        if self._download is not None:
            self._download.deliver(text.write, self._ended)

    def _over(self, session: Session, reason: str) -> None:
        session.over(reason, bytes_to_user=self._text.sent)
        if self._download is not None:
            self._download.abort()
        self._text.release()
        if self._late is not None and self._late.active():
            self._late.cancel()

    def _ended(self, complete: bool) -> None:
        """The next hop's answer is over."""
        if complete:
            self._text.finish("backend closed")
        else:
            told = Ending(LINE_LOST, f"{self._label} was lost")
            self._text.break_off("backend lost", told if self._relay.tells_loss else None)

    def _end(self, ending: Ending) -> None:
        """This hop wants it to end."""
        if ending.reason == MACHINE_DELETED and self._download is None:
            self._text.finish(ending.reason)  # it never printed anything
        elif ending.reason == MACHINE_DELETED:
            # Its own end knows, too, and ends the log behind what was printed last.
            self._late = self._relay.clock.callLater(
                self._relay.end_seconds, self._text.finish, ending.reason
            )
        else:
            self._text.break_off(ending.reason, ending)


def _refusal(label: str, refused: UpgradeRefused, location: Location) -> APIError:
    if location.refusal is not None and refused.code >= 400:
        return location.refusal(refused.as_api_error())
    if refused.code == Unauthorized.code:
        # Whoever asks us is known by now; it is we who are not.
        return BadGateway(f"{label} does not accept this server's credentials")
    if refused.code < 400:
        return BadGateway(f"{label} answered with status code {refused.code}, and no log")
    return refused.as_api_error()
