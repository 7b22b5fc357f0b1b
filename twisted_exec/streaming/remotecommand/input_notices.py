"""
The notices about input that was not carried out: keys, messages to other users, BREAK, and requests for a role.
"""

from __future__ import annotations

from twisted_exec.wire.marks import Notice, NoticeKind, NoticeRole, not_sent
from twisted_exec.wire.session_terms import MAY_ONLY_OBSERVE

READ_ONLY = Notice("you are an observer; what you type is not sent")
"""To a user who types in a ``readOnly=true`` session."""

MAY_OBSERVE = not_sent(MAY_ONLY_OBSERVE, NoticeRole.DENIED)
"""To a user without the right to drive who types."""

SAYS_NOTHING = Notice("your message was not sent: this session only observes", NoticeKind.RECEIPT)
"""To a user who sends a message in a ``readOnly=true`` session."""

MAY_NOT_SAY = Notice(f"your message was not sent: {MAY_ONLY_OBSERVE}", NoticeKind.RECEIPT)
"""To a user without the right to drive who sends a message."""

NO_MESSAGES = Notice(
    "your message was not sent: this console passes no messages on", NoticeKind.RECEIPT
)

NO_BREAK = Notice("this console has no BREAK")

NO_ROLES = Notice("this console has no roles: whoever is here may type")
