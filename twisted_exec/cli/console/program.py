"""
A console in this terminal: its session, its notices, and how it ends.
"""

from __future__ import annotations

import argparse
import gc
import os
import signal
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred

from twisted_exec.cli.console.connecting import ProgressLine, step
from twisted_exec.cli.console.display import UserTerminal, framed
from twisted_exec.cli.console.escape import EscapeCommand
from twisted_exec.cli.console.first_screen import FirstScreen
from twisted_exec.cli.console.interfaces import NextSession, Sink
from twisted_exec.cli.console.patience import patiently
from twisted_exec.cli.console.people import Person
from twisted_exec.cli.console.process import collect_garbage, start_log, the_reactor
from twisted_exec.cli.console.session import ConsoleSession, Outcome
from twisted_exec.cli.console.streams import StandardStreams, UserStreams
from twisted_exec.cli.console.terminal import die_of
from twisted_exec.cli.explanations import explain, explain_withdrawal
from twisted_exec.cli.messages import one_line, say
from twisted_exec.streaming.remotecommand.stream import ConsoleStream, ConsoleUser
from twisted_exec.tls.fast.loop import use_monotonic_clock
from twisted_exec.wire.marks import Notice, NoticeKind
from twisted_exec.wire.stream_options import CONSOLE, StreamOptions
from twisted_exec.wire.terminal_modes import Modes
from twisted_exec.wire.typed_keys import keys_discarded

if TYPE_CHECKING:
    from twisted_exec.cli.console.dialog import Dialog
    from twisted_exec.cli.console.menu import MachineAccess
    from twisted_exec.cli.console.script import Script, ScriptSink
    from twisted_exec.cli.console.scrollback import Scrollback


def conclude(outcome: Outcome, mid_line: bool) -> int:
    """Print the final message and return the exit code."""
    shows_key = outcome.signal == signal.SIGINT and os.isatty(0)  # the terminal's echo is ^C
    if mid_line and os.isatty(1):
        with suppress(OSError):  # a terminal that is gone
            os.write(1, b"\n")
    elif outcome.line and ((mid_line and _is_one_file()) or (shows_key and os.isatty(2))):
        say("")
    if outcome.line:
        say(outcome.line)
    if outcome.signal:
        die_of(outcome.signal)
    return outcome.exit_code


CTRL_C_ENDS = "Ctrl-C ends this program; the machine does not get what you type"
"""For a user who types while a script has the console, such as the key that leaves."""


class ConsoleProgram:
    """One run: the user's streams around a session, and around those that follow it."""

    def __init__(self, options: argparse.Namespace, streams: UserStreams) -> None:
        self._options, self._streams = options, streams
        self._newest: ConsoleSession | None = None
        self._modes = Modes()
        self._output: Sink | None = None
        self._script: Script | None = None
        self._printed: ScriptSink | None = None
        self._progress: ProgressLine | None = None
        self._screen: FirstScreen | None = None
        self._is_verified = self._observes = False
        self._news = ""  # for the user of the session that opens
        self._former: NextSession | None = None  # opens again if the next session is refused

    @property
    def subject(self) -> str:
        return str(self._options.name)

    @property
    def place(self) -> str:
        return self.subject

    @property
    def full_place(self) -> str:
        return self.place

    @property
    def shows_more(self) -> bool:
        """True unless the user wants the output alone."""
        return True

    def attempt(
        self, user: ConsoleUser, reactor: Any, options: StreamOptions
    ) -> Deferred[ConsoleStream]:
        """Open the console; fires with its stream."""
        raise NotImplementedError

    def make_script(self, reactor: Any) -> Script | None:
        """Return the script that types instead of the user, or ``None``."""
        return None

    def explain(self, error: BaseException) -> str:
        return explain(error)

    def run(self, streams: StandardStreams) -> tuple[Outcome, bool]:
        """
        Run the reactor until the console ends.

        :param streams: those of the constructor.
        :return: the outcome, and whether the output left the cursor inside a line.
        """
        start_log()
        reactor = the_reactor()
        use_monotonic_clock(reactor)
        results: list[tuple[Outcome, bool]] = []

        def finished(result: tuple[Outcome, bool]) -> None:
            results.append(result)
            reactor.stop()

        with streams:
            self.prepare().addCallback(finished)
            signals = streams.signals(
                resized=lambda: _in_reactor(self._session.window_changed),
                deadly=lambda number: _in_reactor(self._session.interrupted, number),
                continued=lambda: _in_reactor(self._session.continued),
            )
            with signals:
                reactor.callWhenRunning(self.begin)
                collect_garbage()
                try:
                    reactor.run(installSignalHandlers=False)
                finally:
                    gc.freeze()  # nor does Python's exit look for garbage
                    # Before the signal handlers, which also restore it, are removed.
                    streams.terminal.restore()
        return results[0]

    def prepare(self) -> Deferred[tuple[Outcome, bool]]:
        """
        Make the session, which :meth:`begin` opens.

        :return: fires at the end of the last session, as :meth:`run` returns.
        """
        self._script = script = self.make_script(the_reactor())
        result: Deferred[tuple[Outcome, bool]] = Deferred()

        def finished(outcome: Outcome) -> None:
            newline = b"\r\n" * (outcome.next is not None and self._session.mid_line)
            self._streams.write_last(self._modes.undo() + newline)
            if outcome.next is not None:
                self._follow(outcome.next)
                self._new_session().addCallback(finished)
                self.begin()
            elif script is not None:
                from twisted_exec.cli.console.script import scripted_outcome

                mid_line = self._printed is not None and self._printed.mid_line
                result.callback((self._concluded(scripted_outcome(script, outcome)), mid_line))
            else:
                result.callback((self._concluded(outcome), self._session.mid_line))

        self._new_session().addCallback(finished)
        return result

    def _concluded(self, outcome: Outcome) -> Outcome:
        """Return the outcome with what the user has to know besides."""
        return outcome

    # The user's events, of streams that are no standard descriptors.

    def window_changed(self) -> None:
        self._session.window_changed()

    def interrupted(self, number: int) -> None:
        """End the session as a deadly signal does."""
        self._session.interrupted(number)

    def end(self, line: str) -> None:
        """
        End the session, and no other follows.

        :param line: why, for the user.
        """
        self._session.failed(line)

    def send_break(self) -> None:
        self._session.handle([EscapeCommand.BREAK])

    @property
    def _session(self) -> ConsoleSession:
        assert (
            self._newest is not None
        )  # :meth:`run` makes the first before it has a reader of keys or signals
        return self._newest

    def _new_session(self) -> Deferred[Outcome]:
        self._modes, self._is_verified = (modes := Modes()), False
        self._screen = None
        script, is_shown = self._script, self._streams.prints_on_terminal
        self._newest = ConsoleSession(
            the_reactor(),
            interactive=self._has_user,
            terminal=UserTerminal(
                size=self._streams.size if script is None else lambda: None,
                say=self._tell,
                report=None if is_shown else self._report_notice,
                draw=self._draw if self._has_screen else None,
                attached=self._end_progress,
                greeting=self._greeting,
                farewell=self._farewell,
                place=lambda: one_line(self.full_place),
                watch=modes.feed if is_shown and script is None else lambda _: None,
                full_screen=lambda: modes.full_screen,
                margins=lambda: modes.margins,
                suspend=self._streams.suspend,
                redraw=self._redraw,
                power_on=self.power_on,
                withdrawn=self.withdrawn,
                text_of=self._streams.text_of,
                moves_cursor=self._has_screen and not self._streams.is_dumb,
                shows_more=is_shown and script is None and self.shows_more,
            ),
            escapes=self._options.escape,
            read_only=self._options.read_only,
            script=script,
            act=self._act,
            people=self.people,
            tells_company=self.tells_company,
            linger_seconds=self._options.linger,
            limited=self._options.timeout != 0,
            quiet=self._options.quiet,
        )
        return self._newest.finished

    async def _act(
        self, command: EscapeCommand, dialog: Dialog, scrollback: Scrollback
    ) -> NextSession | None:
        # Imported here, because most sessions have no dialog.
        from twisted_exec.cli.console.menu import act

        return await act(command, dialog, scrollback, str(self._options.name), self.access())

    def access(self) -> MachineAccess | None:
        """Return the machine at its API server; ``None`` without an API server."""
        return None

    def power_on(self) -> str:
        """Return the command that powers the machine on; empty without one for this kubeconfig."""
        return ""

    def withdrawn(self, message: str) -> str:
        """Return the message of a session whose user lost a right, with the remedy."""
        return explain_withdrawal(message)

    @property
    def people(self) -> Callable[[str], Awaitable[Sequence[Person]]] | None:
        """Lists the sessions at the console; ``None`` without an API server."""
        return None

    @property
    def tells_company(self) -> bool:
        """True if the user wants to read who joins and leaves."""
        return False

    def _follow(self, following: NextSession) -> None:
        former = NextSession(str(self._options.name), observe=self._session.is_observer)
        is_same = following.machine == former.machine
        self._former = None if is_same or following.news else former
        self._observes = following.observe or (is_same and former.observe)
        self._options.force = False  # it was for the first session
        self._options.name, self._news = following.machine, following.news

    @property
    def _has_user(self) -> bool:
        """True if a person types, and not a script."""
        return self._streams.reads_terminal and self._script is None

    @property
    def _has_screen(self) -> bool:
        """True if messages go to a terminal: standard error, or else the output that a person reads."""
        streams = self._streams
        return streams.reports_on_terminal or (streams.prints_on_terminal and self._has_user)

    def _redraw(self, is_picture: bool) -> bool:
        return self._screen is not None and self._screen.redraw(is_picture=is_picture)

    def _draw(self, data: bytes) -> None:
        if self._output is not None and self._streams.prints_on_terminal:
            self._output.write(data)  # behind the output that the terminal has not taken yet
        else:
            self._streams.write_message(data)

    @property
    def _timeout_seconds(self) -> float | None:
        return self._options.timeout or None  # 0 means never

    def begin(self) -> None:
        """Open the session; the reactor runs."""
        self._open(self._timeout_seconds)

    def _open(self, timeout: float | None) -> None:
        reactor, session, options = the_reactor(), self._session, self._options
        streams = self._streams

        def lost(error: OSError | None) -> None:
            if self._output is output:
                self._output = None
            session.output_lost(error)

        output = streams.sink(lost)
        self._output = output
        if self._script is not None:
            from twisted_exec.cli.console.script import NOT_READ, ScriptSink

            self._script.drive(session)
            # Output that only the script gets has set no modes of the terminal.
            printed = self._modes.feed if streams.prints_on_terminal else lambda _: None
            self._printed = ScriptSink(self._script, output, printed)
            if not options.quiet and streams.has_unread_input():
                self._report(NOT_READ)
            leave = options.escape.leave if options.escape is not None else None
            if leave is not None:
                streams.when_typed(leave.code, lambda: self._inform(CTRL_C_ENDS))
            session.start(self._script, self._printed, timeout_seconds=timeout)
        else:
            streams.begin()
            keys = streams.source(session.typed, session.input_ended)
            session.start(keys, output, timeout_seconds=timeout)
        # Without any terminal nothing answers the machine, and output is wanted byte for byte.
        tty = streams.reads_terminal or streams.prints_on_terminal
        stream_options = replace(
            CONSOLE,
            tty=tty,
            read_only=options.read_only,
            observe=self._observes,
            force=options.force,
        )
        session.step = lambda: f"connecting to {one_line(self.place)}: {self.step}"
        attempt = patiently(
            lambda: self.attempt(session, reactor, stream_options), reactor, self._inform
        )
        session.connecting(attempt)
        self._begin_progress()

        def connected(result: Any) -> Any:
            self._end_progress()
            return result

        attempt.addBoth(connected).addErrback(self._refused)

    @property
    def step(self) -> str:
        return step(the_reactor(), is_verified=self._is_verified)

    def progress(self, seconds: int) -> str:
        return f"connecting to {one_line(self.place)}: {self.step}, {seconds} s"

    def _connected(self) -> None:
        self._is_verified = True

    def _begin_progress(self) -> None:
        if self._options.quiet or not self._has_screen:
            return
        self._progress = self._streams.progress_line(self.progress, self._draw)

    def _end_progress(self) -> None:
        progress, self._progress = self._progress, None
        if progress is not None:
            progress.stop()

    def _refused(self, failure: Any) -> None:
        line = self.explain(failure.value)
        if self._former is None:
            self._session.failed(line)
        else:
            self._session.go_to(replace(self._former, news=line))

    def _greeting(self) -> str:
        if not self._has_user:
            return ""
        lines = [one_line(self._news)] if self._news else []
        if count := self._session.discarded_keys:
            lines.append(keys_discarded(count, "typed before this session"))
        if not self._options.quiet:
            escapes = self._options.escape
            keys = f" {escapes}." if escapes is not None else ""
            lines.append(f"Connected to {self.subject}.{keys}")
        return "\n".join(lines)

    def _farewell(self) -> str:
        if self._options.quiet:
            return ""
        if not self._session.is_attached:
            return f"Left before the console of {self.subject} was open."
        return f"Disconnected from {self.subject}."

    def _inform(self, line: str) -> None:
        """Tell a person something that ``--quiet`` leaves out."""
        if not self._options.quiet:
            self._tell(line)

    def _tell(self, lines: str) -> None:
        """Print a message for a person, who may have neither output on a terminal; not without any terminal."""
        if self._has_screen or self._has_user:
            self._report(lines)

    def _report(self, lines: str) -> None:
        """Print a message in any case: between the output on a screen, or else on standard error."""
        if not self._has_screen:
            for line in lines.splitlines():
                self._streams.say(line)
            return
        if self._progress is not None:
            self._progress.erase()
        mid_line = self._session.mid_line
        if self._printed is not None:
            mid_line = self._printed.mid_line
            self._printed.begin_line()
        is_shown = self._streams.prints_on_terminal
        size = self._streams.size() if is_shown else None
        self._draw(framed(lines, size, mid_line=mid_line and is_shown))

    def _report_notice(self, notice: Notice) -> None:
        if self._streams.reads_terminal:
            self._report(self._streams.text_of(notice))
        elif notice.kind is not NoticeKind.DISCARDED or notice.role is None:  # the role is known
            self._report(notice.for_script)


def _is_one_file() -> bool:
    try:
        return os.path.sameopenfile(1, 2)
    except OSError:  # one of them is closed
        return False


def _in_reactor(event: Callable[..., None], *arguments: Any) -> None:
    the_reactor().callFromThread(event, *arguments)
