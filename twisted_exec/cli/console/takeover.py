"""
A takeover of the console, by the escape command for it: it asks first if it takes the console from a user.

Only the role of the session tells whether it has to ask.  So until the server has told the role, the
takeover waits, and what is typed behind it, which may be the answer, waits too.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from twisted_exec.api.display import display_name
from twisted_exec.cli.console.escape import EscapeCommand, Escapes, Typed
from twisted_exec.cli.console.type_ahead import TYPE_AHEAD_BYTES
from twisted_exec.console.notices import NOBODY
from twisted_exec.wire.marks import NoticeRole
from twisted_exec.wire.resize import Break, Role
from twisted_exec.wire.typed_keys import DroppedKeys, keys_discarded

if TYPE_CHECKING:
    from twisted_exec.cli.console.dialog import Dialog
    from twisted_exec.cli.console.display import Display
    from twisted_exec.cli.console.menu_command import Talk
    from twisted_exec.cli.console.pausable_timers import PausableTimers
    from twisted_exec.cli.console.people import Person
    from twisted_exec.wire.marks import Notice

TAKES_OVER = "y takes over; any other key cancels: "
YOU_ARE_WRITER = "You are the writer of this console already."
TOO_LONG_BEHIND_TAKEOVER = (
    f"more than {TYPE_AHEAD_BYTES >> 10} KiB is typed behind the takeover: all of it is discarded, and so is "
    "what you type until the takeover is carried out"
)

ROLE_SECONDS = 3.0
"""Time for the server to tell the role."""

_ANSWERED_AT_ONCE = (
    EscapeCommand.LEAVE,
    EscapeCommand.HELP,
    EscapeCommand.STATUS,
    EscapeCommand.SUSPEND,
)


class TakingSession(Protocol):
    """The session, as its takeover needs it; :class:`.ConsoleSession` describes the members."""

    @property
    def has_dialogs(self) -> bool: ...
    @property
    def is_attached(self) -> bool: ...
    @property
    def is_writer(self) -> bool: ...
    @property
    def may_wish(self) -> bool: ...
    @property
    def viewers(self) -> int: ...
    def interrupts(self, typed: bytes) -> bool: ...
    def handle(self, pieces: Sequence[Typed]) -> None: ...
    def wish(self, wish: Role) -> bool: ...
    def tell_waits(self) -> None: ...
    def converse(self, talk: Talk, *, pauses: bool) -> None: ...
    def explain(self, command: EscapeCommand) -> None: ...


class Takeover:
    """
    The takeover of one session.

    :param timers: those of the session; ``role`` is the name of the takeover's timer.
    :param escapes: ``None`` if the session has no commands.
    :param people_soon: see :meth:`.People.soon`.
    :ivar is_wished: a takeover was sent, and the server has not answered yet.
    """

    def __init__(
        self,
        session: TakingSession,
        timers: PausableTimers,
        display: Display,
        escapes: Escapes | None,
        people_soon: Callable[[], Awaitable[Sequence[Person]]],
    ) -> None:
        self._session, self._timers = session, timers
        self._display, self._escapes, self._people_soon = display, escapes, people_soon
        self._knows_role = False  # the server has told the role, or has had the time to do so
        self._behind = TypedBehind()
        self.is_wished = False

    def hold_back(self, typed: Typed) -> bool:
        """
        Keep the takeover, and what is typed behind it, until the role is known.

        :return: whether it was kept, so that the session does not handle it now.
        """
        if not (self._waits_behind(typed) if self._behind else self._begins_to_wait(typed)):
            return False
        assert self._escapes is not None
        was_full = self._behind.is_full
        self._behind.add(typed, self._escapes.keys_of(typed))
        if self._behind.is_full and not was_full:
            self._display.tell(TOO_LONG_BEHIND_TAKEOVER)
        return True

    def _waits_behind(self, typed: Typed) -> bool:
        is_interrupt = isinstance(typed, bytes) and self._session.interrupts(typed)
        return typed not in _ANSWERED_AT_ONCE and not is_interrupt

    def _begins_to_wait(self, typed: Typed) -> bool:
        session = self._session
        if typed is not EscapeCommand.TAKE_OVER or self._knows_role:
            return False
        if not (session.may_wish and session.has_dialogs):
            return False
        session.tell_waits()
        if session.is_attached:
            self._await_role()
        return True

    def forget(self) -> bytes:
        """Give up a takeover that waits; return the keys of it, and of what is typed behind it."""
        behind, self._behind = self._behind, TypedBehind()
        if self._escapes is None:
            return b""
        return b"".join(self._escapes.keys_of(each) for each in behind.typed)

    def attached(self) -> None:
        """Give the server some time to tell the role, if the takeover waits for it."""
        if self._behind:
            self._await_role()

    def _await_role(self) -> None:
        # Not every server tells a writer.
        self._timers.after("role", ROLE_SECONDS, self.go_on)

    def noticed(self, notice: Notice) -> None:
        """
        Go on with the takeover that has waited for the role; say why one that was sent has failed.

        :param notice: tells the role.
        """
        is_wished, self.is_wished = self.is_wished, False
        if is_wished and notice.role is not NoticeRole.WRITER and not notice.hint:
            self._session.explain(EscapeCommand.TAKE_OVER)
        self.go_on()

    def go_on(self) -> None:
        """Go on with the takeover that has waited: the role is known, or the server does not tell it."""
        self._knows_role = True
        self._timers.cancel("role")
        behind, self._behind = self._behind, TypedBehind()
        if behind.is_full and self._escapes is not None:
            self._display.tell(keys_discarded(behind.dropped, "typed behind the takeover"))
            self._escapes.begin_line()  # the machine has nothing of the line
        self._session.handle(behind.typed)

    def begin(self) -> None:
        """Take over, after a question if another session of any user may type."""
        session, notices = self._session, self._display.notices
        can_ask = session.has_dialogs and session.is_attached
        has_writer = notices.may_take_over and notices.writer not in ("", NOBODY)
        question: Callable[..., Coroutine[Any, Any, None]]
        if can_ask and session.may_wish and has_writer:
            question = partial(confirm_takeover, writer=notices.writer)
        elif can_ask and session.is_writer:
            question = partial(confirm_takeover_again, is_alone=session.viewers == 1)
        else:
            session.wish(Role.WRITER)
            return
        take_over = partial(session.wish, Role.WRITER)
        session.converse(
            lambda dialog: question(dialog, take_over=take_over, people=self._people_soon()),
            pauses=True,
        )

    def wished(self, wish: Break | Role) -> None:
        """Take note of a wish that was sent; the answer to a takeover may need an explanation."""
        self.is_wished = wish is Role.WRITER


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
        state, loser = "You are the writer already", "any other sessions of yours only observe"
    dialog.tell(f"{state}. If you take it over, {loser}.")
    if await dialog.key(TAKES_OVER) == "y":
        take_over()
