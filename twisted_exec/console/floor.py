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

A ConsolePolicy may have a user yield the floor: then a person who types takes it at once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial
from typing import Protocol

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from twisted_exec.api.display import display_name
from twisted_exec.console.notices import ASK, ELSEWHERE, HINT, IS_WRITER, NOBODY, WAIT
from twisted_exec.streaming.interfaces import Role
from twisted_exec.wire.marks import TYPE, Notice, NoticeKind, NoticeRole, not_sent
from twisted_exec.wire.session_terms import MAY_ONLY_OBSERVE

ANNOUNCE_SECONDS = 0.2
"""Delay before observers learn that the floor is free."""
_OWN = "another session of yours"
_WRITER = Notice(IS_WRITER, NoticeKind.ROLE, NoticeRole.WRITER)
_NO_WRITER = "this console has no writer"
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
    def is_person(self) -> bool:
        """True if a person types, as far as is known: not a program, or an unknown user."""

    @property
    def yields(self) -> bool:
        """True if the user gives the floor to a person who types."""

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

    def _status(self, participant: Participant) -> str:
        """A clause for notices that names the writer."""
        writers = self.writers
        if not writers:
            return _NO_WRITER
        # Users without a name may be several.
        is_own = writers[0].user == participant.user != ""
        return f"the writer of this console is {self.writer}{ELSEWHERE if is_own else ''}"

    @property
    def _loss(self) -> str:
        """A clause that names the writer whose connections are all lost; empty otherwise."""
        if not self._is_lost:
            return ""
        return f"{self.writer}'s connection is lost; the writer of this console is {self.writer}"

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
                self._announce_later(participant, partial(self._departure, participant))
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
        participant.tell(
            self._to_observer(f"you are an observer; {self._status(participant)}", hint)
        )
        if was_writer:
            self._announce_if_free(
                participant,
                lambda reader: f"{name_for(participant, reader)} has released this console",
            )
            self.follow_presence()

    def is_yielded_to(self, participant: Participant) -> bool:
        """
        Return whether the writer yields the floor to a participant who types.

        Between two people who yield it passes by an explicit act only: their input would mix.
        """
        writers = self.writers
        if not writers or not participant.may_write or not participant.is_person:
            return False
        if writers[0].user == participant.user or not all(each.yields for each in writers):
            return False
        return not (participant.yields and writers[0].is_person)

    def right_to_write_changed(self, participant: Participant) -> None:
        """Follow a change of ``may_write``."""
        # Still an observer: the keys that this user has typed in vain must not reach the machine.
        if participant.may_write:
            text = f"you may type at this console again; {self._status(participant)}"
            participant.tell(self._to_observer(text, self._hint(participant)))
            return
        was_writer, participant.role = participant.role is Role.WRITER, Role.OBSERVER
        participant.tell(replace(_DENIED, text=f"from now on {MAY_ONLY_OBSERVE}"))
        if was_writer:
            name = display_name(participant.user)
            self._announce_later(participant, lambda _: f"{name} may no longer type")
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
            text = self._loss or f"{self._status(participant)}; you are an observer"
            participant.tell(self._to_observer(text, hint))

    def refusal(self, participant: Participant) -> Notice:
        """Return the notice for an observer who types."""
        if participant.is_denied:
            return not_sent(MAY_ONLY_OBSERVE, NoticeRole.DENIED)
        # For sessions that asked for input but do not have the floor.  Input of a --read-only session never
        # gets here: READ_ONLY of streaming.remotecommand.server answers it, without naming a writer or ~f.
        refused = not_sent(self._loss or self._status(participant))
        to_observer = self._to_observer(refused.text, self._hint(participant))
        return replace(to_observer, kind=refused.kind, why=refused.why)

    def _to_observer(self, text: str, hint: str) -> Notice:
        writer = self.writer if self.writers else ""
        return Notice(
            f"{text} {hint}",
            NoticeKind.ROLE,
            NoticeRole.OBSERVER,
            writer=writer,
            hint=hint if hint in (HINT, TYPE) else "",
        )

    def _is_free_to(self, participant: Participant) -> bool:
        writers = self.writers
        # A poollet of another make does not pass user names on: all of its users are one, who may
        # type.
        return not writers or writers[0].user == participant.user

    def _hint(self, participant: Participant) -> str:
        if self.is_yielded_to(participant):
            return TYPE
        may = participant.may_take_over or self._is_free_to(participant)
        return HINT if may else WAIT

    def _take_over(self, participant: Participant) -> None:
        may = participant.may_take_over or self.is_yielded_to(participant)
        if not may and not self._is_free_to(participant):
            text = f"you may not take over this console; its writer is {self.writer}"
            participant.tell(self._to_observer(text, ASK))
            self._deny(participant)
            return
        writers = self.writers
        if not writers:
            self._taken_from = []
        others = [each for each in writers if each is not participant]
        is_own = bool(others) and others[0].user == participant.user
        # Users without a name may be several.
        previous = _OWN if is_own and participant.user else self.writer
        successor = display_name(participant.user)
        for other in others:
            other.role = Role.OBSERVER
        self._make_writer(participant)
        self._forget(participant)
        if others:
            self._taken_from.append(others)
        text = f"you have taken over this console from {previous}" if others else IS_WRITER
        participant.tell(replace(_WRITER, text=text))
        for other in others:
            name = f"{successor}{ELSEWHERE}," if is_own else successor
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
                    text = f"{IS_WRITER} again; {self._departure(leaver, each)}"
                    each.tell(replace(_WRITER, text=text))
            is_for_good = any(each.has_terminal for each in lenders)
            self._taken_from = [] if is_for_good else earlier

    def _announce_later(self, leaver: Participant, news: Callable[[Participant], str]) -> None:
        # Observers whose sessions end as well, such as when a server stops, have no use for it.
        self.stop()
        if self.writers or not self._participants:
            return

        def announce() -> None:
            self._announcement = None
            self._announce_if_free(leaver, news)

        self._announcement = self._clock.callLater(ANNOUNCE_SECONDS, announce)

    def stop(self) -> None:
        call, self._announcement = self._announcement, None
        if call is not None:
            call.cancel()

    def _departure(self, leaver: Participant, reader: Participant) -> str:
        """Return a clause about a session that has left; its user may have others."""
        name = name_for(leaver, reader)
        if name == _OWN or not any(_is_same_user(each, leaver) for each in self._participants):
            return f"{name} has left"
        return f"a session of {name} has left"

    def _announce_if_free(self, leaver: Participant, news: Callable[[Participant], str]) -> None:
        if self.writers:
            return
        # No observer is promoted: at other console servers one then types into a machine by mistake
        # (conserver#107).
        for each in self._participants:
            if each is not leaver and each.may_write:
                each.tell(self._to_observer(f"{news(each)}; {_NO_WRITER}", HINT))


def _is_same_user(one: Participant, other: Participant) -> bool:
    # Users without a name may be several.
    return one.user == other.user != ""


def name_for(participant: Participant, reader: Participant) -> str:
    """Return the name of a session's user in a notice to another session."""
    return _OWN if _is_same_user(participant, reader) else display_name(participant.user)
