"""A console over SSH with a BMC: the entry dialogue, and the guard behind it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.internet.protocol import connectionDone
from twisted.python.failure import Failure

from twisted_exec.runtimes.interfaces import CannotStart
from twisted_exec.runtimes.lines.layer import LineLayer
from twisted_exec.runtimes.lines.redfish.entry import Begin, EntryDialogue, Step, Type
from twisted_exec.runtimes.lines.redfish.guard import Guard
from twisted_exec.runtimes.lines.redfish.quirks import Entry, Quirk
from twisted_exec.streaming.interfaces import TerminalSize

_SECONDS_BETWEEN_NOTES = 10.0


class ConsoleLine(LineLayer):
    """
    One connection; users see nothing of the BMC before the console, and nothing after it.

    :param entries: empty if the console begins at once.
    :param releases: see :class:`~.entry.EntryDialogue`.
    :param tell: called with a clause for users when some of their keys were not sent.
    """

    def __init__(
        self,
        upper: Any,
        clock: IReactorTime,
        quirk: Quirk,
        entries: Sequence[Entry],
        tell: Callable[[str], None],
        *,
        releases: bool = False,
    ) -> None:
        super().__init__(upper)
        self._clock, self._quirk, self._tell = clock, quirk, tell
        self._entries, self._releases = entries, releases
        self._dialogue: EntryDialogue | None = None
        self._waking: IDelayedCall | None = None
        self._guard = Guard(quirk)
        self._told = 0
        self._told_at = clock.seconds() - _SECONDS_BETWEEN_NOTES

    # Protocol of the transport of ssh.

    def connectionMade(self) -> None:
        if not self._entries:
            self.begin()
            return
        now = self._clock.seconds()
        self._dialogue = EntryDialogue(self._entries, self._quirk, now, releases=self._releases)
        self._wait()

    def dataReceived(self, data: bytes) -> None:
        if self._dialogue is not None:
            self._follow(self._dialogue.receive(data, self._clock.seconds()))
        else:
            self._show(data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._stop_waiting()
        fail = None if self._dialogue is None else self._dialogue.lost()
        if fail is not None and self.error is None:
            self.error = CannotStart(fail.reason, fail.message)
        self._dialogue = None
        super().connectionLost(reason)

    def _follow(self, steps: Sequence[Step]) -> None:
        for step in steps:
            if isinstance(step, Type):
                super().write(step.data)
            elif isinstance(step, Begin):
                self._dialogue = None
                self.begin()
                self._show(step.data)
            else:
                self._dialogue = None
                self.fail(CannotStart(step.reason, step.message))
        self._wait()

    def _wait(self) -> None:
        self._stop_waiting()
        if self._dialogue is not None:
            seconds = max(0.0, self._dialogue.wake_at - self._clock.seconds())
            self._waking = self._clock.callLater(seconds, self._wake)

    def _wake(self) -> None:
        self._waking = None
        if self._dialogue is not None:
            self._follow(self._dialogue.wake(self._clock.seconds()))

    def _stop_waiting(self) -> None:
        waking, self._waking = self._waking, None
        if waking is not None:
            waking.cancel()

    def _show(self, data: bytes) -> None:
        output = self._guard.from_machine(data)
        self.deliver(output.data)
        if output.has_ended:
            self.fail(
                CannotStart(
                    "ConsoleEnded", "the BMC has ended the console, and showed its own prompt"
                )
            )

    # ISharedLineTransport of the console.

    def write(self, data: bytes) -> None:
        if sent := self._guard.to_machine(data):
            super().write(sent)
        now = self._clock.seconds()
        if self._guard.dropped > self._told and now - self._told_at >= _SECONDS_BETWEEN_NOTES:
            self._told, self._told_at = self._guard.dropped, now
            self._tell(
                f"input that would leave the console for the BMC's shell ({self._quirk.name}) is not sent; "
                f"bytes dropped so far: {self._told}"
            )

    def window_changed(self, size: TerminalSize) -> None:
        self.transport.window_changed(size)

    def send_break(self, milliseconds: int) -> None:
        self.transport.send_break(milliseconds)
