"""
The user of a session that can be resumed, which may know nothing about that.
"""

from __future__ import annotations

from typing import Any
from typing import Protocol as Typing

from twisted_exec.streaming.remotecommand.interfaces import ConsoleUser
from twisted_exec.wire.marks import At, Attendance
from twisted_exec.wire.remotecommand.messages import dropped_keys, encode_gap, encode_notice


class ResumableUser(ConsoleUser, Typing):
    """
    Further callbacks of a user, each of them optional.

    A user without ``notice`` and ``skipped`` gets these messages in the output.
    """

    def outage(self, reason: str) -> None:
        """The connection is lost; :meth:`resumed` or ``detached`` follows."""

    def resumed(self, seconds: float, uncertain: int) -> None:
        """
        The session goes on.

        :param seconds: since :meth:`outage`.
        :param uncertain: pieces of input that are dropped, because the machine may have received
            them already, and those behind them, of which the stream has the number
            (``unsent_pieces``).
        """

    def notice(self, text: str) -> None:
        """A message for people."""

    def skipped(self, count: int | None) -> None:
        """Output is missing here: its number of bytes, or ``None`` if the number is unknown."""

    def placed(self, mark: At) -> None:
        """The position of the next output; called before the first output, and before :meth:`skipped`."""

    def attendance_changed(self, attendance: Attendance) -> None:
        """The sessions at the console, the writer or the recordings have changed, or the session goes on."""


class Messages:
    """Calls the optional callbacks that a user has, and writes the others into its output."""

    def __init__(self, user: ConsoleUser) -> None:
        self._user: Any = user

    def outage(self, reason: str) -> None:
        """Tell a user who wants to know; others see a pause."""
        if tell := getattr(self._user, "outage", None):
            tell(reason)

    def resumed(self, seconds: float, uncertain: int, unsent: int) -> None:
        """
        Tell the user; those without the callback only that input is dropped.

        :param uncertain: all pieces that are dropped.
        :param unsent: those of them that were never sent.
        """
        if tell := getattr(self._user, "resumed", None):
            tell(seconds, uncertain)
        elif uncertain:
            self.notice(f"the connection was lost: {dropped_keys(uncertain, unsent)}")

    def notice(self, text: str) -> None:
        """Show a message, without control characters."""
        plain = "".join(char if char.isprintable() else " " for char in text)
        if tell := getattr(self._user, "notice", None):
            tell(plain)
        else:
            self._user.data_received(encode_notice(plain))

    def placed(self, mark: At) -> None:
        """Tell a user who wants to know."""
        if tell := getattr(self._user, "placed", None):
            tell(mark)

    def attendance_changed(self, attendance: Attendance) -> None:
        """Tell a user who wants to know."""
        if tell := getattr(self._user, "attendance_changed", None):
            tell(attendance)

    def skipped(self, count: int | None) -> None:
        """Show a gap in the output."""
        if tell := getattr(self._user, "skipped", None):
            tell(count)
        else:
            self._user.data_received(encode_gap(count))
