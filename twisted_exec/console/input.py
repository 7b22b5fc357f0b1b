"""The input of one session."""

from __future__ import annotations

from typing import Protocol

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from twisted_exec.api.display import display_name
from twisted_exec.console import acts
from twisted_exec.console.echo_time import EchoUser
from twisted_exec.console.floor import Floor, Participant
from twisted_exec.console.interfaces import IConsoleRecorder
from twisted_exec.console.interruption import Interruption
from twisted_exec.console.notices import GETS_INPUT, RESTARTED, TYPED_AFTER, TYPED_BEFORE
from twisted_exec.console.output import ViewerOutput
from twisted_exec.console.rate_limit import RateLimit
from twisted_exec.console.shared_console_limits import ConsoleLimits
from twisted_exec.streaming.interfaces import (
    COMPLETED,
    CONSOLE_IN_USE,
    INPUT_DENIED,
    LINE_LOST,
    Ending,
    Position,
    Role,
)
from twisted_exec.wire.marks import Notice, NoticeKind, not_sent
from twisted_exec.wire.notices import TELL_AGAIN_SECONDS
from twisted_exec.wire.session_terms import Terms
from twisted_exec.wire.typed_keys import DroppedKeys, is_typed, keys_discarded

_NOT_WRITTEN = "the console cannot be recorded: its input cannot be written"
_TYPED_BEFORE = f"it was {TYPED_BEFORE}"
_BREAK = b"\0"  # counts as a key


class InputViewer(Participant, EchoUser, Protocol):
    """What the input of a session needs of its viewer."""

    @property
    def joined_as(self) -> str: ...
    @property
    def is_denied(self) -> bool: ...
    @property
    def is_ending(self) -> bool: ...
    @property
    def terms(self) -> Terms: ...
    @property
    def has_read_all(self) -> bool: ...
    @property
    def output(self) -> ViewerOutput: ...
    def ask(self) -> bool: ...
    def require_recording(self) -> str: ...
    def take_yielded_floor(self) -> None: ...
    def tell(self, notice: Notice) -> None: ...
    def report(self, kind: str, other: str, text: str) -> None: ...
    def finish(self, ending: Ending) -> None: ...


class InputConsole(Protocol):
    """What the input of a session needs of its console."""

    clock: IReactorTime
    limits: ConsoleLimits
    recorder: IConsoleRecorder
    interruption: Interruption
    last_output_at: float

    @property
    def floor(self) -> Floor: ...
    @property
    def input_rate(self) -> RateLimit: ...
    @property
    def missing_people(self) -> str: ...
    @property
    def outage(self) -> str: ...
    def typed(self, data: bytes, viewer: EchoUser) -> None: ...


class ViewerInput:
    """
    The input of a viewer.

    :ivar is_behind: input that arrives now may have been typed before the machine started again.
    :ivar bytes_to_machine: accepted input, for audit.
    """

    def __init__(self, viewer: InputViewer, console: InputConsole) -> None:
        self._viewer, self._console = viewer, console
        self.is_interrupted = self.is_behind = False
        self.bytes_to_machine = 0
        self._restarted_at = 0  # for a user who is behind
        self._missing_people = ""
        self._discarded: Ending | None = None  # for a script whose input was discarded
        self._is_told = False  # the user has the notice about that
        self._told_at = 0.0
        self._told_rate = 0  # the limit of the input's rate that the user knows
        self._typed_before = DroppedKeys()  # discarded keys of a user who is behind
        self._of_outage: DroppedKeys | None = None  # other discarded keys, typed during an outage
        self._why = ""  # the last reason for discarding them
        self._ended_at: float | None = None
        self._quiet: IDelayedCall | None = None

    # Input of the user.

    def send(self, data: bytes) -> None:
        if not self._accept(data):
            return
        if not self._console.recorder.typed(self._viewer.joined_as, data):
            self._discard(INPUT_DENIED, not_sent(_NOT_WRITTEN), data)
            return
        self._is_told = False  # the user does not expect that later input is discarded
        self.bytes_to_machine += len(data)
        self._console.typed(data, self._viewer)
        if self._viewer.terms.input_rate:
            self._console.input_rate.charge(len(data) / self._viewer.terms.input_rate)
            self._tell_slowed()

    def _tell_slowed(self) -> None:
        terms = self._viewer.terms
        if self._told_rate != terms.input_rate and self._console.input_rate.is_paused:
            self._told_rate = terms.input_rate
            rule = terms.rule("allow", "input_rate")
            text = f"your input is slowed down: {rule} {terms.input_rate} bytes per second"
            self._viewer.tell(Notice(text))

    def accept_break(self) -> bool:
        """Accept BREAK from this user, or tell the user why not; return whether it is accepted."""
        return self._accept(_BREAK, outage=False)

    def _accept(self, data: bytes, *, outage: bool = True) -> bool:
        if self._viewer.role is not Role.WRITER and is_typed(data) and not self.is_discarded:
            self._viewer.take_yielded_floor()
        if self._viewer.role is not Role.WRITER:
            self.refuse(data)
        elif missing := self._console.missing_people or self._viewer.require_recording():
            self._discard(INPUT_DENIED, not_sent(missing), data)
        elif (outage or self.is_behind) and (why := self.outage):
            self._discard(LINE_LOST, not_sent(why), data)
        else:
            return True
        return False

    def refuse(self, data: bytes = b"") -> None:
        reason = INPUT_DENIED if self._viewer.is_denied else CONSOLE_IN_USE
        self._discard(reason, self._console.floor.refusal(self._viewer), data)

    def _discard(self, reason: str, notice: Notice, data: bytes) -> None:
        if notice.why == _TYPED_BEFORE:
            # Their user reads the number: a notice of now would seem to be about the keys that follow.
            self._typed_before.add(data)
            self._discarded = Ending(reason, f"the input was not sent: {notice.why}")
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
        if self._discarded != ending or not self._is_told or is_due:
            self._discarded, self._is_told, self._told_at = ending, True, now
            self._viewer.tell(notice)

    def tell_again(self) -> None:
        self._is_told = False

    def resumed(self) -> None:
        """
        Count the discarded keys that were typed during an outage, until :meth:`all_arrived`.

        The client has told its user that these keys wait to be sent. A user who knew before the outage
        that keys are discarded needs no count.
        """
        self._of_outage = None if self._is_told else DroppedKeys()
        self._is_told = False  # the notice may be lost

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
        self._discarded, self._is_told = None, False

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
    def is_slowed(self) -> bool:
        """True while input waits because its rate is limited."""
        return bool(
            self._viewer.role is Role.WRITER
            and self._viewer.terms.input_rate
            and self._console.input_rate.is_paused
        )

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
        self._is_told = False
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
        self.is_behind = self._is_told = False

    # The end of it.

    @property
    def has_ended(self) -> bool:
        return self._ended_at is not None

    def end(self) -> None:
        """
        End the session, but never the line, after a quiet period.

        A session whose input was discarded ends without the quiet period.
        """
        if self._discarded is not None:
            self._viewer.finish(self._discarded)
        elif self._ended_at is None:
            self._ended_at = self._console.clock.seconds()
            self._wait_for_quiet(self._console.limits.quiet_seconds)

    def stop_waiting(self) -> None:
        if self._quiet is not None and self._quiet.active():
            self._quiet.cancel()

    def _wait_for_quiet(self, seconds: float) -> None:
        self._quiet = self._console.clock.callLater(seconds, self._check_quiet)

    def _check_quiet(self) -> None:
        if self._viewer.is_ending:
            return
        now = self._console.clock.seconds()
        quiet_since = max(self._ended_at or 0.0, self._console.last_output_at)
        if not self._viewer.has_read_all:
            quiet_since = now
        remaining = quiet_since + self._console.limits.quiet_seconds - now
        if remaining > 0:
            self._wait_for_quiet(remaining)
        elif outage := self.outage:
            self._viewer.finish(Ending(LINE_LOST, outage))
        else:
            self._viewer.finish(Ending(COMPLETED, "the input ended and the console is quiet"))
