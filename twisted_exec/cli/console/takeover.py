"""
A takeover of the console: what is typed behind it, and the question before it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from twisted_exec.api.display import display_name
from twisted_exec.cli.console.type_ahead import TYPE_AHEAD_BYTES, DroppedKeys

if TYPE_CHECKING:
    from twisted_exec.cli.console.dialog import Dialog
    from twisted_exec.cli.console.escape import Typed
    from twisted_exec.cli.console.people import Person

TAKES_OVER = "y takes over; any other key cancels: "
YOU_ARE_WRITER = "You are the writer of this console already."


class TypedBehind:
    """
    A command that waits for the server, and what is typed behind it, up to :data:`TYPE_AHEAD_BYTES`.

    Nothing of a longer input is kept: the machine must not receive a part of a line.

    :ivar typed: the command, and what is kept behind it.
    :ivar is_full: the input was too long; what follows is dropped as well.
    """

    def __init__(self) -> None:
        self.typed: list[Typed] = []
        self.is_full = False
        self._bytes, self._keys = 0, DroppedKeys()

    def __bool__(self) -> bool:
        return bool(self.typed)

    def add(self, typed: Typed, keys: bytes) -> None:
        """
        Keep the command, or what is typed behind it.

        :param keys: those of ``typed``.
        """
        if self.typed:
            self._bytes += len(keys)
            self._keys.add(keys)
        self.is_full = self._bytes > TYPE_AHEAD_BYTES
        self.typed.append(typed)
        if self.is_full:
            del self.typed[1:]

    @property
    def dropped(self) -> int:
        """Number of keys that were dropped."""
        return self._keys.count if self.is_full else 0


async def confirm_takeover(
    dialog: Dialog,
    writer: str,
    take_over: Callable[[], object],
    people: Awaitable[Sequence[Person]],
) -> None:
    """
    Ask as the web console does, and take over.

    :param people: the sessions at the console; empty if they are not known.
    """
    sessions = [each for each in await people if display_name(each.user) == writer]
    loser, state = writer, f"{writer} types at this console"
    if any(each.is_own for each in sessions):
        loser, state = "that session", "You type at this console in another session"
    elif sessions and all(each.is_lost for each in sessions):
        state = f"{writer}'s connection is lost; {writer} is the writer"
    dialog.tell(f"{state}. If you take it over, {loser} only observes.")
    if await dialog.key(TAKES_OVER) == "y":
        take_over()


async def confirm_takeover_again(
    dialog: Dialog,
    take_over: Callable[[], object],
    people: Awaitable[Sequence[Person]],
    *,
    is_alone: bool,
) -> None:
    """
    Ask a writer, and take over from the user's other sessions.

    :param people: as of :func:`confirm_takeover`.
    :param is_alone: there is no other session at the console.
    """
    sessions = [] if is_alone else await people
    own = next((each.user for each in sessions if each.is_own), None)
    others = sum(each.user == own and not each.is_own for each in sessions)
    if is_alone or (own is not None and not others):
        dialog.tell(YOU_ARE_WRITER)
        return
    if others:
        state = "You type at this console in another session, too"
        loser = "that session only observes"
        if others > 1:
            state, loser = (
                f"You type at this console in {others} other sessions, too",
                "these only observe",
            )
    else:  # the server has not listed them
        state, loser = "You are the writer already", "other sessions of yours only observe"
    dialog.tell(f"{state}. If you take it over, {loser}.")
    if await dialog.key(TAKES_OVER) == "y":
        take_over()
