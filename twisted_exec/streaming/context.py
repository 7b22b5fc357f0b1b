"""
One request on its way through a program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import Any

from twisted_exec.api.declared_reasons import reason_of_query
from twisted_exec.api.status import APIError
from twisted_exec.api.users import User
from twisted_exec.streaming.evidence import SessionEvidence
from twisted_exec.streaming.http.responses import naming, outcome
from twisted_exec.streaming.http.site import Request
from twisted_exec.streaming.sessions.registry import Sessions
from twisted_exec.streaming.sessions.resume_headers import (
    RequestedResumption,
    requested_resumption,
    resume_headers,
)
from twisted_exec.streaming.subject import Subject
from twisted_exec.wire.rejoin import OFFER
from twisted_exec.wire.session_terms import FULL, Terms
from twisted_exec.wire.stream_options import StreamOptions


class RequestContext:
    """
    The user, the target and the options of one request.

    :param target: the object that the request is about.
    :param values: the variable segments of the path, by name.
    :param segments: all segments of the path, decoded.
    :ivar caller: the user or proxy that acts for ``user``.
    :ivar ceiling: the terms that the previous hop holds the session to.
    :ivar has_session: a session was opened, which records its own end.
    :ivar recorded_input: the input that is recorded; may be empty.
    :ivar user: as whom the request is answered; set by the gate.
    :ivar resume_headers: the request's, if the gate has taken them out of it.
    :ivar rejoin: what a previous hop says about rejoining the stream: the value of its header.
    :ivar requested_recording: the input that the user wants to be recorded; empty without such a wish.
    """

    user: User
    caller: User | None = None
    evidence: SessionEvidence | None = None
    has_session = False
    ceiling: Terms = FULL
    resume_headers: Sequence[bytes] | None = None
    rejoin: bytes = b""
    requested_recording: str = ""
    recorded_input: str = ""

    def __init__(
        self,
        request: Request,
        *,
        target: Any = None,
        values: Mapping[str, str] | None = None,
        segments: Sequence[str] = (),
    ) -> None:
        self.request, self.target = request, target
        self.values, self.segments = values or {}, segments
        self._on_unopened: tuple[Callable[[BaseException], None], ...] = ()
        self._on_opened: tuple[Callable[[], None], ...] = ()

    @cached_property
    def options(self) -> StreamOptions:
        return StreamOptions.of(self.request.args)

    @cached_property
    def resumption(self) -> RequestedResumption | None:
        """
        The request's header to resume sessions, or ``None``.

        :raises BadRequest: the header is not valid.
        """
        values = self.resume_headers
        return requested_resumption(resume_headers(self.request) if values is None else values)

    @property
    def continues_session(self) -> bool:
        """
        Return whether the request resumes a session, or rejoins a stream.

        :raises BadRequest: the header is not valid.
        """
        resumes = self.resumption is not None and bool(self.resumption.session)
        return resumes or self.rejoin.strip() not in (b"", OFFER.encode())

    @property
    def subject(self) -> Subject:
        """The session's facts for audit and metrics known so far."""
        return self.request.subject

    def learn(self, **facts: str) -> None:
        """See :meth:`~twisted_exec.streaming.http.site.Request.learn`."""
        self.request.learn(**facts)

    def only_observe(self) -> None:
        """Take no input, whatever the query says: the observers' path and screens have none."""
        self.options = replace(self.options, read_only=True, force=False)

    def learn_reason(self) -> None:
        """
        Add the reason of the query to the subject, unless that has one.

        :raises BadRequest: the reason is not valid.
        """
        if not self.subject.reason and (reason := reason_of_query(self.request.args)):
            self.learn(reason=reason)

    def call_unopened(self, function: Callable[[BaseException], None]) -> None:
        """Call a function with the error if the session is not opened after all."""
        self._on_unopened += (function,)

    def call_opened(self, function: Callable[[], None]) -> None:
        """Call a function once the session is open."""
        self._on_opened += (function,)

    def opened(self) -> None:
        """Take note that the session is open."""
        for function in self._on_opened:
            function()

    def unopened(self, problem: BaseException) -> None:
        """Take note that the session is not opened."""
        for function in self._on_unopened:
            function(problem)

    @property
    def is_identified(self) -> bool:
        """Return whether the gate has found the user."""
        return "user" in vars(self)

    @property
    def via(self) -> str:
        """The resource and subresource of the path, such as ``pods/attach``."""
        *_, resource, _name, subresource = ["", "", "", *self.segments]
        return f"{resource}/{subresource}"


@contextmanager
def on_record(
    sessions: Sessions, context: RequestContext, *, names_object_to_unknown: bool = True
) -> Iterator[None]:
    """
    Audit a request for a session: record its refusal, and name its object in the message.

    :param names_object_to_unknown: name the object to unknown users, too.
    """
    try:
        yield
    except BaseException as problem:
        if not context.has_session:
            sessions.refused(context.subject, *outcome(problem))
        if isinstance(problem, APIError) and (names_object_to_unknown or context.is_identified):
            raise naming(problem, context.subject) from None
        raise
