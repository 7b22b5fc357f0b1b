"""
``kubectl console NAME``: the serial console of a machine, in this terminal.

kubectl runs ``kubectl-console`` in ``PATH`` with the arguments after the plugin's name.  Errors of
the command line are reported before the slow imports (Twisted, TLS).
"""

from __future__ import annotations

import argparse
import gc
import os
import re
import select
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from twisted_exec.cli.console.options import (
    NOW,
    START,
    Parser,
    failure_code,
    is_fleet,
    make_script,
    parse_options,
    recorded_input_of,
    scripted_outcome,
)
from twisted_exec.cli.messages import ASK_FOR_ROLE, explain, one_line, output_failure, power_on, say
from twisted_exec.cli.options import config_of

if TYPE_CHECKING:
    from twisted.internet.defer import Deferred
    from twisted.python.failure import Failure

    from twisted_exec.api.dialects import Dialect
    from twisted_exec.cli.console.connecting import ProgressLine
    from twisted_exec.cli.console.dialog import Dialog
    from twisted_exec.cli.console.escape import EscapeCommand
    from twisted_exec.cli.console.first_screen import FirstScreen
    from twisted_exec.cli.console.interfaces import NextSession, Sink
    from twisted_exec.cli.console.menu import MachineAccess
    from twisted_exec.cli.console.people import Person
    from twisted_exec.cli.console.script import Script, ScriptSink
    from twisted_exec.cli.console.scrollback import Scrollback
    from twisted_exec.cli.console.session import Outcome
    from twisted_exec.cli.console.terminal import Terminal
    from twisted_exec.cli.fleet.task import Task
    from twisted_exec.kube.kubeconfig.client_config import ClientConfig
    from twisted_exec.streaming.remotecommand.stream import ConsoleStream, ConsoleUser
    from twisted_exec.wire.resume import Notice
    from twisted_exec.wire.stream_options import StreamOptions

_NOT_READY = (404, 409, 429)
"""Status codes of a server that has just started: it has no machine yet, or none that runs."""
NOT_READY_SECONDS = 60.0
"""Time for such a server to have the machine."""

_NOT_READ = (
    "standard input is not sent to the machine: --run, --expect and --send have all of the input"
)
_UNCOLLECTED = 20_000
"""New containers after which garbage is collected."""


def main(argv: Sequence[str] | None = None) -> int:
    """
    Run the program; return the exit code.

    :param argv: the arguments, without the program's name.
    """
    # The garbage collector takes a tenth of the start-up time, and imports create no cycles to collect.
    gc.disable()
    # autobahn's compiled parts parse their C declarations at each start, another
    # tenth, and a client uses none of them.
    os.environ.setdefault("AUTOBAHN_USE_NVX", "0")
    try:
        open_standard_descriptors()
        arguments = sys.argv[1:] if argv is None else argv
        Parser.failure_code = failure_code(arguments)
        options = parse_options(arguments)
        if is_fleet(options):
            return _run_fleet(options)
        if options.web:
            return _run_web(options)
        return conclude(*_run(options))
    except BrokenPipeError:  # --help | head
        return 1
    except OSError as error:  # --help > /dev/full
        if not (why := output_failure(error)):
            raise
        say(f"kubectl console: {why}")
        return Parser.failure_code


def open_standard_descriptors() -> None:
    """Open standard descriptors that are closed; otherwise sockets would get their numbers."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is this one


def _run_web(options: argparse.Namespace) -> int:
    from twisted_exec.cli.commands.web import run

    gc.enable()  # it runs for hours
    options.port, options.no_browser = 0, False
    return run(options)


def _run(options: argparse.Namespace) -> tuple[Outcome, bool]:
    from twisted_exec.cli.console.session import Outcome
    from twisted_exec.kube.kubeconfig.client_config import KubeConfigError

    try:
        config = config_of(options)
    except KubeConfigError as error:
        return Outcome(Parser.failure_code, str(error)), False
    return _Console(options, config).run()


def _run_fleet(options: argparse.Namespace) -> int:
    from twisted.internet.defer import Deferred

    from twisted_exec.cli.console.terminal import Signals, Terminal
    from twisted_exec.cli.fleet.targets import MOST_SPACES
    from twisted_exec.cli.fleet.task import FAILED, complain
    from twisted_exec.kube.kubeconfig.client_config import KubeConfigError
    from twisted_exec.program.descriptors import raise_descriptor_limit
    from twisted_exec.tls.fast.loop import use_monotonic_clock

    try:
        config = config_of(options)
    except KubeConfigError as error:
        return complain(str(error))
    start_log()
    reactor = the_reactor()
    use_monotonic_clock(reactor)
    # Threads look names up: one whose DNS is silent must not hold up the others.
    reactor.suggestThreadPoolSize(MOST_SPACES)
    raise_descriptor_limit()
    if config.needs_plugin:
        from twisted_exec.cli.console.credential_plugin import notice_ends

        notice_ends(reactor)
    _collect_garbage()
    with Terminal(0) as terminal:
        task = _fleet_task(options, config, reactor, terminal)
        codes: list[int] = []

        def begin() -> None:
            running = Deferred.fromCoroutine(task.run())
            running.addErrback(crashed).addCallback(codes.append)
            running.addBoth(lambda _: reactor.stop())

        def crashed(failure: Failure) -> int:
            error = failure.value
            return complain(f"internal error: {type(error).__name__}: {failure.getErrorMessage()}")

        def deadly(number: int) -> None:
            reactor.callFromThread(task.interrupted, number)

        def resized() -> None:
            reactor.callFromThread(task.resized)

        with Signals(terminal, resized, deadly):
            reactor.callWhenRunning(begin)
            try:
                reactor.run(installSignalHandlers=False)
            finally:
                terminal.restore()
                task.restore()
    return codes[0] if codes else FAILED


def _fleet_task(
    options: argparse.Namespace, config: ClientConfig, reactor: Any, terminal: Terminal
) -> Task:
    if options.tiled:
        from twisted_exec.cli.fleet.tiled import Tiled

        return Tiled(options, config, reactor, terminal)
    if options.script_command is not None:
        from twisted_exec.cli.fleet.run import RunTask

        if terminal.has_data and not options.quiet:
            say(_NOT_READ)
        return RunTask(options, config, reactor)
    from twisted_exec.cli.fleet.prefixed import Prefixed

    return Prefixed(options, config, reactor)


def conclude(outcome: Outcome, mid_line: bool) -> int:
    """Print the final message and return the exit code."""
    if mid_line and os.isatty(1):
        with suppress(OSError):  # a terminal that is gone
            os.write(1, b"\n")
    elif mid_line and _is_one_file() and outcome.line:
        say("")
    if outcome.line:
        say(outcome.line)
    if outcome.signal:
        from twisted_exec.cli.console.terminal import die_of

        die_of(outcome.signal)
    return outcome.exit_code


class ConsoleProgram:
    """One run: the terminal, the signals and the reactor around a session."""

    _script: Script | None = None
    _printed: ScriptSink | None = None
    _progress: ProgressLine | None = None
    _screen: FirstScreen | None = None
    _is_verified = _observes = False
    _news = ""  # for the user of the session that opens
    _former: NextSession | None = None  # opens again if the next session is refused

    def __init__(self, options: argparse.Namespace) -> None:
        from twisted_exec.cli.console.terminal import Terminal

        self._options, self._terminal = options, Terminal(0)

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

    def again(self, why: str) -> NextSession | None:
        """Return the session that follows when the server stops; ``None`` for none."""
        return None

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

    def run(self) -> tuple[Outcome, bool]:
        from twisted_exec.cli.console.terminal import Signals, nonblocking
        from twisted_exec.tls.fast.loop import use_monotonic_clock

        start_log()
        reactor = the_reactor()
        use_monotonic_clock(reactor)
        self._script = script = self.make_script(reactor)
        call = reactor.callFromThread
        with (
            self._terminal as terminal,
            nonblocking(0, os.O_RDONLY) as source,
            nonblocking(1, os.O_WRONLY) as sink,
        ):
            outcomes: list[Outcome] = []

            def finished(outcome: Outcome) -> None:
                newline = b"\r\n" * (outcome.next is not None and self._session.mid_line)
                with suppress(OSError):  # a terminal that is gone or stuck
                    os.write(sink, self._modes.undo() + newline)
                if outcome.next is None:
                    outcomes.append(outcome)
                    reactor.stop()
                else:
                    self._follow(outcome.next)
                    self._new_session().addCallback(finished)
                    self._begin(source, sink)

            self._new_session().addCallback(finished)
            with Signals(
                terminal,
                resized=lambda: call(self._session.window_changed),
                deadly=lambda number: call(self._session.interrupted, number),
                continued=lambda: call(self._session.continued),
            ) as self._signals:
                reactor.callWhenRunning(self._begin, source, sink)
                _collect_garbage()
                try:
                    reactor.run(installSignalHandlers=False)
                finally:
                    gc.freeze()  # nor does Python's exit look for garbage
                    terminal.restore()  # before the signal handlers, which also restore it, are removed
        if script is not None:
            mid_line = self._printed is not None and self._printed.mid_line
            return scripted_outcome(script, outcomes[0]), mid_line
        return outcomes[0], self._session.mid_line

    def _new_session(self) -> Deferred[Outcome]:
        from twisted_exec.cli.console.display import UserTerminal
        from twisted_exec.cli.console.session import ConsoleSession
        from twisted_exec.wire.terminal_modes import Modes

        self._modes, self._is_verified = (modes := Modes()), False
        self._screen = None
        script, is_shown = self._script, os.isatty(1)
        self._session = ConsoleSession(
            the_reactor(),
            interactive=self._terminal.is_terminal and script is None,
            terminal=UserTerminal(
                size=self._terminal.size if script is None else lambda: None,
                say=self._say,
                report=None if is_shown else self._report_notice,
                draw=self._draw if self._has_screen else None,
                attached=self._end_progress,
                greeting=self._greeting,
                farewell=self._farewell,
                place=lambda: one_line(self.full_place),
                watch=modes.feed if is_shown else lambda _: None,
                full_screen=lambda: modes.full_screen,
                margins=lambda: modes.margins,
                suspend=lambda: self._signals.suspend(),
                redraw=lambda: self._screen.redraw() if self._screen is not None else None,
                refresh=lambda: self._screen.refresh() if self._screen is not None else None,
                again=self.again if is_shown and script is None else lambda _: None,
                power_on=self.power_on,
                moves_cursor=self._has_screen and not _is_dumb(),
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
            watch_network=_watch_network,
        )
        return self._session.finished

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

    @property
    def people(self) -> Callable[[str], Awaitable[Sequence[Person]]] | None:
        """Lists the sessions at the console; ``None`` without an API server."""
        return None

    @property
    def tells_company(self) -> bool:
        """True if the user wants to read who joins and leaves."""
        return False

    def _follow(self, following: NextSession) -> None:
        from twisted_exec.cli.console.interfaces import NextSession

        former = NextSession(str(self._options.name), observe=self._session.is_observer)
        is_same = following.machine == former.machine
        self._former = None if is_same or following.news else former
        self._observes = following.observe or (is_same and former.observe)
        self._options.force = False  # it was for the first session
        self._options.name, self._news = following.machine, following.news

    @property
    def _has_user(self) -> bool:
        """True if a person types, and not a script."""
        return self._terminal.is_terminal and self._script is None

    @property
    def _has_screen(self) -> bool:
        """True if messages go to a terminal: standard error, or else the output that a person reads."""
        return os.isatty(2) or (os.isatty(1) and self._has_user)

    def _draw(self, data: bytes) -> None:
        if os.isatty(1):
            self._output.write(data)  # behind the output that the terminal has not taken yet
        else:
            os.write(2, data)

    @property
    def _timeout_seconds(self) -> float | None:
        return self._options.timeout or None  # 0 means never

    def _begin(self, source: int, sink: int) -> None:
        self._open(source, sink, self._timeout_seconds)

    def _open(self, source: int, sink: int, timeout: float | None) -> None:
        from twisted_exec.cli.console.session import patiently
        from twisted_exec.cli.console.terminal import TerminalInput, TerminalOutput
        from twisted_exec.wire.stream_options import CONSOLE

        reactor, session, options = the_reactor(), self._session, self._options
        output: Sink = TerminalOutput(sink, session.output_lost, reactor)
        self._output = output
        if self._script is not None:
            from twisted_exec.cli.console.script import ScriptSink

            self._script.drive(session)
            self._printed = ScriptSink(self._script, output)
            if self._terminal.has_data and not options.quiet:
                self._report(_NOT_READ)
            session.start(self._script, self._printed, timeout_seconds=timeout)
        else:
            self._begin_line()
            keys = TerminalInput(source, session.typed, session.input_ended, reactor)
            session.start(keys, output, timeout_seconds=timeout)
        # Without any terminal nothing answers the machine, and output is wanted byte for byte.
        tty = self._terminal.is_terminal or os.isatty(1)
        stream_options = replace(
            CONSOLE,
            tty=tty,
            read_only=options.read_only,
            observe=self._observes,
            force=options.force,
            run="" if self._script is None else self._script.nonce,
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

    def _begin_line(self) -> None:
        """Make the terminal raw; earlier keys have an echo in the present line."""
        was_raw = self._terminal.raw
        self._terminal.make_raw()
        if not was_raw and os.isatty(2) and select.select([self._terminal.fd], [], [], 0)[0]:
            _write_message(b"\r\n")

    @property
    def step(self) -> str:
        from twisted_exec.cli.console.connecting import step

        return step(the_reactor(), is_verified=self._is_verified)

    def progress(self, seconds: int) -> str:
        return f"connecting to {one_line(self.place)}: {self.step}, {seconds} s"

    def _connected(self) -> None:
        self._is_verified = True

    def _begin_progress(self) -> None:
        if self._options.quiet or not self._has_screen:
            return
        from twisted_exec.cli.console.connecting import ProgressLine

        self._progress = ProgressLine.on_terminal(
            2 if os.isatty(2) else 1, the_reactor(), self.progress
        )

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
        if self._script is not None or not self._terminal.is_terminal:
            return ""
        lines = [one_line(self._news)] if self._news else []
        if count := self._session.discarded_keys:
            from twisted_exec.wire.control_messages import keys_discarded

            lines.append(keys_discarded(count, "typed before this session"))
        if not self._options.quiet:
            escapes = self._options.escape
            keys = f" {escapes}." if escapes is not None else ""
            lines.append(f"Connected to {self.subject}.{keys}")
        return "\n".join(lines)

    def _farewell(self) -> str:
        return "" if self._options.quiet else f"Disconnected from {self.subject}."

    def _inform(self, line: str) -> None:
        if not self._options.quiet:
            self._say(line)

    def _say(self, lines: str) -> None:
        """Print what a person reads, who may have neither output on a terminal."""
        if self._has_screen or self._has_user:
            self._report(lines)

    def _show(self, lines: str) -> None:
        if self._progress is not None:
            self._progress.erase()
        mid_line = self._session.mid_line
        if self._printed is not None:
            mid_line = self._printed.mid_line
            self._printed.begin_line()
        from twisted_exec.cli.console.display import framed

        is_shown = os.isatty(1)
        size = self._terminal.size() if is_shown else None
        self._draw(framed(lines, size, mid_line=mid_line and is_shown))

    def _report(self, lines: str) -> None:
        if self._has_screen:
            self._show(lines)
        else:
            for line in lines.splitlines():
                say(line)

    def _report_notice(self, notice: Notice) -> None:
        from twisted_exec.wire.resume import NoticeKind

        if self._terminal.is_terminal:
            self._report(notice.text)
        elif notice.kind is not NoticeKind.DISCARDED or notice.role is None:  # the role is known
            self._report(notice.text.replace("~f or ", ""))


class _Console(ConsoleProgram):
    def __init__(self, options: argparse.Namespace, config: ClientConfig) -> None:
        super().__init__(options)
        self._config = config
        self._hint = ""
        self._at: tuple[ClientConfig, Dialect, str] | None = None
        self._is_reset, self._stopped = False, ""
        self._problem = ""  # why the server could not be reached, as the user has read

    @property
    def subject(self) -> str:
        options = self._options
        if not options.space:
            return str(options.name)
        as_whom = ", with the space's own credentials" if options.space_credentials else ""
        return f"{options.name} in space {options.space}{as_whom}"

    @property
    def place(self) -> str:
        return f"{self.subject} at {self._config.server}"

    @property
    def full_place(self) -> str:
        if self._options.space:
            return self.place
        return f"{self.subject} ({self._config.namespace}) at {self._config.server}"

    @property
    def shows_more(self) -> bool:
        return not self._options.raw and self._options.first_output != START

    def again(self, why: str) -> NextSession | None:
        from twisted_exec.cli.console.interfaces import NextSession

        if not self._terminal.is_terminal or self._options.timeout:
            return None
        return NextSession(str(self._options.name), stopped=why)

    def make_script(self, reactor: Any) -> Script | None:
        return make_script(self._options, reactor)

    def explain(self, error: BaseException) -> str:
        options = self._options
        # With a Space, the context's namespace is one of another cluster.
        namespace = options.namespace or "default" if options.space else self._config.namespace
        config = self._at[0] if self._at is not None else self._config
        line = explain(error, namespace, config)
        if re.search(rf"(; |If so, ){ASK_FOR_ROLE} ", line):  # the refusal is long: its point
            line = f"you may not open {options.name}: {line}"
        return f"{line}; {self._hint}" if self._hint else line

    def _begin(self, source: int, sink: int) -> None:
        if not self._config.needs_plugin:
            self._open(source, sink, self._timeout_seconds)
            return
        from twisted_exec.cli.console.credential_plugin import run_plugin_in_terminal

        # Before the terminal is raw, because the plugin may prompt for a password.
        run_plugin_in_terminal(
            self._config,
            the_reactor(),
            self._session,
            interactive=self._terminal.is_terminal,
            timeout_seconds=self._timeout_seconds,
            then=lambda timeout: self._open(source, sink, timeout),
        ).addErrback(self._refused)

    def access(self) -> MachineAccess | None:
        from twisted_exec.cli.console.menu import MachineAccess

        if self._at is None:
            return None
        config, dialect, agent = self._at
        return MachineAccess(config, dialect, str(self._options.name), agent, the_reactor())

    def power_on(self) -> str:
        if self._at is None or self._options.space:
            return ""
        config, dialect, _ = self._at
        return power_on(dialect, str(self._options.name), config.namespace)

    @property
    def people(self) -> Callable[[str], Awaitable[Sequence[Person]]] | None:
        return self._people_here

    @property
    def tells_company(self) -> bool:
        return not self._options.no_presence

    async def _people_here(self, session: str) -> Sequence[Person]:
        # Imported here, because a short session lists nobody.
        from twisted_exec.cli.console.people import people_at

        access = self.access()
        assert access is not None  # the console is open
        return await people_at(access, session)

    def _follow(self, following: NextSession) -> None:
        super()._follow(following)
        self._hint = ""
        self._is_reset, self._stopped = following.reset, following.stopped
        self._problem = ""
        if self._at is not None:
            self._options.among = [self._at[1]]

    def attempt(
        self, user: ConsoleUser, reactor: Any, options: StreamOptions
    ) -> Deferred[ConsoleStream]:
        if not self._is_reset and not self._stopped:
            return self._attempt(user, reactor, options)
        from twisted.internet.defer import Deferred

        if self._stopped:
            escapes = self._options.escape
            leaves = f"{escapes.how_to_leave}, not Ctrl-C" if escapes else "Ctrl-C leaves"
            self._say(f"session ended: {one_line(self._stopped)}")
            self._say(f"A new session opens when the server is back ({leaves}).")
            return Deferred.fromCoroutine(self._attempt_again(user, reactor, options))
        from twisted_exec.cli.console.menu import switch_on_again

        access = self.access()
        assert access is not None
        self._say(f"{self._options.name} is being reset.")

        def is_on(_: None) -> Deferred[ConsoleStream]:
            self._is_reset = False
            return self._attempt(user, reactor, options)

        return Deferred.fromCoroutine(switch_on_again(access)).addCallback(is_on)

    async def _attempt_again(
        self, user: ConsoleUser, reactor: Any, options: StreamOptions
    ) -> ConsoleStream:
        from twisted.internet.task import deferLater

        from twisted_exec.api.status import APIError
        from twisted_exec.control.retries import Pauses
        from twisted_exec.kube.kubeconfig.client_config import KubeConfigError

        # The machine may be at another prompt when the server is back.
        self._session.discard_input(interrupts=self._options.escape is not None)
        # Neither a PokedLoop nor Retries: it ends with a stream, and waits for the kubeconfig, too; each
        # failure is shown to the user, who may leave.
        pauses, refusal, not_ready_since = Pauses(reactor), None, None
        while True:
            await deferLater(reactor, pauses.next_seconds(refusal))
            refusal = None
            try:
                if not self._config.needs_plugin:
                    # A server may write a new file at its start.
                    self._config = config_of(self._options)
                stream = await self._attempt(user, reactor, options)
            except KubeConfigError as error:
                # exec-standalone writes the file when it is ready.
                self._hindered(str(error))
            except APIError as error:
                if error.code < 500:
                    now = reactor.seconds()
                    not_ready_since = not_ready_since or now
                    if error.code not in _NOT_READY or now - not_ready_since > NOT_READY_SECONDS:
                        raise
                refusal = error
                self._hindered(explain(error))
            else:
                self._stopped = ""
                return stream

    def _hindered(self, problem: str) -> None:
        """Take note why no session opens yet; the user reads when that changes."""
        self._session.problem = one_line(problem).removeprefix("cannot reach ")
        if self._session.problem != self._problem:
            self._problem = self._session.problem
            self._inform(f"still waiting: {self._problem}")

    @property
    def step(self) -> str:
        return "switching it off and on" if self._is_reset else super().step

    def progress(self, seconds: int) -> str:
        if not self._stopped:
            return super().progress(seconds)
        from twisted_exec.wire.control_messages import keys_counted

        line = f"waiting for the server, {seconds} s"
        if count := self._session.discarded_keys:
            line += f"; {keys_counted(count)} will not be sent"
        return line

    def _attempt(
        self, user: ConsoleUser, reactor: Any, options: StreamOptions
    ) -> Deferred[ConsoleStream]:
        from twisted_exec.kube.console import AGENT, TIMEOUT_SECONDS, ConsoleOptions, open_console

        timeout = self._options.request_timeout or TIMEOUT_SECONDS

        def opened(config: ClientConfig, agent: str = AGENT) -> Deferred[ConsoleStream]:
            screen = self._first_screen(user, reactor, config.namespace, agent)

            def requested(current: ClientConfig, dialect: Dialect) -> None:
                self._at = current, dialect, agent
                if screen is not None:
                    screen.ask(current, dialect)

            opening = open_console(
                config,
                config.namespace,
                self._options.name,
                user if screen is None else screen,
                reactor,
                ConsoleOptions(
                    timeout_seconds=timeout,
                    stream=options,
                    among=self._options.among,
                    agent=agent,
                    reason=self._options.reason,
                    record=recorded_input_of(self._options),
                    resume=not self._options.no_resume,
                    silence_seconds=self._options.lost_after,
                ),
                requested=requested,
                connected=self._connected,
            )
            if screen is not None:
                opening.addErrback(screen.refused)
            return opening.addErrback(self._suggest, config, reactor)

        def requested_after(failure: Failure) -> Any:
            def approved(_: None) -> Deferred[ConsoleStream]:
                self._session.problem = ""
                return opened(self._config)

            return self._request(failure, reactor, options, timeout).addCallback(approved)

        if self._options.request:
            return opened(self._config).addErrback(requested_after)
        if not self._options.space:
            return opened(self._config)
        from twisted_exec.cli.console.space import visit

        visiting = visit(self._config, self._options, reactor)
        return visiting.addCallback(
            lambda visit: opened(visit.config, visit.agent).addErrback(visit.explain)
        )

    def _first_screen(
        self, user: Any, reactor: Any, namespace: str, agent: str
    ) -> FirstScreen | None:
        options, terminal = self._options, self._terminal
        if options.no_resume or self._script is not None:
            return None
        from twisted_exec.cli.console.first_screen import FirstScreen, state_reader

        begins = START if options.raw else options.first_output
        if begins == NOW or (not begins and not os.isatty(0)):
            return FirstScreen(user, reactor, terminal.size, None)
        if begins == START:
            return None
        if not (terminal.is_terminal and os.isatty(1) and not _is_dumb()):
            return None
        read = state_reader(options.name, namespace, reactor, options.reason, agent)
        self._screen = FirstScreen(user, reactor, terminal.size, read)
        return self._screen

    def _request(
        self, refusal: Failure, reactor: Any, options: StreamOptions, timeout: float
    ) -> Deferred[None]:
        from twisted.internet.defer import Deferred

        from twisted_exec.cli.console.approval import approval, is_required

        if not is_required(refusal.value):
            refusal.raiseException()
        self._end_progress()
        self._session.problem = "the request for approval waits for another user"
        waiting = approval(
            self._config,
            self._options.name,
            self._options.among,
            options,
            self._options.reason,
            reactor,
            self._report,
            timeout,
            refusal.value,
        )
        return Deferred.fromCoroutine(waiting)

    def _suggest(self, failure: Failure, config: ClientConfig, reactor: Any) -> Any:
        from twisted_exec.cli.suggestion import hint_after

        def found(hint: str) -> None:
            self._hint = hint

        looking = hint_after(failure.value, config, self._options.name, reactor)
        # The user reads the refusal in any case.
        return looking.addCallback(found).addBoth(lambda _: failure)


def _is_one_file() -> bool:
    try:
        return os.path.sameopenfile(1, 2)
    except OSError:  # one of them is closed
        return False


def _is_dumb() -> bool:
    return os.environ.get("TERM", "dumb") == "dumb"


def _write_message(text: bytes) -> None:
    with suppress(OSError):  # a terminal that is gone
        os.write(2, text)


def _collect_garbage() -> None:
    # Otherwise the first collection, and the one at Python's exit, visit all of it: a quarter of the CPU time of a
    # short session.
    gc.freeze()
    gc.set_threshold(_UNCOLLECTED)
    gc.enable()


def _watch_network(changed: Callable[[], None]) -> Callable[[], None]:
    # Imported here, because most sessions never lose their connection.
    from twisted_exec.cli.console.network_changes import watch_network

    return watch_network(changed, the_reactor())


def the_reactor() -> Any:
    """Return the reactor, as ``Any``: mypy knows only parts of its interface."""
    from twisted.internet import reactor

    return reactor


def start_log() -> None:
    """Send the log with its tracebacks to the configured file, or drop it."""
    from twisted.logger import globalLogBeginner, textFileLogObserver

    observers = []
    path = os.environ.get("TWISTED_EXEC_LOG")
    if path:
        observers.append(textFileLogObserver(open(path, "a", encoding="utf-8")))  # noqa: SIM115
    globalLogBeginner.beginLoggingTo(observers, redirectStandardIO=False, discardBuffer=True)
