"""
The meaning of notices for the program at the user's end: by kind and role, or by wording.

The kind and role of a notice that comes as a mark say what it means.  In ordinary output only its
wording does; so the sentences that programs know are here, for both ends.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from twisted_exec.api.display import display_name
from twisted_exec.wire.marks import OPTION, TYPE, Attendance, Notice, NoticeKind, NoticeRole
from twisted_exec.wire.notices import decode_notice, encode_notice
from twisted_exec.wire.session_terms import MAY_ONLY_OBSERVE

WAITS = "this session waits up to"
"""In the notice that the machine has ended, before the seconds."""
LINE_AGAIN = "the machine has started again"
"""The text of :data:`RESTARTED`."""
RESTARTED = Notice(LINE_AGAIN, NoticeKind.RESTARTED)
"""The notice to sessions that have waited, when the next line is open."""
LINE_BACK = "the console line is back"
"""The notice that a lost line is open again."""
GETS_INPUT = "the machine gets input now"
"""The notice that as many people as a policy requires are connected."""
TYPED_BEFORE = "typed before the machine started again"
"""Says which keys are discarded that arrive late."""
TYPED_AFTER = "typed after the end of the machine"
"""Says which keys are discarded in a session that ends without another start of the machine."""
NOBODY = "nobody"
"""Stands for the writer of a console whose floor is free."""
ELSEWHERE = ", in another session"
"""Follows the name of a user, in notices to another session of that user."""
HINT = "(~f or --force takes over)"
"""End of a notice about the writer, for an observer that can take over."""
WAIT = "(you may not take over)"
"""End of a notice about the writer, for an observer that cannot take over at present."""
ASK = "(wait until it has no writer, or ask an administrator for the role console-operator)"
"""The end of the notice that a takeover is refused."""
IS_WRITER = "you are the writer of this console"
"""The notice that a session has the floor."""
_LONGEST_BYTES = 1024
_NOTICE = re.compile(rb"\r\n\[twisted-exec: (?:[^\r\n]|\r\n  (?=[^\r\n])){1,900}\]\r\n")
_UNTIL_BACK = "; input is discarded until it is back"
_OUTAGE = re.compile(rf"the console line was lost: .+{_UNTIL_BACK}|line \".+?\"( was lost)?: .+")
_NOTICE_END = b"]\r\n"


def notice(text: str) -> bytes:
    """Wrap a message of this program."""
    return encode_notice(text)


def notice_text(output: bytes) -> str:
    """Return the text of a piece of output that is a whole notice."""
    return decode_notice(output) if _NOTICE.fullmatch(output) else ""


def line_lost(why: str) -> str:
    """Return the notice to sessions whose line is lost."""
    return f"the console line was lost: {why}{_UNTIL_BACK}"


def outage_of(text: str) -> str | None:
    """
    Return what a notice says about the line: why it is lost, or empty if it is back.

    :return: ``None`` for another notice.
    """
    if text == LINE_BACK:
        return ""
    match = _OUTAGE.fullmatch(text)
    return None if match is None else match[0].removesuffix(_UNTIL_BACK)


class RoleNotices:
    """
    Reads the notices of one session, for the user's end.

    A resumable session gets notices as marks beside the output, so use :meth:`read` alone: then no
    output of the machine can pass for a notice. Other sessions get notices in the output, where a
    machine can print the same text; nothing that matters to security may depend on them.

    :ivar not_sent: why input was last discarded; empty if none was.
    :ivar is_off: the session waits for the machine to start again.
    :ivar writer: the writer's name, or ``nobody`` if the floor is free; may be empty.
    :ivar may_take_over: the runtime has said that the user may take the console from its writer.
    """

    def __init__(self) -> None:
        self.is_observer = False
        self.is_denied = False
        self.not_sent = ""
        self.interruption = ""
        self.is_off = False
        self.writer = ""
        self.may_take_over = False
        self._tail = b""

    def feed(self, data: bytes) -> None:
        """Handle output that has notices in it, split anywhere."""
        window = self._tail + data
        end = 0
        # Without an end in the new output a search would look at the same beginning for each byte.
        if window.find(_NOTICE_END, max(0, len(self._tail) + 1 - len(_NOTICE_END))) >= 0:
            for match in _NOTICE.finditer(window):
                end = match.end()
                self.read(understood(decode_notice(match[0])))
        self._tail = window[end:][-_LONGEST_BYTES:]

    def read(self, notice: Notice) -> None:
        if notice.kind is NoticeKind.DISCARDED:
            self.not_sent = notice.why or notice.text
        elif notice.kind is NoticeKind.INTERRUPTED:
            self.interruption, self.is_off = notice.why or notice.text, True
        elif notice.kind is NoticeKind.RESTARTED:
            self.is_off = False
        if notice.role is None:
            return
        self.is_observer = notice.role is not NoticeRole.WRITER
        self.is_denied = notice.role is NoticeRole.DENIED
        self.may_take_over = bool(notice.hint)
        if notice.role is NoticeRole.OBSERVER:
            self.writer = notice.writer or NOBODY
        elif notice.role is NoticeRole.WRITER:
            self.writer = ""

    def attended(self, attendance: Attendance) -> str:
        """
        Handle an attendance, which names the writer.

        :return: a line that tells an observer of a new writer, or empty.
        """
        before, self.writer = self.writer, display_name(attendance.writer or NOBODY)
        if not before or self.writer in (before, NOBODY):
            return ""
        line = f"{self.writer} is the writer of this console now"
        return line if before == NOBODY else f"{line} (before: {before})"


_Wording = tuple[NoticeKind, NoticeRole | None, str]
_ROLE, _DISCARDED, _INTERRUPTED = NoticeKind.ROLE, NoticeKind.DISCARDED, NoticeKind.INTERRUPTED
_TO_WRITER, _TO_OBSERVER, _TO_DENIED = NoticeRole.WRITER, NoticeRole.OBSERVER, NoticeRole.DENIED
_HINTS = rf"(?:(?P<hint>{re.escape(HINT)}|{re.escape(TYPE)})|{re.escape(WAIT)})"
_STATUS = (
    rf"(?:the writer of this console is (?P<writer>.+?)(?:{ELSEWHERE})?|this console has no writer)"
)
_MAY_ONLY_OBSERVE = re.escape(MAY_ONLY_OBSERVE)
_NOT_SENT = "what you type is not sent:"
_BEGIN_WITH_WORDS: Sequence[_Wording] = (
    (_ROLE, _TO_WRITER, IS_WRITER),
    (_ROLE, _TO_WRITER, r"you have taken over this console from .+"),
    (_ROLE, _TO_WRITER, rf"{IS_WRITER} again; .+ has left"),
    (_ROLE, _TO_OBSERVER, rf"{_STATUS}; you are an observer {_HINTS}"),
    (_ROLE, _TO_OBSERVER, rf"you are an observer; {_STATUS} {_HINTS}"),
    (_ROLE, _TO_OBSERVER, rf"you may type at this console again; {_STATUS} {_HINTS}"),
    (
        _ROLE,
        _TO_OBSERVER,
        rf"you may not take over this console; its writer is (?P<writer>.+) {re.escape(ASK)}",
    ),
    (_ROLE, _TO_DENIED, rf"(?:from now on )?{_MAY_ONLY_OBSERVE}"),
    (_DISCARDED, _TO_DENIED, rf"{_NOT_SENT} (?P<why>{_MAY_ONLY_OBSERVE})"),
    (_DISCARDED, _TO_OBSERVER, rf"{_NOT_SENT} (?P<why>{_STATUS}) {_HINTS}"),
    (_DISCARDED, None, rf"{_NOT_SENT} (?P<why>.+)"),
    (NoticeKind.BANNER, None, r"banner: .+"),
    (NoticeKind.RESTARTED, None, LINE_AGAIN),
)
_FREE = "(?:has left|has released this console|may no longer type); this console has no writer"
_TAKEN = f"(?:{ELSEWHERE},)? has taken over this console; you are an observer"
_BEGIN_WITH_NAMES: Sequence[_Wording] = (
    (
        _ROLE,
        _TO_OBSERVER,
        rf"(?P<writer>.+)'s connection is lost; the writer of this console is (?P=writer) {_HINTS}",
    ),
    (_ROLE, _TO_OBSERVER, rf"(?P<writer>.+?){_TAKEN} {_HINTS}"),
    (_ROLE, _TO_OBSERVER, rf".+ {_FREE} {_HINTS}"),
    (_INTERRUPTED, None, rf"(?P<why>.+); {WAITS} .+ s for the machine to start again"),
    (NoticeKind.MESSAGE, None, r".+ is back"),
)


def understood(text: str) -> Notice:
    """
    Return the notice with a text that came in output, where only the wording says what it means.

    User names may read like sentences, so a text with two meanings is a plain message: "you have
    taken over this console from ann is back" may be about a user of either name.
    """
    if text.endswith(OPTION):  # for stock kubectl; our client has the key as well
        text = text.removesuffix(OPTION) + HINT
    meanings = [_meaning(text, table) for table in (_BEGIN_WITH_WORDS, _BEGIN_WITH_NAMES)]
    found = next(filter(None, meanings), None) if None in meanings else None
    return found or Notice(text)


def with_kind(notice: Notice) -> Notice:
    """
    Return the notice with the kind that it has in this release.

    :param notice: came as a mark.  Release 0.2.0 has no kind for a machine that has started again.
    """
    return RESTARTED if notice == Notice(LINE_AGAIN) else notice


def _meaning(text: str, wordings: Sequence[_Wording]) -> Notice | None:
    for kind, role, pattern in wordings:
        if match := re.fullmatch(pattern, text):
            facts: dict[str, Any] = {
                name: value for name, value in match.groupdict().items() if value
            }
            return Notice(text, kind, role, **facts)
    return None
