"""
One request on its way through a program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

from twisted_exec.api.declared_reasons import reason_of_query
from twisted_exec.api.status import APIError
from twisted_exec.api.users import User
from twisted_exec.streaming.evidence import SessionEvidence
from twisted_exec.streaming.http.responses import naming, outcome
from twisted_exec.streaming.http.site import Request
from twisted_exec.streaming.sessions.registry import Session, Sessions
from twisted_exec.streaming.sessions.resume_headers import (
    RequestedResumption,
    requested_resumption,
    resume_headers,
)
from twisted_exec.streaming.subject import Subject
from twisted_exec.wire.rejoin import OFFER
from twisted_exec.wire.session_terms import FULL, Terms
from twisted_exec.wire.stream_options import StreamOptions

_NEW_STREAMS = (b"", OFFER.encode("ascii"))
"""Values of the header for rejoining in the request for a stream that is not open."""


@dataclass(frozen=True)
class RequestIdentity:
    """
    As whom a request is answered.

    :param user: whose rights count.
    :param caller: the user or proxy that acts for ``user``.
    :param rejoin: what a trusted previous hop says about rejoining the stream: the value of its header.
    """

    user: User
    caller: User | None = None
    rejoin: bytes = b""


class RequestContext:
    """
    The user, the target and the options of one request.

    The request, its target and its path are known from the beginning. The gate adds the identity, the
    evidence and the ceiling; admissions change the options for paths and commands that differ from the
    query.

    :param target: the object that the request is about.
    :param values: the variable segments of the path, by name.
    :param segments: all segments of the path, decoded.
    :ivar identity: ``None`` before the gate has found the user, and in servers without a gate.
    :ivar evidence: for reviews of the session; the gate adds the permissions that an admission has checked.
    :ivar ceiling: the terms that the previous hop holds the session to. A server without a gate sets it in
        its admission.
    :ivar demanded_input: the input whose recording the user demands in a Pod's command; the admission of
        Pods sets it. Empty without such a demand, and for a demand in the query.
    :ivar has_session: the session of the request was opened, or the registry has recorded its refusal.
    """

    identity: RequestIdentity | None = None
    evidence: SessionEvidence | None = None
    ceiling: Terms = FULL
    demanded_input: str = ""

    def __init__(
        self,
        request: Request,
        *,
        target: Any = None,
        values: Mapping[str, str] | None = None,
        segments: Sequence[str] = (),
    ) -> None:
        self.request: Final = request
        self.target: Final = target
        self.values: Final = values or {}
        self.segments: Final = segments
        # The gate takes the header out of the request.
        self._resume_headers: Final = resume_headers(request)
        self.has_session = False
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
        return requested_resumption(self._resume_headers)

    @property
    def continues_session(self) -> bool:
        """
        Return whether the request resumes a session, or rejoins a stream.

        :raises BadRequest: the header is not valid.
        """
        resumes = self.resumption is not None and bool(self.resumption.session)
        return resumes or self.rejoin.strip() not in _NEW_STREAMS

    @property
    def subject(self) -> Subject:
        """The session's facts for audit and metrics known so far."""
        return self.request.subject

    def learn(self, **facts: str) -> None:
        """See :meth:`~twisted_exec.streaming.http.site.Request.learn`."""
        self.request.learn(**facts)

    @property
    def user(self) -> User:
        """As whom the request is answered, once the gate has found the user."""
        assert self.identity is not None
        return self.identity.user

    @property
    def caller(self) -> User | None:
        """The user or proxy that acts for :attr:`user`."""
        return None if self.identity is None else self.identity.caller

    @property
    def rejoin(self) -> bytes:
        """See :class:`RequestIdentity`."""
        return b"" if self.identity is None else self.identity.rejoin

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

    def open_session(
        self, sessions: Sessions, terms: Terms = FULL, ceiling: Terms = FULL, resumes: str = ""
    ) -> Session:
        """Open the session of this request, which records its own end; as :meth:`Sessions.open`."""
        self.has_session = True
        return sessions.open(self.subject, self.evidence, terms, ceiling, resumes)

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
        return self.identity is not None

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
