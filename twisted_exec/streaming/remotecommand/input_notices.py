"""
The notices about input that was not carried out: keys, messages to other users, BREAK, and requests for a role.
"""

from __future__ import annotations

from math import inf

from twisted.internet.interfaces import IReactorTime

from twisted_exec.wire.marks import Notice, NoticeKind, NoticeRole, not_sent
from twisted_exec.wire.session_terms import MAY_ONLY_OBSERVE

TELL_AGAIN_SECONDS = 10.0
"""A user who goes on so long after a notice gets it again."""

READ_ONLY = Notice("you are an observer; what you type is not sent")
"""To a user who types in a ``readOnly=true`` session."""

MAY_OBSERVE = not_sent(MAY_ONLY_OBSERVE, NoticeRole.DENIED)
"""To a user without the right to drive who types."""

MAY_NOT_SAY = Notice(f"your message was not sent: {MAY_ONLY_OBSERVE}", NoticeKind.RECEIPT)
"""To a user without the right to drive who sends a message."""

NO_MESSAGES = Notice(
    "your message was not sent: this console passes no messages on", NoticeKind.RECEIPT
)

NO_BREAK = Notice("this console has no BREAK")

NO_ROLES = Notice("this console has no roles: whoever is here may type")


class ToldNotices:
    """When a user last had each of these notices."""

    def __init__(self, clock: IReactorTime) -> None:
        self._clock, self._told_at = clock, dict[Notice, float]()

    def allow(self, notice: Notice) -> bool:
        """Take note that the user gets a notice now, unless it came lately; return whether to tell it."""
        now = self._clock.seconds()
        if now - self._told_at.get(notice, -inf) < TELL_AGAIN_SECONDS:
            return False
        self._told_at[notice] = now
        return True
