"""The sessions of the marked machines, to which a user types."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from twisted.internet.defer import CancelledError, Deferred, DeferredSemaphore
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from twisted_exec.api.display import listed
from twisted_exec.api.obstacles import Obstacle, obstacles_of
from twisted_exec.api.status import APIError
from twisted_exec.cli.console.type_ahead import TypeAhead
from twisted_exec.cli.explanations import explain
from twisted_exec.cli.messages import one_line
from twisted_exec.console.notices import RoleNotices
from twisted_exec.kube.recording_news import RecordingNews
from twisted_exec.streaming.interfaces import Ending
from twisted_exec.streaming.remotecommand.stream import ConsoleStream, ConsoleUser
from twisted_exec.wire.marks import Attendance, Notice
from twisted_exec.wire.typed_keys import dropped_keys

CONCURRENT_OPENINGS = 16
SETTLE_SECONDS = 0.5
"""Time after the opening in which the server names the writer."""

Open = Callable[[int, ConsoleUser], "Deferred[ConsoleStream]"]


class TypingSession(ConsoleUser):
    """
    The session of one machine.

    :param printed: called when the machine has printed something.
    :param changed: called after changes.
    :param noticed: called with messages for the user.
    :ivar problem: why the user cannot type; empty if nothing prevents it.
    """

    sends_late = False

    def __init__(
        self,
        clock: IReactorTime,
        printed: Callable[[], None],
        changed: Callable[[], None],
        noticed: Callable[[str], None],
    ) -> None:
        self.problem = ""
        self.is_ready = False
        self.opening: Deferred[Any] | None = None
        self._clock, self._printed = clock, printed
        self._changed, self._noticed = changed, noticed
        self._notices = RoleNotices()
        self._recordings = RecordingNews()
        self._stream: ConsoleStream | None = None
        self._input = TypeAhead(self, reads_on=True)
        self._has_marks = False
        self._settling: IDelayedCall | None = None

    @property
    def is_usable(self) -> bool:
        """True if keys reach the machine."""
        return self.is_ready and not self.problem

    @property
    def recorded(self) -> str:
        """For whom the console is recorded, and which input."""
        return self._recordings.present.replace("(input: ", "(")  # tiles are narrow

    def type(self, data: bytes) -> None:
        """Send keys."""
        if self.is_usable:
            self._input.send(data)

    def leave(self) -> None:
        """End the session."""
        self._printed = self._changed = lambda: None
        opening, self.opening = self.opening, None
        if opening is not None:
            opening.cancel()
        if self._settling is not None:
            self._settling.cancel()
            self._settling = None
        self._input.close()
        if self._stream is not None:
            self._stream.leave()

    def refused(self, why: str) -> None:
        """The session cannot be used."""
        if not self.problem:
            self.problem = one_line(why)
            self._changed()

    # All machines share the keyboard, so none of them may pause it.

    def pauseProducing(self) -> None:
        """The machine takes no more keys."""
        self.refused("the machine takes no more input")

    def resumeProducing(self) -> None:
        """See :meth:`pauseProducing`."""

    def stop(self) -> None:
        """See :meth:`pauseProducing`."""

    # The stream's events.

    def attached(self, stream: ConsoleStream) -> None:
        self._stream, self.opening = stream, None
        self._has_marks = stream.is_resumable
        if self._recordings.begun(stream.recorded_input):
            self._changed()
        self._input.open(stream)
        self._settling = self._clock.callLater(SETTLE_SECONDS, self._settled)

    def data_received(self, data: bytes) -> None:
        if not self._has_marks:
            self._notices.feed(data)
            self._look_at_role()
        self._printed()

    def notice(self, notice: Notice) -> None:
        """A message for the user."""
        self._notices.read(notice)
        self._look_at_role()

    def attendance_changed(self, attendance: Attendance) -> None:
        """Take note of recordings that have begun or ended."""
        before = self.recorded
        self._recordings.changed(attendance.recordings)
        if self.recorded != before:
            self._changed()

    def skipped(self, count: int | None) -> None:
        """Ignore the gap: the tiles show screens, and not this output."""

    def resumed(self, seconds: float, uncertain: int, unsent: int) -> None:
        """The connection is back."""
        if uncertain:
            self._noticed(dropped_keys(uncertain, unsent))

    def ended(self, ending: Ending) -> None:
        self.refused(f"session ended: {ending.message or ending.reason}")

    def detached(self, reason: str) -> None:
        self._stream = None
        self.refused(reason)

    def _settled(self) -> None:
        self._settling, self.is_ready = None, True
        self._changed()

    def _look_at_role(self) -> None:
        notices = self._notices
        if notices.not_sent:
            self.refused(notices.not_sent)
        elif notices.is_observer:
            writer = notices.writer
            self.refused(f"the writer is {writer}" if writer else "you may only observe")


class TypedSessions:
    """
    The sessions of the marked machines.

    :param open_console: opens the console of a machine, by its index.
    :param printed: called with the index when a machine has printed something.
    :param changed: called after each change of a session.
    :param noticed: called with messages for the user.
    :param cluster_of: returns the name of a machine's cluster, by its index, for a limit per
        cluster of concurrent openings.
    """

    def __init__(
        self,
        open_console: Open,
        labels: Sequence[str],
        clock: IReactorTime,
        printed: Callable[[int], None],
        changed: Callable[[], None],
        noticed: Callable[[str], None],
        cluster_of: Callable[[int], str] = lambda index: "",
    ) -> None:
        self._cluster_of = cluster_of
        self._open_console, self._labels, self._clock = open_console, labels, clock
        self._printed, self._changed, self._noticed = printed, changed, noticed
        self._sessions: dict[int, TypingSession] = {}

    @property
    def is_opening(self) -> bool:
        """True until each session is ready or has failed."""
        return not all(each.is_ready or each.problem for each in self._sessions.values())

    @property
    def usable(self) -> int:
        """Number of sessions whose machines get keys."""
        return sum(each.is_usable for each in self._sessions.values())

    @property
    def problem(self) -> str:
        """Why some machines get no keys; empty if all do."""
        failed = defaultdict[str, list[str]](list)
        for index, each in self._sessions.items():
            if each.problem:
                failed[each.problem].append(self._labels[index])
        return "; ".join(f"{listed(names, 5)}: {problem}" for problem, names in failed.items())

    @property
    def recorded(self) -> dict[int, str]:
        """The recordings of the consoles that get keys: user and input, by index."""
        sessions = self._sessions.items()
        return {
            index: each.recorded for index, each in sessions if each.recorded and not each.problem
        }

    def open(self, indices: set[int]) -> None:
        """Open the consoles of these machines."""
        turns = defaultdict[str, DeferredSemaphore](partial(DeferredSemaphore, CONCURRENT_OPENINGS))
        for index in sorted(indices):
            self._sessions[index] = self._session(index)
        for index, session in list(self._sessions.items()):
            self._open(index, session, turns[self._cluster_of(index)])

    def type(self, data: bytes) -> None:
        """Send keys to all machines."""
        for session in self._sessions.values():
            session.type(data)

    def close(self) -> None:
        """End all sessions."""
        sessions, self._sessions = self._sessions, {}
        for session in sessions.values():
            session.leave()

    def _session(self, index: int) -> TypingSession:
        label = self._labels[index]
        return TypingSession(
            self._clock,
            lambda: self._printed(index),
            self._changed,
            lambda text: self._noticed(f"{label}: {text}"),
        )

    def _open(self, index: int, session: TypingSession, turns: DeferredSemaphore) -> None:
        def refused(failure: Any) -> None:
            error = failure.value
            if isinstance(error, APIError) and Obstacle.POWERED_OFF in obstacles_of(error):
                session.refused("powered off")
            elif not isinstance(error, CancelledError):
                session.refused(explain(error))

        session.opening = opening = turns.run(self._open_console, index, session)
        opening.addErrback(refused)
