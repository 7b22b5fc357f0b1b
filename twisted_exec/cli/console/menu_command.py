"""
One command of the escape menu that asks, or tells, the user in the terminal.

The machine's output waits meanwhile, and keys are for the command, not for the machine. At its end
the user reads how many keys were discarded.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime

from twisted_exec.cli.console.dialog import Dialog
from twisted_exec.cli.console.display import Display, UserTerminal
from twisted_exec.cli.explanations import explain, missing_right_of
from twisted_exec.cli.messages import one_line
from twisted_exec.console.notices import RoleNotices
from twisted_exec.wire.resize import MESSAGE_CHARACTERS, message_line
from twisted_exec.wire.session_terms import MAY_ONLY_OBSERVE
from twisted_exec.wire.typed_keys import keys_discarded

if TYPE_CHECKING:
    from twisted.python.failure import Failure

    from twisted_exec.cli.console.interfaces import NextSession
    from twisted_exec.streaming.remotecommand.stream import ConsoleStream

Talk = Callable[[Dialog], Coroutine[Any, Any, "NextSession | None"]]
"""Asks the user, and acts; returns the session that follows, or ``None``."""

NO_MESSAGES = (
    "The machine runtime of this console passes no messages on: it is of an earlier release."
)
ALONE = "Nobody else is at this console to read a message."
NO_MARKS = "A session that cannot be resumed sends no messages."

_INTERRUPT = b"\x03"


class Conversation:
    """
    One conversation, which holds the output back from now on.

    :param draw: writes on the terminal.
    :param asks: see :class:`.Dialog`.
    :ivar held: keys for the machine, which came meanwhile.
    """

    def __init__(
        self,
        clock: IReactorTime,
        terminal: UserTerminal,
        draw: Callable[[bytes], None],
        display: Display,
        *,
        asks: bool,
    ) -> None:
        self._display = display
        self._talking: Deferred[NextSession | None] | None = None
        self._is_stopped = False
        display.hold()
        self._dialog = Dialog(
            clock,
            draw,
            terminal.size,
            moves_cursor=terminal.moves_cursor,
            mid_line=display.mid_line,
            full_screen=terminal.full_screen(),
            asks=asks,
            cover=display.cover if display.covers else None,
        )

    @property
    def held(self) -> bytes:
        return self._dialog.held

    def tell(self, lines: str) -> None:
        self._dialog.tell(lines)

    def begin(self, talk: Talk, *, pauses: bool) -> Deferred[NextSession | None]:
        """
        Talk with the user.

        :param pauses: wait for Enter if nothing was asked: the user may have typed answers already.
        :return: fires with the session that follows, and with ``None`` for none.
        """
        self._talking = Deferred.fromCoroutine(self._talk(talk, pauses))
        return self._talking.addErrback(self._cancelled)

    async def _talk(self, talk: Talk, pauses: bool) -> NextSession | None:
        dialog, following = self._dialog, None
        try:
            following = await talk(dialog)
        except CancelledError:
            raise
        except Exception as problem:
            if self._is_stopped:
                return None
            dialog.tell(one_line(missing_right_of(problem) or explain(problem)))
        if following is None and pauses and not dialog.has_asked:
            await dialog.line(
                "Output waits; Enter goes on: "
            )  # the answers must not reach the machine
        return following

    def _cancelled(self, failure: Failure) -> None:
        failure.trap(CancelledError)

    def typed(self, data: bytes) -> None:
        """Handle keys; Ctrl-C also cancels a request to the server, for which the user does not wait."""
        if not self._dialog.typed(data) and _INTERRUPT in data:
            self._cancel()

    def resized(self) -> None:
        self._dialog.resized()

    def stop(self) -> None:
        """End, because the session does."""
        self._is_stopped = True
        self._cancel()

    def _cancel(self) -> None:
        if self._talking is not None:
            self._talking.cancel()

    def close(self, *, tells: bool) -> None:
        """
        Give the terminal back to the output.

        :param tells: tell the user about keys that nothing has read.
        """
        if tells and (count := self._dialog.unread_keys):
            self._dialog.tell(keys_discarded(count, "typed meanwhile"))
        self._display.release(begins_line=not self._dialog.mid_line)
        if self._dialog.is_read:
            self._display.uncover()


async def write_message(
    dialog: Dialog, stream: ConsoleStream, notices: RoleNotices, say: Callable[[str], bool]
) -> None:
    """
    Send a message to the other users of the console.

    :param say: sends a line; returns false if the connection is lost.
    """
    attendance, longest = stream.attendance, MESSAGE_CHARACTERS
    if attendance is not None:  # it follows the beginning of a session
        longest = int(attendance.message_characters)
    if not (longest and stream.is_resumable):
        dialog.tell(NO_MESSAGES if stream.is_resumable else NO_MARKS)
        return
    if notices.is_denied:
        dialog.tell(f"Only users who may type send messages; {MAY_ONLY_OBSERVE}.")
        return
    if attendance is not None and attendance.viewers == 1:  # those count whose connections are lost
        dialog.tell(ALONE)
        return
    text = await dialog.line("Message to all viewers: ", longest=longest)
    line = message_line(text or "")
    if not line:
        dialog.tell("Nothing was sent.")
    elif not say(line):
        dialog.tell("your message was not sent: the connection is lost")
