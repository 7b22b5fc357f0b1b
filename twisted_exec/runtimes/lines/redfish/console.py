"""
One connection of a BMC's console: the dialogue that enters it, then the guard between users and the BMC.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from twisted.internet.interfaces import IDelayedCall
from twisted.internet.protocol import connectionDone
from twisted.python.failure import Failure

from twisted_exec.runtimes.interfaces import CannotStart
from twisted_exec.runtimes.lines.layer import LineLayer
from twisted_exec.runtimes.lines.redfish.entry import Begin, EntryDialogue, Fail, Step, Type
from twisted_exec.runtimes.lines.redfish.guard import Guard

FELL_OUT = "ConsoleEnded"
"""Reason of the machine's condition: the BMC's own prompt came, so the console had ended."""

_TELL_SECONDS = 60.0


class ConsoleLayer(LineLayer):
    """
    The layer between the connection of a BMC and its users.

    :param dialogue: enters the console; ``None`` if the connection is the console.
    :param has_break: the transport below has ``send_break``.
    :param ended: called when the connection of a console that had begun has ended.
    """

    def __init__(
        self,
        upper: Any,
        clock: Any,
        guard: Guard,
        dialogue: EntryDialogue | None,
        *,
        has_break: bool,
        ended: Callable[[], None],
    ) -> None:
        super().__init__(upper)
        self._clock, self._guard, self._dialogue = clock, guard, dialogue
        self._has_break, self._ended = has_break, ended
        self._waking: IDelayedCall | None = None
        self._told_at: float | None = None

    # Protocol of the transport.

    def connectionMade(self) -> None:
        if self._dialogue is None:
            self.begin()
        else:
            self._wait(self._dialogue)

    def dataReceived(self, data: bytes) -> None:
        if self._dialogue is None:
            self._print(data)
        elif self.error is None:
            self._do(self._dialogue.receive(data, self._clock.seconds()))

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._stop_waiting()
        if self._dialogue is not None and self.error is None:
            lost = self._dialogue.lost()
            self.error = CannotStart(lost.reason, lost.message)
        if self._has_begun:
            self._ended()
        super().connectionLost(reason)

    # The dialogue.

    def _wait(self, dialogue: EntryDialogue) -> None:
        self._stop_waiting()
        seconds = max(0.0, dialogue.wake_at - self._clock.seconds())
        self._waking = self._clock.callLater(seconds, self._wake)

    def _stop_waiting(self) -> None:
        if self._waking is not None and self._waking.active():
            self._waking.cancel()

    def _wake(self) -> None:
        if self._dialogue is not None:
            self._do(self._dialogue.wake(self._clock.seconds()))

    def _do(self, steps: Sequence[Step]) -> None:
        for step in steps:
            if isinstance(step, Type):
                super().write(step.data)
            elif isinstance(step, Begin):
                self._dialogue = None
                self._stop_waiting()
                self.begin()
                self._print(step.data)
            elif isinstance(step, Fail):
                self.fail(CannotStart(step.reason, step.message))
        if self._dialogue is not None and self.error is None:
            self._wait(self._dialogue)

    # The console.

    def _print(self, data: bytes) -> None:
        output = self._guard.from_machine(data)
        if output.data:
            self.deliver(output.data)
        if output.has_ended:
            self._flush()
            message = "the console fell back to the BMC's own shell, and was closed"
            self.fail(CannotStart(FELL_OUT, message))

    def write(self, data: bytes) -> None:
        before = self._guard.dropped
        sent = self._guard.to_machine(data)
        if self._guard.dropped != before:
            self._tell_drop()
        if sent:
            super().write(sent)

    def _tell_drop(self) -> None:
        now = self._clock.seconds()
        if self._told_at is None or now - self._told_at >= _TELL_SECONDS:
            self._told_at = now
            self.notify(
                "keys that would leave the console for the BMC's shell are not sent; dropped so far: "
                f"{self._guard.dropped}"
            )

    def send_break(self, milliseconds: int) -> None:
        if self._has_break:
            self.transport.send_break(milliseconds)
        else:
            self.notify("this way to the console has no BREAK")
