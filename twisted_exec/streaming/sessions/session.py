"""
One session of a hop: its terms, its stream and its end.

A session that this side ends has a reason, which a hop in the middle passes to the next one
(:mod:`.hop_messages`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from twisted_exec.observe.audit import AuditSession
from twisted_exec.streaming.interfaces import (
    RESUMED,
    REVOKED,
    Ending,
    Subject,
)
from twisted_exec.wire.session_terms import FULL, Terms, stricter
from twisted_exec.wire.stream_options import StreamOptions

if TYPE_CHECKING:
    from twisted_exec.streaming.sessions.registry import Sessions


@dataclass(frozen=True)
class ClientInfo:
    """
    The user's client, and the request that opened the stream.

    :param address: the host that the connection is from.
    :param protocol: the upgrade and the subprotocol of the stream.
    :param agent: the client's ``User-Agent``; unverified.
    :param via: the requested subresource, as ``RESOURCE/SUBRESOURCE``.
    """

    address: str = ""
    protocol: str = ""
    agent: str = ""
    via: str = ""
    options: StreamOptions = StreamOptions()


def _no_bytes() -> tuple[int, int]:
    return 0, 0


def _no_transports() -> tuple[object, object]:
    return None, None


class Session:
    """
    One session; :meth:`Sessions.open` creates it.

    :ivar ending: the reason that this side gave for ending the session, if it did.
    :ivar evidence: the credentials and the decision that allowed the session, for as long as it
        lives; ``None`` when the session is not reviewed.
    :ivar expires: the end of the credentials, in seconds since 1970.
    :ivar client_info: the user's client; empty unless there is a :attr:`Sessions.watcher`.
    :ivar resumes: the id of the session that the user wants to resume, or has resumed; empty if none.
    :ivar resumable_seconds: how long the next hop waits for the user after a loss of the connection;
        0 if the session cannot be resumed.
    :ivar is_rejoined_by_hop: the hop before this one goes on with the session over another connection
        if this hop is lost.
    :ivar waits_for_machine: the machine's end lets the session wait while the machine is off, or ends
        it.
    :ivar is_lost: the connection was lost, and the session waits for its user; for
        :meth:`Watcher.ended`.
    :ivar is_superseded: the user has resumed the session over another connection.
    """

    def __init__(
        self,
        sessions: Sessions,
        subject: Subject,
        audit: AuditSession,
        evidence: object = None,
        terms: Terms = FULL,
        ceiling: Terms = FULL,
        resumes: str = "",
    ) -> None:
        self.subject, self.evidence = subject, evidence
        self.resumes, self.resumable_seconds = resumes, 0
        self.is_superseded = self.is_lost = self.is_rejoined_by_hop = False
        self.waits_for_machine = False
        self._why = ""  # the session was cut
        self.expires: float = getattr(evidence, "expires", math.inf)
        self.ending: Ending | None = None
        self._own_terms, self._ceiling = terms, ceiling
        self._highest = self.terms.right
        self.client_info = ClientInfo()
        self.counts: Callable[[], tuple[int, int]] = _no_bytes
        """Bytes to the machine and to the user so far."""
        self.transports: Callable[[], tuple[object, object]] = _no_transports
        """The transports to the user and to the machine; ``None`` for one that does not exist."""
        self.on_over: Callable[[], None] | None = None
        """Is called once the session is over."""
        self._sessions, self._audit = sessions, audit
        self._waits: Callable[[Ending], None] | None = None
        self._end: Callable[[Ending], None] | None = None
        self._cut: Callable[[], None] | None = None
        self._supersede: Callable[[], None] | None = None
        self._hold_to: Callable[[Terms], None] | None = None
        self._changed = False  # the terms changed before there was a stream
        self._over = False

    def wait(self, end: Callable[[Ending], None]) -> None:
        """
        Wait for a stream, possibly for hours.

        :param end: called when the session must end before it has a stream.
        """
        self._waits = end
        if self.ending is not None and not self._over:
            end(self.ending)

    def carry(
        self,
        end: Callable[[Ending], None],
        cut: Callable[[], None],
        counts: Callable[[], tuple[int, int]] = _no_bytes,
        hold_to: Callable[[Terms], None] | None = None,
        supersede: Callable[[], None] | None = None,
        transports: Callable[[], tuple[object, object]] = _no_transports,
    ) -> None:
        """
        Take note that the stream is up, and resumes the session that the request named.

        :param end: ends the stream in the protocol's order, with the reason; bounded in time.
        :param cut: ends the stream now.
        :param counts: returns the bytes to the machine and to the user so far.
        :param hold_to: changes the terms of the stream; ``None`` if the stream cannot change them.
        :param supersede: ends the stream soon, because its user has resumed the session; ``None`` if
            that cannot happen.
        :param transports: see :attr:`transports`.
        """
        if self._over:
            return  # a connection was lost while the stream was being set up
        self._waits = None
        self._end, self._cut, self.counts, self.transports = end, cut, counts, transports
        self._hold_to, self._supersede = hold_to, supersede
        self._sessions.metrics.opened()
        if self._sessions.watcher is not None:
            self._sessions.watcher.began(self)
        if self.resumes:
            self._sessions.resumed(self)
        if self._sessions.on_carried is not None:
            self._sessions.on_carried(self)
        if self.ending is not None:
            end(self.ending)
        elif self._changed:
            self._apply_terms()

    def end(self, ending: Ending) -> None:
        """End the session as soon as it has a stream that can carry the reason; the first call counts."""
        if self.ending is not None or self._over:
            return
        self.ending = ending
        end = self._end or self._waits
        if end is not None:
            end(ending)

    @property
    def terms(self) -> Terms:
        """The stricter ones of the terms of this hop, and of the hop before it."""
        return stricter(self._own_terms, self._ceiling)

    @property
    def is_resumable(self) -> bool:
        """Return whether the user can resume the session after a loss of the connection."""
        return bool(self.resumable_seconds) and self.ending is None

    @property
    def is_movable(self) -> bool:
        """Return whether the session goes on over another connection when this hop cuts it."""
        return self.is_resumable or (self.is_rejoined_by_hop and self.ending is None)

    def hold_to(self, terms: Terms) -> None:
        """
        Change the terms that this hop holds the session to.

        A stream that cannot change them ends.
        """
        self._change(terms, self._ceiling)

    def limit_to(self, ceiling: Terms) -> None:
        """Change the terms that the hop before holds the session to; as :meth:`hold_to`."""
        self._change(self._own_terms, ceiling)

    def _change(self, own: Terms, ceiling: Terms) -> None:
        before = self.terms
        self._own_terms, self._ceiling = own, ceiling
        self._highest = max(self._highest, self.terms.right)
        if self.terms == before or self.ending is not None or self._over:
            return
        if self._end is None:
            self._changed = True
        else:
            self._apply_terms()

    def _apply_terms(self) -> None:
        if self._hold_to is not None:
            self._hold_to(self.terms)
        else:
            self.end(Ending(REVOKED, "the terms of this session have changed: open it again"))

    def cut(self, why: str = "") -> None:
        """
        End the session now, without a reason for the user.

        :param why: the reason for the audit record.
        """
        if self._cut is not None and not self._over:
            self._why = why
            self._cut()

    def supersede(self) -> None:
        """Take note that the user has resumed the session over another connection."""
        if self._supersede is None or self.is_superseded:
            return
        self._sessions.uncount(self)
        self.is_superseded = True
        self._supersede()

    def echoed(self, seconds: float) -> None:
        """Take note of the time from input of the session to the next output of the machine."""
        if self._sessions.latency is not None:
            self._sessions.latency.echoed(seconds)

    def pinged(self, seconds: float) -> None:
        """Take note of the time of a ping to the client and back."""
        if self._sessions.latency is not None:
            self._sessions.latency.pinged(seconds)

    def over(
        self,
        reason: str,
        *,
        code: int | None = None,
        bytes_to_machine: int = 0,
        bytes_to_user: int = 0,
        is_lost: bool = False,
    ) -> None:
        """
        Take note that the session is over.  Repeated calls do nothing.

        :param reason: for the audit record, unless this side has given an :attr:`ending`.
        :param code: the HTTP status of a session that never had a stream; the reason is that of the answer.
        :param is_lost: the connection was lost; the session waits for its user at the machine's end.
        """
        if self._over:
            return
        self._over, self.is_lost = True, is_lost
        if code is not None:
            pass
        elif self.ending is not None:
            reason = self.ending.reason
        elif self.is_superseded:
            reason = RESUMED
        else:
            reason = self._why or reason
        counts = {"bytes_to_machine": bytes_to_machine, "bytes_to_user": bytes_to_user}
        opened = self._end is not None and self.subject.subresource not in ("log", "screen")
        self._audit.end(
            reason,
            code=code,
            right=self._highest.verb if opened else "",
            policy=self.terms.policy,
            resumes=self.resumes if self._end is not None else "",
            **counts,
        )
        if self._end is not None:
            self._sessions.metrics.ended(**counts)
            if self._sessions.watcher is not None:
                self._sessions.watcher.ended(self)
        elif code is not None:
            self._sessions.metrics.refused(code)
        if self.resumes and self._end is None:
            self._sessions.not_resumed(self)
        on_over, self.on_over = self.on_over, None
        if on_over is not None:
            on_over()
        self._end = self._cut = self._waits = self._hold_to = self._supersede = None
        self.evidence = None  # credentials hold the memory of the connection that they came by
        self.counts, self.transports = _no_bytes, _no_transports
        self._sessions.forget(self)
