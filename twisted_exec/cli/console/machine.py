"""
``kubectl console``: the console of a machine of an API server, opened again when that is needed.
"""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from twisted_exec.api.dialects import Dialect
from twisted_exec.api.status import APIError, NotFound
from twisted_exec.cli.advice import KUBECTL, Advice
from twisted_exec.cli.console.first_screen import FirstScreen, Past, state_reader
from twisted_exec.cli.console.interfaces import NextSession
from twisted_exec.cli.console.options import (
    NOW,
    START,
    Parser,
    has_script,
    recorded_input_of,
)
from twisted_exec.cli.console.people import Person, people_at
from twisted_exec.cli.console.process import the_reactor
from twisted_exec.cli.console.program import ConsoleProgram, conclude
from twisted_exec.cli.console.session import Outcome
from twisted_exec.cli.console.streams import StandardStreams, UserStreams
from twisted_exec.cli.explanations import doctor_hint, explain, not_allowed
from twisted_exec.cli.options import config_of
from twisted_exec.cli.refusal_texts import lacking_right, with_next_request
from twisted_exec.kube.console import ConsoleOptions, open_console
from twisted_exec.kube.kubeconfig.client_config import ClientConfig, KubeConfigError
from twisted_exec.kube.machine_requests import AGENT, TIMEOUT_SECONDS
from twisted_exec.streaming.remotecommand.stream import ConsoleStream, ConsoleUser
from twisted_exec.wire.stream_options import StreamOptions
from twisted_exec.wire.typed_keys import keys_counted

if TYPE_CHECKING:
    from twisted.internet.interfaces import IReactorTime

    from twisted_exec.cli.console.approval import ApprovalWait
    from twisted_exec.cli.console.menu import MachineAccess
    from twisted_exec.cli.console.script import Script


WHEN_INTERRUPTED = "Ctrl-C ends this program; the machine may then stay powered off."
"""Users read this while a machine is off for a reset."""


def run(options: argparse.Namespace) -> int:
    """Open a console until it ends; return the exit code."""
    try:
        config = config_of(options)
    except KubeConfigError as error:
        return conclude(Outcome(Parser.failure_code, str(error)), False)
    streams = StandardStreams()
    return conclude(*MachineConsole(options, config, streams).run(streams))


class MachineConsole(ConsoleProgram):
    """
    The console of a machine.

    :cvar agent: the client's name in the audit.
    :ivar advice: the words of remedies.
    """

    agent = AGENT
    advice: Advice = KUBECTL

    def __init__(
        self, options: argparse.Namespace, config: ClientConfig, streams: UserStreams
    ) -> None:
        super().__init__(options, streams)
        self._config = config
        self._hint = ""
        self._at: tuple[ClientConfig, Dialect, str] | None = None
        self._is_reset = False
        self._wait: ApprovalWait | None = None  # the present one
        self._is_off = False  # for a reset, which has to power the machine on again

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

    def make_script(self, reactor: Any) -> Script | None:
        if not has_script(self._options):
            return None
        return make_script(self._options, reactor, self._streams)

    def explain(self, error: BaseException) -> str:
        options = self._options
        # With a Space, the context's namespace is one of another cluster.
        namespace = options.namespace or "default" if options.space else self._config.namespace
        config = self._at[0] if self._at is not None else self._config
        if isinstance(error, APIError):
            self._name_all_rights(error)
        line = not_allowed(
            error, explain(error, namespace, config, self.advice), options.name, "open"
        )
        hint = self._hint
        if not options.space:  # twisted-exec doctor has no --space
            hint = hint or doctor_hint(error, options.name, namespace, self.advice)
        return f"{line}; {hint}" if hint else line

    def _name_all_rights(self, refusal: APIError) -> None:
        """Have the refusal of the console itself name the rights for ``--force`` and ``--record``, too."""
        right = lacking_right(refusal)
        if self._at is None or right is None or right.subresource != "exec":
            return
        if recorded_input_of(self._options):
            # Imported here: most consoles need no schema, and the program starts faster without them.
            from twisted_exec.api.kinds import CONSOLERECORDINGS

            with_next_request(refusal, "create", "", CONSOLERECORDINGS.resource)
        if self._options.force:
            with_next_request(refusal, "takeover", "console", self._at[1].workload)

    def _concluded(self, outcome: Outcome) -> Outcome:
        if self._is_off:
            remedy = f"; power it on: {command}" if (command := self.power_on()) else ""
            line = f"{outcome.line.removesuffix('.')}; " if outcome.line else ""
            line += f"{self._options.name} stays powered off{remedy}"
            outcome = replace(outcome, line=line)
        return outcome

    def begin(self) -> None:
        if not self._config.needs_plugin:
            self._open(self._timeout_seconds)
            return
        from twisted_exec.cli.console.credential_plugin import run_plugin_in_terminal

        # Before the terminal is raw, because the plugin may prompt for a password.
        run_plugin_in_terminal(
            self._config,
            the_reactor(),
            self._session,
            interactive=self._streams.shares_terminal,
            timeout_seconds=self._timeout_seconds,
            then=self._open,
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
        return self.advice.power_on(dialect, str(self._options.name), config.namespace)

    @property
    def people(self) -> Callable[[str], Awaitable[Sequence[Person]]] | None:
        return self._people_here

    @property
    def tells_company(self) -> bool:
        return not self._options.no_presence

    async def _people_here(self, session: str) -> Sequence[Person]:
        access = self.access()
        assert access is not None  # the console is open
        return await people_at(access, session)

    def _follow(self, following: NextSession) -> None:
        super()._follow(following)
        self._hint = ""
        self._is_reset = following.reset
        if self._at is not None:
            self._options.among = [self._at[1]]

    def attempt(
        self, user: ConsoleUser, reactor: Any, options: StreamOptions
    ) -> Deferred[ConsoleStream]:
        if not self._is_reset:
            return self._attempt(user, reactor, options)
        from twisted_exec.cli.console.menu import switch_on_again

        access = self.access()
        assert access is not None
        self._is_off = True
        self._tell(f"{self._options.name} is being reset. {WHEN_INTERRUPTED}")

        def switched_on() -> None:
            self._is_off = False

        def attempt(_: None) -> Deferred[ConsoleStream]:
            self._is_reset = False
            return self._attempt(user, reactor, options)

        return Deferred.fromCoroutine(switch_on_again(access, switched_on)).addCallback(attempt)

    @property
    def step(self) -> str:
        return "switching it off and on" if self._is_reset else super().step

    def progress(self, seconds: int) -> str:
        if self._wait is None:
            return super().progress(seconds)
        line = str(self._wait)
        if count := self._session.discarded_keys:
            line += f"; {keys_counted(count)} will not be sent"
        return line

    def _attempt(
        self, user: ConsoleUser, reactor: Any, options: StreamOptions
    ) -> Deferred[ConsoleStream]:
        timeout = self._options.request_timeout or TIMEOUT_SECONDS

        def opened(config: ClientConfig, agent: str = self.agent) -> Deferred[ConsoleStream]:
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

        async def requested_after(failure: Failure) -> ConsoleStream:
            stream: ConsoleStream | None = None

            async def attempt() -> bool:
                nonlocal stream
                try:
                    stream = await opened(self._config)
                except APIError:  # the attempt after the approval tells the user
                    return False
                return True

            await self._request(failure, reactor, options, timeout, attempt)
            return stream if stream is not None else await opened(self._config)

        if self._options.request:
            return opened(self._config).addErrback(
                lambda failure: Deferred.fromCoroutine(requested_after(failure))
            )
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
        options, streams = self._options, self._streams
        if options.no_resume or self._script is not None:
            return None
        past, begins = Past.SCREEN, START if options.raw else options.first_output
        has_screen = streams.reads_terminal and streams.prints_on_terminal
        if begins == NOW or (not begins and not streams.reads_terminal):
            past = Past.HIDDEN
        elif not has_screen:
            return None
        elif begins == START or streams.is_dumb:
            # Also the output as it was printed may clear the screen, and the greeting with it.
            past = Past.PRINTED
        read = None
        if has_screen and not streams.is_dumb:
            read = state_reader(options.name, namespace, reactor, options.reason, agent)
        self._screen = FirstScreen(user, reactor, streams.size, read, past)
        return self._screen

    async def _request(
        self,
        refusal: Failure,
        reactor: Any,
        options: StreamOptions,
        timeout: float,
        attempt: Callable[[], Awaitable[bool]],
    ) -> None:
        from twisted_exec.cli.console.approval import ApprovalWait, approval, is_required

        if not is_required(refusal.value):
            refusal.raiseException()
        self._end_progress()
        self._wait = wait = ApprovalWait(reactor)
        self._session.await_approval(wait.describe)
        self._begin_progress()
        try:
            await approval(
                self._config,
                self._options.name,
                self._options.among,
                options,
                self._options.reason,
                reactor,
                self._report,
                timeout,
                refusal.value,
                attempt,
                wait,
            )
        finally:
            self._wait = None
            self._end_progress()
        self._session.approved()
        if not self._session.is_attached:
            self._begin_progress()

    def _suggest(self, failure: Failure, config: ClientConfig, reactor: Any) -> Any:
        if not isinstance(failure.value, APIError) or failure.value.code != NotFound.code:
            return failure  # no hint needs another request, whose client takes a while to import
        from twisted_exec.cli.suggestion import hint_after

        def found(hint: str) -> None:
            self._hint = hint

        looking = hint_after(failure.value, config, self._options.name, reactor, self.advice)
        # The user reads the refusal in any case.
        return looking.addCallback(found).addBoth(lambda _: failure)


def make_script(options: argparse.Namespace, clock: IReactorTime, streams: UserStreams) -> Script:
    """Return the script of a command line that :func:`~.options.has_script`."""
    # Imported here: most sessions have no script.
    if options.script_command is not None:
        from twisted_exec.cli.console.shell_run import ShellRun

        script: Script = ShellRun(
            clock,
            options.script_command,
            force=options.force,
            remedies=streams.remedies(),
            machine=f'machine "{options.name}"',
        )
    else:
        from twisted_exec.cli.console.script import Expect

        script = Expect(clock, options.steps, limited=options.timeout is None)
    script.records = bool(recorded_input_of(options))
    return script
