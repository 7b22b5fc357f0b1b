"""
The way from a BMC's shell to the console: prompts, the commands of a quirk, and what they answer.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.protocol import connectionDone
from twisted.python.failure import Failure

from twisted_exec.runtimes.interfaces import CannotStart
from twisted_exec.runtimes.lines.layer import LineLayer
from twisted_exec.runtimes.lines.redfish.quirks import Quirk

BYTE_SECONDS = 0.01
"""Pause between typed bytes: iDRACs lose some of a command that comes in one piece."""

SETTLE_SECONDS = 1.0
"""A command that the BMC's prompt has not followed in this time has opened the console."""

NOT_ENTERED = "NotEntered"
"""Reason of the machine's condition: the BMC's shell did not open the console."""

_MOST_KEPT = 4096
_BEGINS_SECONDS = 5.0
_MAX_ANSWER = 100


class EntryLayer(LineLayer):
    """
    Types the commands of a quirk at the BMC's prompt, and begins the console behind their echo.

    :param quirk: has at least one entry.
    :param releases: type the commands that end another session of the console before.
    """

    def __init__(self, upper: Any, clock: Any, quirk: Quirk, releases: bool) -> None:
        super().__init__(upper)
        self._clock, self._quirk, self._releases = clock, quirk, releases
        self._entries = list(quirk.entry_commands)
        self._commands: list[bytes] = []
        self._printed = b""
        self._untyped = b""
        self._timer: Any = None
        self._watches = False  # the last command is typed
        self._next_entry()

    def _next_entry(self) -> None:
        entry = self._entries.pop(0)
        self._commands = [*(entry.release if self._releases else ()), *entry.commands]

    def connectionMade(self) -> None:
        """Wait for the prompt."""

    def dataReceived(self, data: bytes) -> None:
        if self._has_begun:
            self.deliver(data)
        elif self.error is None:
            self._printed = (self._printed + data)[-_MOST_KEPT:]
            if not self._untyped:
                self._look()

    def _look(self) -> None:
        # The first line is the echo of the command.
        echo, line_end, answer = self._printed.partition(b"\n") if self._watches else (b"", b"", b"")
        if self._is_at_prompt(answer if self._watches else self._printed):
            self._at_prompt(answer)
        elif self._watches and line_end:
            self._look_for_console(answer)

    def _is_at_prompt(self, printed: bytes) -> bool:
        last = printed.replace(b"\r", b"\n").rpartition(b"\n")[2].strip()
        return any(last.endswith(prompt) for prompt in self._quirk.prompts)

    def _at_prompt(self, answer: bytes) -> None:
        self._stop_timer()
        if self._watches:
            self._watches = False
            is_refused = any(each in answer for each in self._quirk.refusals)
            if not (is_refused and self._entries):
                return self._not_entered(answer)
            self._next_entry()
        self._printed = b""
        self._untyped = self._commands.pop(0) + b"\r"
        self._type()

    def _type(self) -> None:
        byte, self._untyped = self._untyped[:1], self._untyped[1:]
        super().write(byte)
        if self._untyped:
            self._timer = self._clock.callLater(BYTE_SECONDS, self._type)
        else:
            self._watches = not self._commands
            self._look()

    def _look_for_console(self, answer: bytes) -> None:
        for text in self._quirk.begins:
            _, found, behind = answer.partition(text)
            _, line_end, rest = behind.partition(b"\n")
            if found and line_end:
                return self._enter(rest)
        if self._timer is None or not self._timer.active():
            seconds = _BEGINS_SECONDS if self._quirk.begins else SETTLE_SECONDS
            self._timer = self._clock.callLater(seconds, self._settled)

    def _settled(self) -> None:
        self._enter(self._printed.partition(b"\n")[2])

    def _enter(self, output: bytes) -> None:
        self._stop_timer()
        self._printed = b""
        self.begin()
        self.deliver(output)

    def _not_entered(self, answer: bytes) -> None:
        lines = answer.decode("utf-8", "replace").replace("\r", "\n").split("\n")
        first = "".join(each for each in lines[0] if each.isprintable()).strip()[:_MAX_ANSWER]
        why = f': "{first}"' if first else ""
        self.fail(
            CannotStart(
                NOT_ENTERED,
                f"the BMC's shell did not open the console{why}; another client may have it",
            )
        )

    def _stop_timer(self) -> None:
        if self._timer is not None and self._timer.active():
            self._timer.cancel()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._stop_timer()
        super().connectionLost(reason)
