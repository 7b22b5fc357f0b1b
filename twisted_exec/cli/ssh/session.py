"""
The sessions of one ssh connection: each is a console, or a command in a machine's shell.
"""

from __future__ import annotations

import argparse
import copy
import signal
from typing import Any

from twisted.internet.defer import Deferred, DeferredList

from twisted_exec.api.declared_reasons import check_reason
from twisted_exec.api.status import APIError, BadRequest
from twisted_exec.cli.advice import Advice
from twisted_exec.cli.console.machine import MachineConsole
from twisted_exec.cli.console.options import parse_options, script_problem
from twisted_exec.cli.console.session import Outcome
from twisted_exec.cli.messages import FAILED_CODE
from twisted_exec.cli.ssh.advice import REASON, SSH_HOSTS
from twisted_exec.cli.ssh.streams import ChannelStreams
from twisted_exec.kube.kubeconfig.client_config import ClientConfig
from twisted_exec.ssh.channel import ChannelEnd, SessionChannel, SessionRequest
from twisted_exec.wire.resize import TerminalSize

RUN, FORCE = "run", "force"
_SIGNAL_CODE = 128

WATCHES = (
    "this session has no terminal, so it only watches: what is typed is not sent (ssh -t types)"
)


class ConsoleSessions:
    """
    Begins sessions at one machine.

    :param options: of ``kubectl console NAME``.
    """

    def __init__(self, options: argparse.Namespace, config: ClientConfig, reactor: Any) -> None:
        self._options, self._config, self._reactor = options, config, reactor
        self._live: set[Deferred[None]] = set()

    def begin(self, channel: SessionChannel, request: SessionRequest) -> ChannelEnd:
        options = copy.copy(self._options)
        try:
            apply(options, request)
        except ValueError as problem:
            channel.tell(str(problem))
            channel.finish(refusal_code(request))
            return ChannelEnd()
        session = ChannelConsole(channel, request, options, self._config, self._reactor)
        over = session.begin()
        self._live.add(over)
        over.addCallback(lambda _: self._live.discard(over))
        return session

    def left(self) -> Deferred[Any]:
        """Fire when no session is left; those of a lost connection take a second at most."""
        return DeferredList([_after(each) for each in self._live])


def _after(over: Deferred[None]) -> Deferred[None]:
    copied: Deferred[None] = Deferred()
    over.addCallback(lambda _: copied.callback(None))
    return copied


def console_options(name: str) -> argparse.Namespace:
    """Return the options of ``kubectl console`` for a machine: the escape keys are ssh's."""
    return parse_options(["--escape", "none", "--", name])


def refusal_code(request: SessionRequest) -> int:
    """Return the exit code of a request that is refused: another one for commands, which have codes of their own."""
    words = (request.command or "").split(maxsplit=2)
    if words[:1] == [FORCE]:
        del words[0]
    return FAILED_CODE if words else 1


def declared_reason(request: SessionRequest) -> str:
    """
    Return the user's reason for a session; empty for none.

    :raises ValueError: it is not acceptable; the message is for the user.
    """
    try:
        return check_reason(request.environment.get("EXEC_REASON", ""))
    except BadRequest as error:
        raise ValueError(f"EXEC_REASON: {error.message}") from None


def apply(options: argparse.Namespace, request: SessionRequest, others: str = "") -> None:
    """
    Set the options of a request.

    :param others: further commands, for the message about a command that does not exist.

    :raises ValueError: it cannot be carried out; the message is for the user.
    """
    options.reason = declared_reason(request)
    word, _, command = (request.command or "").strip().partition(" ")
    if word == FORCE:
        options.force = True
        word, _, command = command.strip().partition(" ")
        if not word and request.terminal is None:
            raise ValueError(f"{FORCE} needs a terminal: ssh -t")
    if not word:
        options.read_only = request.terminal is None
        return
    if word != RUN:
        raise ValueError(
            f'there is no command "{_shown(word)}"; to run a command in the shell of '
            f"{options.name}: {RUN} COMMAND; to take over its console: {FORCE}{others}"
        )
    options.script_command = command.strip()
    if wrong := script_problem(options):
        raise ValueError(wrong.replace("--run", RUN))


def _shown(word: str) -> str:
    text = word[:64]
    return "".join(each if each.isprintable() else "?" for each in text)


class SSHConsole(MachineConsole):
    """The console of a machine, in a channel of ssh."""

    advice: Advice = SSH_HOSTS

    def explain(self, error: BaseException) -> str:
        line = super().explain(error)
        if isinstance(error, APIError):
            # Imported here: most consoles need no schema, and the program starts faster without them.
            from twisted_exec.api.kinds.consolepolicies import APPROVAL_REQUIRED, REASON_REQUIRED

            causes = {each.get("reason") for each in error.causes}
            is_of_reason = REASON_REQUIRED in causes and APPROVAL_REQUIRED not in causes
            if is_of_reason and REASON not in line:
                line += f"; by ssh: {REASON}"
        return line


class ChannelConsole(ChannelEnd):
    """
    A console, or a command, in a channel.

    :param options: of ``kubectl console``, with those of the request.
    """

    def __init__(
        self,
        channel: SessionChannel,
        request: SessionRequest,
        options: argparse.Namespace,
        config: ClientConfig,
        reactor: Any,
    ) -> None:
        has_user = options.script_command is None
        terminal = request.terminal if has_user else None
        is_on_screen = request.terminal is not None
        self._channel = channel
        self._streams = ChannelStreams(channel, reactor, terminal, is_on_screen=is_on_screen)
        self._console = self.make_console(options, config, self._streams)
        self._watches = has_user and terminal is None
        self._is_over = self._is_told = False

    def make_console(
        self, options: argparse.Namespace, config: ClientConfig, streams: ChannelStreams
    ) -> SSHConsole:
        return SSHConsole(options, config, streams)

    def begin(self) -> Deferred[None]:
        """Open the console; return what fires when the session is over."""
        over = self._console.prepare().addCallback(self._ended)
        self._console.begin()
        return over

    def end(self, line: str) -> None:
        """End the session; the user reads why."""
        if not self._is_over:
            self._console.end(line)

    def _ended(self, result: tuple[Outcome, bool]) -> None:
        outcome, mid_line = result
        self._is_over = True
        if self._streams.prints_on_terminal and mid_line:
            self._streams.write_message(b"\r\n")
        if outcome.line:
            self._streams.say(outcome.line)
        code = _SIGNAL_CODE + outcome.signal if outcome.signal else outcome.exit_code
        self._channel.finish(code)

    def received(self, data: bytes) -> None:
        if self._watches:
            if not self._is_told:
                self._is_told = True
                self._streams.say(WATCHES)
        else:
            self._streams.received(data)

    def resized(self, size: TerminalSize) -> None:
        self._streams.resize(size)
        if not self._is_over:
            self._console.window_changed()

    def break_requested(self) -> None:
        if not self._is_over:
            self._console.send_break()

    def full(self) -> None:
        self._streams.full()

    def drained(self) -> None:
        self._streams.drained()

    def hung_up(self) -> None:
        self._streams.hung_up()
        if not self._is_over:
            self._console.interrupted(signal.SIGHUP)
