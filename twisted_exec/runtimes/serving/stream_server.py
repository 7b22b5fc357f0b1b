"""
The stream server of a runtime: consoles, logs, screens and recordings, by token.

A log is a plain GET with the query of :mod:`twisted_exec.api.logs`.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import ConnectionDone

from twisted_exec.api.declared_reasons import REASON_HEADER, reason_of_headers
from twisted_exec.api.logs import parse
from twisted_exec.api.screens import parse as parse_screen
from twisted_exec.api.status import (
    APIError,
    BadRequest,
    MethodNotAllowed,
    NotFound,
    ServiceUnavailable,
)
from twisted_exec.console.log import LogStream
from twisted_exec.iri.request_cache import (
    EXEC,
    LOG,
    RECORDING,
    Grant,
    LiveStream,
    RequestCache,
    TokenReservation,
)
from twisted_exec.journal.interfaces import IReadableJournal
from twisted_exec.program.interfaces import IAuditSink
from twisted_exec.program.session_limits import SessionLimits
from twisted_exec.program.session_metrics import LatencyMetrics
from twisted_exec.runtimes.recordings.content import RecordingStream, StoredStream
from twisted_exec.runtimes.recordings.service import ConsoleRecordings
from twisted_exec.runtimes.serving.kept_sessions import KeptSession, KeptSessions
from twisted_exec.runtimes.serving.options import Listening
from twisted_exec.runtimes.serving.rejoin_requests import Rejoining
from twisted_exec.runtimes.serving.server import (
    REJOIN_SECONDS,
    RESUME_SECONDS,
    ServerRoutes,
    TokenServer,
    header_text,
)
from twisted_exec.screens.from_journal import Screens
from twisted_exec.streaming.http.cross_site import refuse_other_sites
from twisted_exec.streaming.http.responses import CLIENT_LEFT, outcome, respond
from twisted_exec.streaming.http.routes import split_path
from twisted_exec.streaming.http.session_requests import FurtherRequest, answer_all
from twisted_exec.streaming.http.site import Request
from twisted_exec.streaming.http.upgrade_server import requested_protocol
from twisted_exec.streaming.interfaces import (
    COMPLETED,
    UID_HEADER,
    USER_HEADER,
    USER_LEFT,
    IAttachment,
    IResumableAttachment,
)
from twisted_exec.streaming.rejoinable_transport import Offer, StreamOwner
from twisted_exec.streaming.remotecommand.carriers import choose_protocol
from twisted_exec.streaming.remotecommand.resumable import Resumption as StreamResumption
from twisted_exec.streaming.remotecommand.serving import serve
from twisted_exec.streaming.sessions.guard import STOPPING
from twisted_exec.streaming.sessions.hop_messages import (
    forwarded_session_id,
    forwarded_terms,
    parse_ending,
    parse_terms_query,
    terms_headers,
)
from twisted_exec.streaming.sessions.openings import Openings
from twisted_exec.streaming.sessions.registry import Session as LiveSession
from twisted_exec.streaming.sessions.resume_headers import (
    RequestedResumption,
    rejoin_headers,
    requested_rejoin,
    requested_resumption,
    resume_headers,
)
from twisted_exec.streaming.subject import Subject
from twisted_exec.wire.channel import V4, V5
from twisted_exec.wire.rejoin import Rejoin
from twisted_exec.wire.resume import Resume
from twisted_exec.wire.session_terms import Terms
from twisted_exec.wire.upgrade import WEBSOCKET

PROGRAM = "exec-runtime"
SCREEN = "screen"
_WAIT_SECONDS = 600.0
_Prepared = TypeVar("_Prepared")

Attach = Callable[[Grant], "tuple[Subject, IAttachment]"]
"""
Returns the names of the machine of a grant (namespace, machine, uid, resource) and a new attachment, or
raises :class:`~twisted_exec.api.status.APIError`.
"""


ReadLog = Callable[[Grant], "tuple[Subject, IReadableJournal]"]
"""Returns the names of the machine of a grant and its journal, or raises."""
_PROTOCOLS = (V5, V4)


class StreamRoutes(ServerRoutes):
    """The routes of a runtime with machines of its own."""

    def __init__(
        self,
        server: TokenServer,
        cache: RequestCache,
        attach: Attach,
        kept_sessions: KeptSessions,
        read_log: ReadLog | None = None,
        screens: Screens | None = None,
        recordings: Callable[[], ConsoleRecordings] | None = None,
    ) -> None:
        super().__init__(server)
        self._cache, self._sessions = cache, server.sessions
        self._rejoining = Rejoining(server.streams, server.sessions)
        # In turns also behind poollets of other makes, which send all requests at once.
        self._turns = Openings(at_once=1, per_user=1, pace_seconds=0)
        self._resuming = Resuming(kept_sessions, attach)
        self._routes.add(["GET", "POST"], "/exec/{token}", self._exec)
        self._routes.add(["DELETE"], "/exec/{token}", self._end)
        self._routes.add(["PATCH"], "/exec/{token}", self._limit)
        if read_log is not None:
            self._routes.add(["GET"], "/log/{token}", partial(self._read, read_log))
        if read_log is not None and screens is not None:
            self._routes.add(["GET"], "/screen/{token}", partial(self._show, read_log, screens))
        if recordings is not None:
            self._routes.add(["GET"], "/recording/{token}", partial(self._play, recordings))

    async def _exec(self, request: Request, names: Mapping[str, str]) -> None:
        with self._audit_refusals(request):
            protocol = choose_protocol(request)
            origins = self._server.listening.allowed_origins
            refuse_other_sites(request, origins)
            terms = forwarded_terms(terms_headers(request))
            is_offered, rejoin = requested_rejoin(rejoin_headers(request))
            resumption = resumption_of(request, protocol)
            # Last: an incomplete handshake (a probe, a link preview, a client with other protocols)
            # must not use the token up.
            reservation = self._reserve(request, names["token"], EXEC)
        if rejoin is not None:
            self._rejoin(request, reservation, rejoin, terms)
        else:
            await self._wait(request, reservation)
            self._open(request, reservation, terms, resumption, is_offered)

    async def _wait(self, request: Request, reservation: TokenReservation) -> None:
        user, clock = request.subject.user, self._server.clock
        try:
            await self._turns.begin("", user, clock, _WAIT_SECONDS)
        except (APIError, CancelledError) as problem:
            reservation.release()
            self._sessions.refused(request.subject, *outcome(problem))
            raise
        clock.callLater(0, self._turns.end, "", user)

    def _rejoin(
        self, request: Request, reservation: TokenReservation, rejoin: Rejoin, terms: Terms
    ) -> None:
        subject = request.subject
        try:
            self._rejoining.run(request, subject, rejoin, reservation, terms)
        except APIError as error:
            reservation.release()
            self._sessions.refused(subject, error.code, error.message)
            raise
        except ConnectionDone:
            reservation.release()

    async def _read(self, read_log: ReadLog, request: Request, names: Mapping[str, str]) -> None:
        def prepare(grant: Grant) -> tuple[Subject, LogStream]:
            machine, journal = read_log(grant)
            options = parse(request.args, machine.machine)
            return machine, LogStream(request, journal, options, machine.machine)

        live, stream = self._begin_reading(request, names["token"], LOG, prepare)
        await stream.run(live)

    async def _show(
        self, read_log: ReadLog, screens: Screens, request: Request, names: Mapping[str, str]
    ) -> None:
        def prepare(grant: Grant) -> tuple[Subject, Callable[[], Coroutine[Any, Any, bytes]]]:
            machine, journal = read_log(grant)
            options = parse_screen(request.args, machine.machine)
            return machine, partial(screens.render, journal, options, machine.uid)

        live, render = self._begin_reading(request, names["token"], SCREEN, prepare)
        rendering = Deferred.fromCoroutine(render())
        live.when_called_off(lambda ending: rendering.cancel())
        try:
            body = await rendering
        except CancelledError as left:
            if live.ending is None or request.gone:
                live.failed(left)
                raise
            stopped = ServiceUnavailable(live.ending.message or live.ending.reason)
            live.failed(stopped)
            raise stopped from None
        except Exception as problem:
            live.failed(problem)
            raise
        # The API server, which knows the form, sets the user's type.
        respond(request, 200, body, "text/plain")
        live.over(COMPLETED, bytes_to_user=len(body))

    async def _play(
        self,
        recordings: Callable[[], ConsoleRecordings],
        request: Request,
        names: Mapping[str, str],
    ) -> None:
        def prepare(grant: Grant) -> tuple[Subject, str]:
            facts = recordings().facts(grant.machine_id)
            machine = facts.machine
            subject = Subject(
                session="",
                namespace=machine.get("namespace", ""),
                machine=machine.get("name", ""),
                uid=facts.key,
            )
            return subject, facts.uid

        live, uid = self._begin_reading(request, names["token"], RECORDING, prepare, RECORDING)
        try:
            stored = recordings().storing.text(recordings().facts(uid))
            if stored is not None:
                await StoredStream(request, uid, stored).run(live)
            else:
                await RecordingStream(request, uid, partial(recordings().read, uid)).run(live)
        except Exception as problem:
            live.failed(problem)
            raise

    def _begin_reading(
        self,
        request: Request,
        token: str,
        subresource: str,
        prepare: Callable[[Grant], tuple[Subject, _Prepared]],
        purpose: str = LOG,
    ) -> tuple[LiveSession, _Prepared]:
        request.learn(subresource=subresource)
        with self._audit_refusals(request):
            if request.method != b"GET":
                raise MethodNotAllowed(f"a {subresource} is read with GET")
            reservation = self._reserve(request, token, purpose)
            try:
                machine, prepared = prepare(reservation.grant)
            except Exception:
                reservation.release()
                raise
        request.learn(**_facts_of(machine))
        try:
            live = self._sessions.open(request.subject)
        except APIError:
            reservation.release()
            raise
        reservation.commit(live)
        live.on_over.append(reservation.ended)
        return live, prepared

    @contextmanager
    def _audit_refusals(self, request: Request) -> Iterator[None]:
        request.learn(session=forwarded_session_id(request) or request.subject.session)
        try:
            yield
        except Exception as problem:
            self._sessions.refused(request.subject, *outcome(problem))
            raise

    def _reserve(self, request: Request, token: str, purpose: str) -> TokenReservation:
        user, uid = header_text(request, USER_HEADER), header_text(request, UID_HEADER)
        request.learn(user=user, uid=uid)
        reasons = request.requestHeaders.getRawHeaders(REASON_HEADER, ())
        request.learn(reason=reason_of_headers(reasons))
        reservation = self._cache.reserve(token, user=user, machine_uid=uid, purpose=purpose)
        grant, claimed = reservation.grant, request.subject
        request.learn(
            session=grant.session or claimed.session,
            user=grant.user or claimed.user,
            uid=grant.machine_uid or claimed.uid,
        )
        return reservation

    def _open(
        self,
        request: Request,
        reservation: TokenReservation,
        terms: Terms,
        resumption: RequestedResumption | None,
        is_offered: bool,
    ) -> None:
        grant = reservation.grant
        try:
            machine, attachment = self._resuming.find(request.subject, grant, resumption)
        except Exception as problem:
            reservation.release()
            self._sessions.refused(request.subject, *outcome(problem))
            raise
        request.learn(**_facts_of(machine))
        subject = request.subject
        resumes = "" if resumption is None else resumption.session
        try:
            live = self._sessions.open(subject, ceiling=terms, resumes=resumes)
        except APIError:
            reservation.release()
            raise
        if isinstance(attachment, KeptSession):
            live.resumable_seconds = attachment.seconds
            beginning = attachment.connect(
                subject.session,
                live,
                None if resumption is None else resumption.resume,
                0 if resumption is None else resumption.credit,
            )
            self._serve_for(reservation, request, attachment.attachment, live, beginning)
            return
        owner = StreamOwner(subject.session, subject.user, subject.uid)
        offer = self._server.streams.offered(owner) if is_offered and subject.user else None
        self._serve_for(reservation, request, attachment, live, offer=offer)

    def _serve_for(
        self,
        reservation: TokenReservation,
        request: Request,
        attachment: IAttachment,
        live: LiveSession,
        resumption: StreamResumption | None = None,
        offer: Offer | None = None,
    ) -> None:
        reservation.commit(live)  # first, because the session may end before serve returns
        live.on_over.append(reservation.ended)
        try:
            serve(
                request,
                attachment,
                session=live.id,
                user=live.subject.user,
                clock=self._server.clock,
                entry=live,
                terms=live.terms,
                resumption=resumption,
                offer=offer,
            )
        except ConnectionDone:
            reservation.release()
            live.over("client closed", code=CLIENT_LEFT)
        except Exception as problem:
            reservation.release()
            live.failed(problem)
            raise

    async def _end(self, request: Request, names: Mapping[str, str]) -> None:
        await answer_all(request, self._end_one, self._server.clock)

    def _end_one(self, request: Request | FurtherRequest) -> None:
        session, ending = parse_ending(request.args)
        stream = self._stream(request, session)
        if ending.reason == USER_LEFT:
            stream.cut()  # the user reads no reason and does not come back
        else:
            stream.end(ending)

    async def _limit(self, request: Request, names: Mapping[str, str]) -> None:
        await answer_all(request, self._limit_one, self._server.clock)

    def _limit_one(self, request: Request | FurtherRequest) -> None:
        session, terms = parse_terms_query(request.args)
        self._stream(request, session).limit_to(terms)

    def _stream(self, request: Request | FurtherRequest, session: str) -> LiveStream:
        return self._cache.stream(
            _token_of(request),
            session=session,
            user=header_text(request, USER_HEADER),
            machine_uid=header_text(request, UID_HEADER),
        )


def _token_of(request: Request | FurtherRequest) -> str:
    segments = split_path(request.path)
    if len(segments) != 2 or segments[0] != "exec":
        raise NotFound("exec", "")
    return segments[1]


def _facts_of(machine: Subject) -> dict[str, str]:
    return {
        "namespace": machine.namespace,
        "machine": machine.machine,
        "uid": machine.uid,
        "resource": machine.resource,
    }


def resumption_of(request: Request, protocol: str) -> RequestedResumption | None:
    """
    Read what the client says about resuming sessions.

    :return: ``None`` if it cannot resume, or if sessions over this protocol cannot be resumed.
    :raises BadRequest: the header is not valid, or resumes a session over such a protocol.
    """
    resumption = requested_resumption(resume_headers(request))
    if resumption is None or (requested_protocol(request) == WEBSOCKET and protocol in _PROTOCOLS):
        return resumption
    if resumption.resume is not None:
        raise BadRequest(f"a session is resumed over a WebSocket with {' or '.join(_PROTOCOLS)}")
    return None


class Resuming:
    """Finds attachments for the streams of clients."""

    def __init__(
        self, kept_sessions: KeptSessions, attach: Callable[[Grant], tuple[Subject, IAttachment]]
    ) -> None:
        self._kept_sessions, self._attach = kept_sessions, attach

    def find(
        self, claimed: Subject, grant: Grant, resumption: RequestedResumption | None
    ) -> tuple[Subject, IAttachment | KeptSession]:
        """
        Find the machine and the attachment for a request.

        :raises APIError: as of ``attach``, or the session cannot be resumed.
        """
        user = grant.user or claimed.user
        if resumption is not None and resumption.resume is not None:
            session = self._resumed(user, grant, resumption.resume)
            session.attachment.check(resumption.resume.position)
            return session.subject, session
        machine, attachment = self._attach(grant)
        can_resume = resumption is not None and user and self._kept_sessions.seconds
        if can_resume and IResumableAttachment.providedBy(attachment):
            return machine, self._kept_sessions.new(user, _bound(grant), machine, attachment)
        return machine, attachment

    def _resumed(self, user: str, grant: Grant, resume: Resume) -> KeptSession:
        sessions, bound = self._kept_sessions, _bound(grant)
        if session := sessions.find(resume, user, bound):
            return session
        oldest = sessions.find_earlier(resume, user, bound) if user else None
        if oldest is None:
            raise sessions.refusal(user)
        machine, attachment = self._attach(grant)
        if not IResumableAttachment.providedBy(attachment):
            raise sessions.refusal(user)
        if attachment.oldest.epoch != oldest.epoch:
            # Another journal: the machine was created again, and its user has typed for the
            # earlier machine.
            raise sessions.refusal(user)
        return sessions.from_earlier(resume, user, bound, machine, attachment, oldest)


def _bound(grant: Grant) -> str:
    return grant.machine_uid or grant.machine_id


class StreamServer(TokenServer):
    """
    Serves consoles, logs, screens and recordings for tokens.

    :param read_log: see :data:`ReadLog`; ``None`` disables logs and screens.
    """

    def __init__(
        self,
        listening: Listening,
        attach: Attach,
        cache: RequestCache,
        audit: IAuditSink,
        reactor: Any,
        *,
        drain_seconds: float = 1.5,
        limits: SessionLimits | None = None,
        read_log: ReadLog | None = None,
        rejoin_seconds: int = REJOIN_SECONDS,
        resume_seconds: int = RESUME_SECONDS,
        screens: Screens | None = None,
        recordings: Callable[[], ConsoleRecordings] | None = None,
    ) -> None:
        self._recordings = recordings
        self._attach, self._cache, self._read_log = attach, cache, read_log
        self._resume_seconds, self._screens = resume_seconds, screens
        super().__init__(
            listening,
            audit,
            reactor,
            hop="runtime",
            program=PROGRAM,
            drain_seconds=drain_seconds,
            limits=limits,
            rejoin_seconds=rejoin_seconds,
        )

    def make_routes(self) -> ServerRoutes:
        self.sessions.latency = LatencyMetrics(self.registry)
        self.kept_sessions = KeptSessions(self._reactor, self._resume_seconds, self.registry)
        return StreamRoutes(
            self,
            self._cache,
            self._attach,
            self.kept_sessions,
            self._read_log,
            self._screens,
            self._recordings,
        )

    async def _stop(self) -> None:
        await super()._stop()
        self.kept_sessions.close(STOPPING)
