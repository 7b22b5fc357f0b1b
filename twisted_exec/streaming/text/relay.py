"""
Relay for read-only texts: admit, request, pass on.

An API server asks for frames, and continues the log
(:mod:`~twisted_exec.streaming.text.resumption`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from twisted_exec.api.logs import LogOptions
from twisted_exec.api.status import (
    APIError,
    BadGateway,
    NotFound,
    NotImplementedByBackend,
    ServiceUnavailable,
)
from twisted_exec.program.tasks import settled
from twisted_exec.streaming.context import RequestContext
from twisted_exec.streaming.http.routes import WrongMethod
from twisted_exec.streaming.http.upgrade_client import (
    AskingFactory,
    UpgradeRefused,
    UpgradeRequest,
    ask_first,
)
from twisted_exec.streaming.http.upgrade_server import requested_protocol
from twisted_exec.streaming.interfaces import LINE_LOST, MACHINE_DELETED, SHUTTING_DOWN, Ending
from twisted_exec.streaming.location import IStreamAdmission, Location, Upstream
from twisted_exec.streaming.sessions.registry import Session, Sessions
from twisted_exec.streaming.sessions.stream import SessionStream
from twisted_exec.streaming.text.connection import TextConnection, can_carry
from twisted_exec.streaming.text.download import DOWNLOADS, Download
from twisted_exec.streaming.text.resumption import RETRIED, FramedText, ResumedLog
from twisted_exec.streaming.text.stream import TextAnswer, TextStream
from twisted_exec.streaming.text.websocket import TextSocket
from twisted_exec.wire.log_frames import Framing
from twisted_exec.wire.upgrade import WEBSOCKET

_RETRIED = RETRIED | {NotFound.code}
"""A runtime that was replaced knows no token of its predecessor (404)."""


class Relay:
    """
    Passes texts on from the location that its admission returns, at the pace of their readers.

    :param admission: its location has the query in its path, or the options of a log.
    :param answer_seconds: from the request to the head of the response, which kubelets may send
        late; ``None`` for no limit.
    :param end_seconds: how long the log of a deleted machine may take for its last lines.
    :param keeps_connections: a connection may be reused after a text.
    """

    def __init__(
        self,
        admission: IStreamAdmission,
        *,
        sessions: Sessions,
        clock: IReactorTime,
        connect_seconds: float = 5,
        answer_seconds: float | None = 10,
        end_seconds: float = 2,
        keeps_connections: bool = True,
        tells_loss: bool = False,
        downloads: AskingFactory = DOWNLOADS,
        resumes: bool = False,
    ) -> None:
        self.admission, self.sessions, self.clock = admission, sessions, clock
        self.connect_seconds, self.answer_seconds = connect_seconds, answer_seconds
        self.end_seconds, self.downloads = end_seconds, downloads
        self.keeps_connections, self.tells_loss = keeps_connections, tells_loss
        self.resumes = resumes

    async def handle(self, context: RequestContext) -> None:
        """
        Relay a text; returns when the answer has begun.

        :raises APIError: the text is refused here or by the next hop; the caller sends the error.
        """
        if context.request.method != b"GET":
            raise WrongMethod(context.request.method, [b"GET"])
        await _RelayedText(self, context).run()


class _RelayedText(SessionStream):
    """One text, from the request until its end."""

    _text: TextStream
    _download: Download | ResumedLog | None = None
    _framing: Framing | None = None  # if the user gets frames
    _label = ""  # of the backend
    _headers: Sequence[tuple[bytes, bytes]] = ()  # of the response
    _late: IDelayedCall | None = None

    def __init__(self, relay: Relay, context: RequestContext) -> None:
        self._relay, self._context, self._request = relay, context, context.request

    async def run(self) -> None:
        context = self._context
        try:
            await self._run()
        except BaseException as problem:
            context.unopened(problem)
            raise
        context.opened()

    async def _run(self) -> None:
        sessions, request, context = self._relay.sessions, self._request, self._context
        location = await self._relay.admission.admit(context)
        self._headers = location.answer_headers
        session = context.open_session(sessions, location.terms)
        try:
            self._text = self._form()(request, self._pause, self._resume)
            reaching = Deferred.fromCoroutine(self._open(location))
            # Kubelets send the head of the response only with the first line: following a silent
            # container can wait for hours.
            if self._relay.answer_seconds is None:
                session.when_called_off(lambda ending: reaching.cancel())
            self._download = await reaching
            await self._confirm(location, session)
        except BaseException as problem:
            if session.ending is None or request.gone or not isinstance(problem, CancelledError):
                session.failed(problem)
                raise
        self._pass_on(session)

    async def _confirm(self, location: Location, session: Session) -> None:
        try:
            await location.upstream.confirm(session.ending)
        except BaseException:
            download, self._download = self._download, None
            if download is not None:
                download.abort()
            raise

    def _form(self) -> type[TextAnswer | TextSocket | TextConnection]:
        if requested_protocol(self._request) == WEBSOCKET:
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

    async def _open(self, location: Location) -> Download | ResumedLog:
        options, resumes = location.log, self._relay.resumes
        if options is None:
            return await self._reach(location)
        download = await self._reach(location, replace(options, frames=options.frames or resumes))
        framing = Framing.of(download.headers)
        if options.frames:
            self._framing = framing
        if framing is None or not resumes:
            return download
        return ResumedLog(
            FramedText(download, framing),
            options,
            partial(self._again, self._context.subject.uid),
            self._relay.clock,
            has_frames=options.frames,
            retried=_RETRIED,
            lost=self._note_outage,
        )

    def _note_outage(self, why: str | None) -> None:
        if why is None:
            self._relay.sessions.metrics.log_outage(continued=True)

    async def _again(self, uid: str, options: LogOptions) -> FramedText:
        location = await settled(self._relay.admission.admit(self._context))
        subject = self._context.subject
        if subject.uid != uid:  # the end of the session is under way
            raise ServiceUnavailable(f'{subject.noun} "{subject.machine}" was deleted')
        download = await self._reach(location, options)
        framing = Framing.of(download.headers)
        if framing is None:
            download.abort()
            raise NotImplementedByBackend(f"{self._label} cannot continue the log")
        return FramedText(download, framing)

    async def _reach(self, location: Location, options: LogOptions | None = None) -> Download:
        relay = self._relay
        audit_id = (b"Audit-Id", self._context.subject.session.encode("ascii"))
        query = b"" if options is None else options.query()
        path = location.path + (b"?" + query if query else b"")
        head = UpgradeRequest(b"GET", path, location.host, [*location.headers, audit_id])
        download: Download
        try:
            self._label, download = await ask_first(
                location.endpoints,
                head,
                clock=relay.clock,
                connect_seconds=relay.connect_seconds,
                answer_seconds=relay.answer_seconds,
                factory=relay.downloads,
                spares=True,
            )
        except UpgradeRefused as refused:
            raise _refusal(refused, location.upstream) from None
        except APIError as error:
            raise location.upstream.blame(error) from None
        return download

    def _pass_on(self, session: Session) -> None:
        text = self._text
        del self._request  # saves memory: a follower may wait for hours
        if not isinstance(self._download, ResumedLog):
            del self._context
        try:
            framing = [] if self._framing is None else [self._framing.header()]
            text.begin([*self._headers, *framing])
        except ConnectionDone:  # lost in this very reactor turn
            self._over(session, "client closed")
            raise CancelledError from None
        text.watch()
        text.done.addCallback(partial(self._over, session))
        session.carry(self)
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
        if complete:
            self._text.finish("backend closed")
        elif isinstance(self._download, ResumedLog) and (ending := self._download.ending):
            self._relay.sessions.metrics.log_outage(continued=False)
            lost = ending.reason == LINE_LOST
            message = f"{self._label} was lost: {ending.message}" if lost else ending.message
            reason = "backend lost" if lost else ending.reason
            self._break_off(reason, replace(ending, message=message))
        else:
            ending = Ending(LINE_LOST, f"{self._label} was lost")
            self._break_off("backend lost", ending if self._relay.tells_loss else None)

    def _break_off(self, reason: str, ending: Ending | None) -> None:
        self._text.break_off(reason, None if self._framing is not None else ending)

    def cut(self) -> None:
        self._text.cut("cut")

    def end(self, ending: Ending) -> None:
        download = self._download
        if ending.reason == MACHINE_DELETED and (download is None or download.is_waiting):
            self._text.finish(ending.reason)  # nothing was printed yet, or nothing can be read
        elif ending.reason == MACHINE_DELETED:
            # The machine's end ends the log too, behind the last line printed.
            self._late = self._relay.clock.callLater(
                self._relay.end_seconds, self._text.finish, ending.reason
            )
        else:
            if ending.reason == SHUTTING_DOWN and isinstance(download, ResumedLog):
                option = download.continue_option
                message = f"{ending.message}; continue with {option}" if option else ending.message
                ending = replace(ending, message=message)
            self._break_off(ending.reason, ending)


def _refusal(refused: UpgradeRefused, upstream: Upstream) -> APIError:
    if refused.code < 400:
        text = f"{refused.label} answered with status code {refused.code}, and no log"
        return upstream.blame(BadGateway(text))
    return upstream.error_of(refused)
