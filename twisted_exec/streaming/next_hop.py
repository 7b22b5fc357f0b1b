"""
Requests to the next hop about an open session: end it, or hold it to other terms.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure

from twisted_exec.streaming.http.control import ControlRequests
from twisted_exec.streaming.http.upgrade_client import UpgradeRequest
from twisted_exec.streaming.interfaces import POWERED_OFF, SHUTTING_DOWN, Ending, Location
from twisted_exec.streaming.sessions.hop_messages import ending_query
from twisted_exec.streaming.sessions.session import Session
from twisted_exec.streaming.sessions.terms import terms_query
from twisted_exec.wire.session_terms import Terms


class Stream(Protocol):
    """A stream whose user can be paused, such as :class:`~twisted_exec.streaming.splice.Splice`."""

    def pause_user(self) -> None:
        """Pass nothing from the user on."""

    def resume_user(self) -> None:
        """Pass everything from the user on, beginning with what was held back."""


class NextHop:
    """
    The next hop of one open session.

    :param session_id: the session's id there.
    :param change_seconds: longest wait for the answer to changed terms.
    """

    __slots__ = (
        "_change",
        "_change_seconds",
        "_clock",
        "_control",
        "_end",
        "_location",
        "_session",
        "_session_id",
    )

    def __init__(
        self,
        control: ControlRequests,
        clock: IReactorTime,
        session: Session,
        location: Location,
        session_id: str,
        change_seconds: float,
    ) -> None:
        self._control, self._clock = control, clock
        self._session, self._location, self._session_id = session, location, session_id
        self._change_seconds = change_seconds
        self._change: Deferred[None] | None = None
        self._end: Deferred[None] | None = None

    def end(self, ending: Ending, seconds: float) -> Deferred[None]:
        """
        Ask the next hop to end the session.

        If the user may not go on, this does not wait for a silent hop: it fails with
        :class:`~twisted_exec.streaming.http.control.Silent`.

        :param seconds: longest wait for the answer.
        :return: fires when the next hop has agreed; fails if it refuses or cannot be reached.
        """
        query = ending_query(self._session_id, ending)
        awaits_silence = ending.reason in (POWERED_OFF, SHUTTING_DOWN)
        self._end = Deferred.fromCoroutine(self._send(b"DELETE", query, seconds, awaits_silence))
        return self._end

    def hold_to(
        self, stream: Stream, terms: Terms, on_refusal: Callable[[Terms, Failure], None]
    ) -> None:
        """
        Pass nothing from the user on until the next hop has confirmed the terms.

        :param on_refusal: called if the next hop refuses or is silent; the user stays paused.
        """
        stream.pause_user()
        if self._change is None:  # otherwise behind the answer: requests may overtake each other
            self._send_terms(stream, terms, on_refusal)

    def _send_terms(
        self, stream: Stream, terms: Terms, on_refusal: Callable[[Terms, Failure], None]
    ) -> None:
        query = terms_query(self._session_id, terms)
        request = Deferred.fromCoroutine(
            self._send(b"PATCH", query, self._change_seconds, awaits_silence=False)
        )
        change = self._change = request.addTimeout(self._change_seconds, self._clock)

        def confirmed(_: object) -> None:
            self._change = None
            if self._session.ending is not None:
                return
            if self._session.terms != terms:  # changed again
                self._send_terms(stream, self._session.terms, on_refusal)
            else:
                stream.resume_user()

        def refused(failure: Failure) -> None:
            if self._change is not change:  # cancelled
                return
            self._change = None
            if self._session.ending is None:
                on_refusal(terms, failure)

        change.addCallbacks(confirmed, refused)

    def cancel(self) -> None:
        """Give up the requests that wait for an answer."""
        change, self._change = self._change, None
        for request in (change, self._end):
            if request is not None:
                request.cancel()

    async def _send(
        self, method: bytes, query: bytes, seconds: float, awaits_silence: bool = True
    ) -> None:
        """:raises Exception: the next hop refuses, or cannot be reached."""
        if self._location.later is not None:
            self._location = await self._location.later()
        location = self._location
        head = UpgradeRequest(method, location.path_with(query), location.host, location.headers)
        await self._control.send(location.endpoints, head, seconds, awaits_silence=awaits_silence)
