"""
The floor: the right to type at a console.

One *user* has the floor at a time, with one or several sessions as *writers*. All other sessions
are *observers*, whose input is discarded. The floor belongs to a user, not to a session, so a
second terminal or a script of the same user may type, and a connection that died unnoticed does not
lock the user out.

Observers that may write learn that the floor is free, but they have to take it themselves: an
observer who suddenly becomes the writer types into a machine by mistake.

A script borrows the floor: sessions from which it took the floor usually get it back when it
leaves. If those were a script's and have left, the sessions before them get it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Protocol

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from twisted_exec.api.names import display_name
from twisted_exec.streaming.interfaces import Role
from twisted_exec.wire.control_messages import decode_notice, encode_notice
from twisted_exec.wire.resume import Attendance, Notice, NoticeKind, NoticeRole, not_sent
from twisted_exec.wire.session_terms import MAY_ONLY_OBSERVE

ANNOUNCE_SECONDS = 0.2
"""Delay before observers learn that the floor is free."""
_LONGEST_BYTES = 1024
_NOTICE = re.compile(rb"\r\n\[twisted-exec: (?:[^\r\n]|\r\n  (?=[^\r\n])){1,900}\]\r\n")
_NOTICE_END = b"]\r\n"
WAITS = "this session waits up to"
"""In the notice that the machine has ended, before the seconds."""
LINE_AGAIN = "the machine has started again"
"""The notice that follows when the next line is open."""
TYPED_BEFORE = "it was typed before the machine started again"
"""Why input that arrives late is discarded."""
NOBODY = "nobody"
"""Stands for the writer of a console whose floor is free."""
HINT = "(~f or --force takes over)"
"""End of a notice about the writer, for an observer that can take over."""
WAIT = "(you may not take over)"
"""End of a notice about the writer, for an observer that cannot take over at present."""
_ASK = "(wait until it has no writer, or ask an administrator for the role console-operator)"
"""The end of the notice that a takeover is refused."""
_WRITER = Notice("you are the writer of this console", NoticeKind.ROLE, NoticeRole.WRITER)
_DENIED = Notice(MAY_ONLY_OBSERVE, NoticeKind.ROLE, NoticeRole.DENIED)


class Participant(Protocol):
    """One user's session at a console."""

    role: Role
    """Set by the floor."""

    @property
    def user(self) -> str:
        """The user's name; empty if unknown."""

    @property
    def may_write(self) -> bool:
        """True if the session asked for input, and its user has the right to drive."""

    @property
    def may_take_over(self) -> bool:
        """True if the user may take the floor from another user."""

    @property
    def is_denied(self) -> bool:
        """True if the session asked for input, but its user has no right to drive."""

    @property
    def is_away(self) -> bool:
        """True if the session's connection is lost, and its user may come back."""

    @property
    def has_terminal(self) -> bool:
        """False for a script."""

    def tell(self, notice: Notice) -> None:
        """Show a notice to the user."""

    def became_writer(self) -> None:
        """The session has the floor from now on."""

    def took_over(self, previous: str) -> None:
        """The session has taken the floor from another user."""

    def takeover_denied(self, writer: str) -> None:
        """The session asked for the floor without the right to get it; ``writer`` may be empty."""


class Floor:
    """The participants of one console, and the floor."""

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._participants: list[Participant] = []
        self._taken_from: list[list[Participant]] = []  # writers before each take-over, newest last
        self._announcement: IDelayedCall | None = None
        self._lost: str | None = None  # the writer's name, if the observers know of the loss

    def __contains__(self, participant: object) -> bool:
        return participant in self._participants

    @property
    def writers(self) -> list[Participant]:
        return [each for each in self._participants if each.role is Role.WRITER]

    @property
    def writer(self) -> str:
        """The writer's name, printable; ``nobody`` if the floor is free."""
        writers = self.writers
        return display_name(writers[0].user) if writers else NOBODY

    @property
    def status(self) -> str:
        """A clause for notices that names the writer."""
        if self.writers:
            return f"the writer of this console is {self.writer}"
        return "this console has no writer"

    @property
    def _loss(self) -> str:
        """A clause that names the writer whose connections are all lost; empty otherwise."""
        return f"{self.writer}'s connection is lost; {self.status}" if self._is_lost else ""

    @property
    def _is_lost(self) -> bool:
        writers = self.writers
        return bool(writers) and all(each.is_away for each in writers)

    def join(self, participant: Participant, *, force: bool = False, observe: bool = False) -> None:
        """
        Add a session.

        :param force: take over from another user.
        :param observe: begin as an observer, also if the floor is free.
        """
        participant.role = Role.OBSERVER
        self._participants.append(participant)
        if participant.is_denied:
            participant.tell(_DENIED)
            if force:
                self._deny(participant)
        if not participant.may_write:
            return
        writers = self.writers
        # Users without a name may be several.
        has_floor = bool(writers) and writers[0].user == participant.user != ""
        if force and not has_floor:
            self._take_over(participant)
        elif not observe and self._is_free_to(participant):
            if not writers:
                self._taken_from = []
            self._make_writer(participant)
        else:
            self.remind(participant)
        self.follow_presence()

    def rejoin(self, participant: Participant, *, observe: bool = False) -> None:
        """Add a session of an earlier process, of which the role is unknown."""
        self.join(participant, observe=observe)
        if participant.role is Role.WRITER:
            self.remind(participant)

    def restore(self, participant: Participant) -> None:
        """Add a session of an earlier process, with the role that it had there."""
        self._participants.append(participant)

    def leave(self, participant: Participant) -> None:
        if participant in self:
            self._participants.remove(participant)
            self._forget(participant)
            if not self._participants:
                self.stop()
            if participant.role is Role.WRITER:
                participant.role = Role.OBSERVER
                if not participant.has_terminal:
                    self._give_back(participant)
                self._announce_if_free(participant, self._departure(participant))
                self.follow_presence()

    def dismiss(self, participants: Collection[Participant]) -> None:
        self._participants = [each for each in self._participants if each not in participants]
        self.follow_presence()

    def request_role(self, participant: Participant, role: Role) -> None:
        if participant not in self._participants:
            return
        if participant.is_denied:
            participant.tell(_DENIED)
            if role is Role.WRITER:
                self._deny(participant)
        if not participant.may_write:
            return
        if role is Role.WRITER:
            self._take_over(participant)
            self.follow_presence()
            return
        was_writer, participant.role = participant.role is Role.WRITER, Role.OBSERVER
        self._forget(participant)
        hint = self._hint(participant)
        participant.tell(self._to_observer(f"you are an observer; {self.status}", hint))
        if was_writer:
            self._announce_if_free(
                participant, f"{display_name(participant.user)} has released this console"
            )
            self.follow_presence()

    def right_to_write_changed(self, participant: Participant) -> None:
        """Follow a change of ``may_write``."""
        # Still an observer: the keys that this user has typed in vain must not reach the machine.
        if participant.may_write:
            text = f"you may type at this console again; {self.status}"
            participant.tell(self._to_observer(text, self._hint(participant)))
            return
        was_writer, participant.role = participant.role is Role.WRITER, Role.OBSERVER
        participant.tell(replace(_DENIED, text=f"from now on {MAY_ONLY_OBSERVE}"))
        if was_writer:
            self._announce_later(participant)
            self.follow_presence()

    def follow_presence(self) -> None:
        """
        Tell observers that may write about the loss of all writers' connections, and about a
        writer's return.
        """
        writers, before, is_lost = self.writers, self._lost, self._is_lost
        self._lost = writers[0].user if is_lost else None
        if self._lost == before:
            return
        for each in self._participants:
            if not each.may_write or each.role is Role.WRITER:
                continue
            if is_lost:
                each.tell(self._to_observer(self._loss, self._hint(each)))
            elif writers and writers[0].user == before:
                each.tell(Notice(f"{self.writer} is back"))

    def remind(self, participant: Participant) -> None:
        if participant.role is Role.WRITER:
            participant.tell(_WRITER)
        elif participant.is_denied:
            participant.tell(_DENIED)
        elif participant.may_write:
            hint = self._hint(participant)
            text = self._loss or f"{self.status}; you are an observer"
            participant.tell(self._to_observer(text, hint))

    def refusal(self, participant: Participant) -> Notice:
        """Return the notice for an observer who types."""
        if participant.is_denied:
            return not_sent(MAY_ONLY_OBSERVE, NoticeRole.DENIED)
        # For sessions that asked for input but do not have the floor.  Input of a --read-only session never
        # gets here: READ_ONLY of streaming.remotecommand.server answers it, without naming a writer or ~f.
        refused = not_sent(self._loss or self.status)
        to_observer = self._to_observer(refused.text, self._hint(participant))
        return replace(to_observer, kind=refused.kind, why=refused.why)

    def _to_observer(self, text: str, hint: str) -> Notice:
        writer = self.writer if self.writers else ""
        return Notice(
            f"{text} {hint}",
            NoticeKind.ROLE,
            NoticeRole.OBSERVER,
            writer=writer,
            hint=HINT if hint == HINT else "",
        )

    def _is_free_to(self, participant: Participant) -> bool:
        writers = self.writers
        # A poollet of another make does not pass user names on: all of its users are one, who may
        # type.
        return not writers or writers[0].user == participant.user

    def _hint(self, participant: Participant) -> str:
        may = participant.may_take_over or self._is_free_to(participant)
        return HINT if may else WAIT

    def _take_over(self, participant: Participant) -> None:
        if not participant.may_take_over and not self._is_free_to(participant):
            text = f"you may not take over this console; its writer is {self.writer}"
            participant.tell(self._to_observer(text, _ASK))
            self._deny(participant)
            return
        writers = self.writers
        if not writers:
            self._taken_from = []
        others = [each for each in writers if each is not participant]
        is_own = bool(others) and others[0].user == participant.user
        # Users without a name may be several.
        previous = "another session of yours" if is_own and participant.user else self.writer
        successor = display_name(participant.user)
        for other in others:
            other.role = Role.OBSERVER
        self._make_writer(participant)
        self._forget(participant)
        if others:
            self._taken_from.append(others)
        text = f"you have taken over this console from {previous}" if others else _WRITER.text
        participant.tell(replace(_WRITER, text=text))
        for other in others:
            name = f"{successor}, in another session," if is_own else successor
            text = f"{name} has taken over this console; you are an observer"
            other.tell(self._to_observer(text, self._hint(other)))
        if others and not is_own:
            participant.took_over(others[0].user)

    def _deny(self, participant: Participant) -> None:
        writers = self.writers
        participant.takeover_denied(writers[0].user if writers else "")

    def _make_writer(self, participant: Participant) -> None:
        if participant.role is not Role.WRITER:
            participant.role = Role.WRITER
            participant.became_writer()

    def _forget(self, participant: Participant) -> None:
        for at, lenders in enumerate(self._taken_from):
            if participant in lenders:
                lenders.remove(participant)
                # A terminal took the floor for good; a script only borrowed it.
                first = 0 if participant.has_terminal else at
                del self._taken_from[first : at + (not lenders)]
                return

    def _give_back(self, leaver: Participant) -> None:
        while self._taken_from and not self.writers:
            *earlier, lenders = self._taken_from
            for each in lenders:
                if each in self and each.may_write and not each.is_away:
                    self._make_writer(each)
                    text = f"{_WRITER.text} again; {self._departure(leaver)}"
                    each.tell(replace(_WRITER, text=text))
            is_for_good = any(each.has_terminal for each in lenders)
            self._taken_from = [] if is_for_good else earlier

    def _announce_later(self, leaver: Participant) -> None:
        if self.writers:
            return
        self.stop()

        def announce() -> None:
            self._announcement = None
            self._announce_if_free(leaver, f"{display_name(leaver.user)} may no longer type")

        self._announcement = self._clock.callLater(ANNOUNCE_SECONDS, announce)

    def stop(self) -> None:
        call, self._announcement = self._announcement, None
        if call is not None:
            call.cancel()

    def _departure(self, leaver: Participant) -> str:
        """A clause about a session that has left; its user may have others."""
        name = display_name(leaver.user)
        # Users without a name may be several.
        stays = leaver.user != "" and any(each.user == leaver.user for each in self._participants)
        return f"a session of {name} has left" if stays else f"{name} has left"

    def _announce_if_free(self, leaver: Participant, news: str) -> None:
        if self.writers:
            return
        notice = self._to_observer(f"{news}; {self.status}", HINT)
        # No observer is promoted: at other console servers one then types into a machine by mistake
        # (conserver#107).
        for each in self._participants:
            if each is not leaver and each.may_write:
                each.tell(notice)


def notice(text: str) -> bytes:
    """Wrap a message of this program."""
    return encode_notice(text)


def notice_text(output: bytes) -> str:
    """Return the text of a piece of output that is a whole notice."""
    return decode_notice(output) if _NOTICE.fullmatch(output) else ""


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
        elif notice.text == LINE_AGAIN:
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


def understood(text: str) -> Notice:
    """
    Return the notice with a text that came in output, where only the wording says what it means.

    User names may read like sentences, so a text with two meanings is a plain message: "you have
    taken over this console from ann is back" may be about a user of either name.
    """
    meanings = [_meaning(text, table) for table in (_BEGIN_WITH_WORDS, _BEGIN_WITH_NAMES)]
    found = next(filter(None, meanings), None) if None in meanings else None
    return found or Notice(text)


def _meaning(text: str, wordings: Sequence[_Wording]) -> Notice | None:
    for kind, role, pattern in wordings:
        if match := re.fullmatch(pattern, text):
            facts = {name: value for name, value in match.groupdict().items() if value}
            return Notice(text, kind, role, **facts)
    return None


_Wording = tuple[NoticeKind, NoticeRole | None, str]
_ROLE, _DISCARDED, _INTERRUPTED = NoticeKind.ROLE, NoticeKind.DISCARDED, NoticeKind.INTERRUPTED
_TO_WRITER, _TO_OBSERVER, _TO_DENIED = NoticeRole.WRITER, NoticeRole.OBSERVER, NoticeRole.DENIED
_HINTS = rf"(?:(?P<hint>{re.escape(HINT)})|{re.escape(WAIT)})"
_STATUS = r"(?:the writer of this console is (?P<writer>.+)|this console has no writer)"
_MAY_ONLY_OBSERVE = re.escape(MAY_ONLY_OBSERVE)
_NOT_SENT = "what you type is not sent:"
_BEGIN_WITH_WORDS: Sequence[_Wording] = (
    (_ROLE, _TO_WRITER, _WRITER.text),
    (_ROLE, _TO_WRITER, r"you have taken over this console from .+"),
    (_ROLE, _TO_WRITER, rf"{_WRITER.text} again; .+ has left"),
    (_ROLE, _TO_OBSERVER, rf"{_STATUS}; you are an observer {_HINTS}"),
    (_ROLE, _TO_OBSERVER, rf"you are an observer; {_STATUS} {_HINTS}"),
    (_ROLE, _TO_OBSERVER, rf"you may type at this console again; {_STATUS} {_HINTS}"),
    (
        _ROLE,
        _TO_OBSERVER,
        rf"you may not take over this console; its writer is (?P<writer>.+) {re.escape(_ASK)}",
    ),
    (_ROLE, _TO_DENIED, rf"(?:from now on )?{_MAY_ONLY_OBSERVE}"),
    (_DISCARDED, _TO_DENIED, rf"{_NOT_SENT} (?P<why>{_MAY_ONLY_OBSERVE})"),
    (_DISCARDED, _TO_OBSERVER, rf"{_NOT_SENT} (?P<why>{_STATUS}) {_HINTS}"),
    (_DISCARDED, None, rf"{_NOT_SENT} (?P<why>.+)"),
    (NoticeKind.BANNER, None, r"banner: .+"),
)
_FREE = "(?:has left|has released this console|may no longer type); this console has no writer"
_TAKEN = "(?:, in another session,)? has taken over this console; you are an observer"
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
