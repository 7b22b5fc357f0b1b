"""
The echo of what ``kubectl console --run`` types around its command, hidden from screens.

A session says when it opens that it runs one command, and with which nonce. Only lines that this session really types,
and that are those of the run with this nonce (:mod:`twisted_exec.wire.shell_run`), are left out, and only where the
machine's output is exactly their echo. Nothing that the machine prints can make more of it hidden. The journal keeps
all bytes, and an event about those that are hidden.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from twisted_exec.journal.interfaces import IWritableJournal
from twisted_exec.wire.shell_run import Echoes, TypedLine

ECHO_SECONDS = 10.0
"""Time from a typed line, or a part of it, to its echo: 900 bytes take 8 s at 1200 baud."""
LINE_SECONDS = 60.0
"""Time for a line that is typed slowly: so long may its echo be held back."""
_MOST_OUTPUT_BYTES = 128 << 10
"""How much output is searched for the echo of a line."""


class HiddenEcho:
    """
    Hides the echo of typed lines in the output of one console.

    Output that may begin an echo is held back from screens until that is decided.

    :param shown: called when screens get more output than before.
    """

    def __init__(
        self, clock: IReactorTime, journal: IWritableJournal, shown: Callable[[], None]
    ) -> None:
        self._clock, self._journal, self._shown = clock, journal, shown
        self._echoes = Echoes()
        self._expiry: IDelayedCall | None = None
        self._searched = 0  # output since the newest line was typed
        self._begun_at: float | None = None  # the line that is not whole

    def typed(self, line: TypedLine) -> None:
        """
        Await the echo of a line of a run, or of the part that is typed so far.

        A policy may slow the input down, so that the machine echoes the beginning of a line long before its end is
        typed.
        """
        seconds, now = ECHO_SECONDS, self._clock.seconds()
        if line.is_whole:
            self._begun_at = None
        else:
            if self._begun_at is None:
                self._begun_at = now
            seconds = min(seconds, self._begun_at + LINE_SECONDS - now)
        if seconds <= 0:
            self.stop()
            return
        self._echoes.expect(line)
        self._searched = 0
        if self._expiry is None:
            self._expiry = self._clock.callLater(seconds, self.stop)
        else:
            self._expiry.reset(seconds)

    def abandoned(self) -> None:
        """Show the echo of a line that is no line of a run after all."""
        if self._begun_at is None:
            return
        self._begun_at = None
        self._echoes.abandon()
        if self._echoes:
            for hidden in self._echoes.feed(self._journal.end, b""):
                self._journal.hide(hidden)
            self._journal.hold_back(self._echoes.undecided)
            self._shown()
        else:
            self.stop()

    def append(self, data: bytes) -> None:
        """Append output to the journal, and hide in it what is an echo."""
        journal, echoes = self._journal, self._echoes
        if not echoes:
            journal.append(data)
            return
        offset = journal.end
        journal.hold_back(offset if echoes.undecided is None else echoes.undecided)
        journal.append(data)
        self._searched += len(data)
        if self._searched > _MOST_OUTPUT_BYTES:
            self.stop()
            return
        for hidden in echoes.feed(offset, data):
            journal.hide(hidden)
        if not echoes:
            self.stop()
        journal.hold_back(echoes.undecided)

    def stop(self) -> None:
        """Await no echo any more, and show what is held back."""
        expiry, self._expiry = self._expiry, None
        if expiry is not None and expiry.active():
            expiry.cancel()
        is_held = self._echoes.undecided is not None
        self._echoes.forget()
        self._journal.hold_back(None)
        if is_held:
            self._shown()
