"""Input of one session that does not reach the machine."""

from __future__ import annotations

from typing import Protocol

from twisted.internet.interfaces import IReactorTime

from twisted_exec.api.display import display_name
from twisted_exec.console import acts
from twisted_exec.console.floor import Floor, Participant
from twisted_exec.console.interruption import Interruption
from twisted_exec.console.notices import GETS_INPUT, RESTARTED, TYPED_AFTER, TYPED_BEFORE
from twisted_exec.console.output import ViewerOutput
from twisted_exec.streaming.interfaces import (
    LINE_LOST,
    Ending,
    Position,
    Role,
)
from twisted_exec.wire.marks import Notice, NoticeKind
from twisted_exec.wire.notices import TELL_AGAIN_SECONDS
from twisted_exec.wire.typed_keys import DroppedKeys, is_typed, keys_discarded

_TYPED_BEFORE = f"it was {TYPED_BEFORE}"


class InputViewer(Participant, Protocol):
    """What the input of a session needs of its viewer."""

    @property
    def output(self) -> ViewerOutput: ...
    def ask(self) -> bool: ...
    def tell(self, notice: Notice) -> None: ...
    def report(self, kind: str, other: str, text: str) -> None: ...


class InputConsole(Protocol):
    """What the input of a session needs of its console."""

    clock: IReactorTime
    interruption: Interruption

    @property
    def floor(self) -> Floor: ...
    @property
    def outage(self) -> str: ...


class DiscardedInput:
    """
    Why input of a viewer does not reach the machine at present, and what its user knows of that.

    :class:`.viewer.Viewer` decides on each key.

    :ivar is_interrupted: the machine has ended, and the session waits for its next start.
    :ivar is_behind: input that arrives now may have been typed before the machine started again.
    :ivar ending: of a script, because its input was discarded.
    :ivar is_told: the user has the notice about that, and expects that more input is discarded.
    """

    def __init__(self, viewer: InputViewer, console: InputConsole) -> None:
        self._viewer, self._console = viewer, console
        self.is_interrupted = self.is_behind = False
        self._restarted_at = 0  # for a user who is behind
        self._missing_people = ""
        self.ending: Ending | None = None
        self.is_told = False
        self._told_at = 0.0
        self._typed_before = DroppedKeys()  # discarded keys of a user who is behind
        self._of_outage: DroppedKeys | None = None  # other discarded keys, typed during an outage
        self._why = ""  # the last reason for discarding them

    # What the user is told.

    def discard(self, reason: str, notice: Notice, data: bytes = b"") -> None:
        """
        Take note that input is discarded, and tell the user why, but not for each key.

        :param reason: of the session's ending if it is a script's.
        :param notice: for the user.
        """
        if notice.why == _TYPED_BEFORE:
            # Their user reads the number: a notice of now would seem to be about the keys that follow.
            self._typed_before.add(data)
            self.ending = Ending(reason, f"the input was not sent: {notice.why}")
            return
        if self._of_outage is not None:
            self._of_outage.add(data)
            self._why = notice.why
        elif self.is_interrupted and reason == LINE_LOST:
            self._typed_before.add(data)  # their user reads the number behind the next start
        if reason != LINE_LOST:
            writers = self._console.floor.writers
            user = self._viewer.user
            other = writers[0].user if writers and writers[0].user != user else ""
            text = f"input of {display_name(user)} did not reach the machine: {notice.why}"
            self._viewer.report(acts.INPUT_DENIED, other, text)
        ending = Ending(reason, f"the input was not sent: {notice.why}")
        now = self._console.clock.seconds()
        is_due = now - self._told_at >= TELL_AGAIN_SECONDS and is_typed(data)
        if self.ending != ending or not self.is_told or is_due:
            self.ending, self.is_told, self._told_at = ending, True, now
            self._viewer.tell(notice)

    def resumed(self) -> None:
        """
        Count the discarded keys that were typed during an outage, until :meth:`all_arrived`.

        The client has told its user that these keys wait to be sent. A user who knew before the outage
        that keys are discarded needs no count.
        """
        self._of_outage = None if self.is_told else DroppedKeys()
        self.is_told = False  # the notice may be lost

    def all_arrived(self) -> None:
        """
        The keys of an outage, or from before a start of the machine, have arrived: tell the user how many were
        discarded.
        """
        if not self.is_interrupted and (count := self._typed_before.count):
            self._typed_before = DroppedKeys()
            self._tell_count(count, TYPED_BEFORE, _TYPED_BEFORE)
        dropped, self._of_outage = self._of_outage, None
        if dropped is not None and (count := dropped.count):
            self._tell_count(count, "typed meanwhile", self._why)

    def _tell_count(self, count: int, when: str, why: str) -> None:
        text = keys_discarded(count, when)
        self._viewer.tell(Notice(text, NoticeKind.DISCARDED, why=why, keys=count))

    def session_ends(self) -> None:
        """
        Tell the user how many keys were discarded, of which the notice behind the next start would have told.

        A client that counts for itself knows them, too, so that the mark has no number.
        """
        if count := self._typed_before.count:
            when = TYPED_AFTER if self.is_interrupted else TYPED_BEFORE
            text = keys_discarded(count, when)
            self._viewer.tell(Notice(text, NoticeKind.DISCARDED, why=f"it was {when}"))

    def became_writer(self) -> None:
        self.ending, self.is_told = None, False

    # Causes to discard it.

    @property
    def is_withheld(self) -> bool:
        """True if the user knows that a ConsolePolicy withholds the input."""
        return bool(self._missing_people)

    @property
    def is_discarded(self) -> bool:
        """
        True while input is read only to be discarded.

        So withheld input is not sent when more people have come, nor input for a line that has
        ended.
        """
        return self.is_withheld or self.is_interrupted or self.is_behind

    @property
    def outage(self) -> str:
        """Why the state of the line discards this user's input at present; or empty."""
        if self.is_interrupted:
            return self._console.interruption.why or "the machine is starting"
        return _TYPED_BEFORE if self.is_behind else self._console.outage

    def people_changed(self, missing: str) -> bool:
        """
        Tell the user that input is withheld, or a writer that it no longer is.

        :return: whether that has changed.
        """
        was_withheld, self._missing_people = bool(self._missing_people), missing
        if was_withheld is bool(missing):
            return False
        self.is_told = False
        if missing:
            self._viewer.tell(Notice(f"the machine gets no input: {missing}"))
        elif self._viewer.role is Role.WRITER:
            self._viewer.tell(Notice(GETS_INPUT))
        return True

    def restarted(self, offset: int) -> None:
        """Go on with the next boot of the machine, whose output begins at ``offset``."""
        self.is_interrupted = False
        self._viewer.tell(RESTARTED)
        if self._viewer.ask():
            self.fall_behind(offset)
        else:
            self.all_arrived()  # as far as can be known

    def fall_behind(self, offset: int) -> None:
        """
        Discard what the user may have typed for the previous boot, until the client has answered.
        """
        self.is_behind, self._restarted_at = True, offset

    def catch_up(self, position: Position) -> None:
        """
        Repeat the notice of the present boot to a user who has seen the output up to ``position``.
        """
        if self.is_behind and not self.is_interrupted and position.offset <= self._restarted_at:
            self._viewer.output.tell(RESTARTED, self._restarted_at)

    def caught_up(self) -> None:
        """Take note that what arrives now was typed at the machine's present boot."""
        self.is_behind = self.is_told = False
