"""
The sessions of one connection: consoles, and the commands that print a text.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from twisted_exec.api.status import APIError, Forbidden, Unauthorized
from twisted_exec.cli.console.space import visit
from twisted_exec.cli.explanations import explain
from twisted_exec.cli.messages import one_line
from twisted_exec.cli.ssh.session import (
    ChannelConsole,
    SSHConsole,
    apply,
    console_options,
    declared_reason,
    refusal_code,
)
from twisted_exec.cli.ssh.streams import ChannelStreams
from twisted_exec.cli.suggestion import explain_with_hint
from twisted_exec.kube.kubeconfig.client_config import ClientConfig, KubeConfigError
from twisted_exec.ssh.channel import ChannelEnd, SessionChannel, SessionRequest
from twisted_exec.ssh.people import LoginRefused, Person
from twisted_exec.sshd.advice import DoorAdvice
from twisted_exec.sshd.answers import AGENT, Flow, Place, answer
from twisted_exec.sshd.bounded_log import BoundedLog
from twisted_exec.sshd.commands import OTHERS, Command, Listing, is_text, parse_command
from twisted_exec.sshd.door_login import DoorLogin
from twisted_exec.sshd.targets import Target, parse_target
from twisted_exec.tls.errors import TLSConfigError
from twisted_exec.wire.endings import LOGIN_EXPIRED

_INTERRUPT, _INTERRUPTED_CODE = b"\x03", 130
_MOST_MESSAGE_CHARACTERS = 4096

Over = Deferred[None]


class DoorSessions:
    """
    Begins the sessions of a user.

    :param user_name: that of ssh, which selects a machine.
    :param left: called at the end of each session.
    :param log: has what concerns the operator.
    """

    def __init__(
        self,
        login: DoorLogin,
        person: Person,
        user_name: str,
        reactor: Any,
        refusal: Callable[[], str],
        left: Callable[[], None],
        log: BoundedLog,
    ) -> None:
        self._login, self._person, self._user_name = login, person, user_name
        self._reactor, self._refusal, self._left = reactor, refusal, left
        self._log = log
        self._live: dict[_Ending, Deferred[None]] = {}

    def begin(self, channel: SessionChannel, request: SessionRequest) -> ChannelEnd:
        try:
            command = parse_command(request.command)
            target = self._target(command)
            options = _options(target)
            if command is None:
                apply(options, request, OTHERS)
            else:
                options.reason = declared_reason(request)
            if refusal := self._refusal():
                raise ValueError(refusal)
            config = self._login.acting_as(self._person, target.namespace)
        except (ValueError, LoginRefused, KubeConfigError) as problem:
            channel.tell(str(problem))
            channel.finish(1 if is_text(request.command) else refusal_code(request))
            return ChannelEnd()
        session: _Ending
        if command is None:
            session = _Console(channel, request, options, config, self)
        else:
            session = _Text(channel, request, options, config, command, self)
        over = session.begin()
        self._live[session] = over
        over.addBoth(lambda _: self._ended(session))
        return session

    def _target(self, command: Command | None) -> Target:
        if isinstance(command, Listing):
            return command.where or Target("")
        return parse_target(self._user_name)

    def _ended(self, session: _Ending) -> None:
        del self._live[session]
        self._left()

    @property
    def count(self) -> int:
        return len(self._live)

    def end(self, line: str) -> None:
        """End all sessions; the users read why."""
        for each in list(self._live):
            each.end(line)

    def explain(self, error: BaseException, line: str) -> str:
        """Return the line about an error, as :func:`explain_at_door`; the log has it if it concerns the door."""
        explained = explain_at_door(error, line)
        if explained != line:
            self._note(explained if str(error) in explained else f"{explained}: {error}")
        return explained

    def explain_withdrawal(self, message: str, line: str) -> str:
        """
        Return the line about a session that the API server has ended, because a right is missing or a login is over.

        :param message: of the API server.
        """
        self._note(f"the API server has ended a session: {message}")
        if message.startswith(LOGIN_EXPIRED):
            return _DOOR_REFUSED
        return explain_at_door(Forbidden(message), line)

    def _note(self, what: str) -> None:
        self._log.info(
            "{user}: {what}", user=self._person.user, what=one_line(what[:_MOST_MESSAGE_CHARACTERS])
        )

    @property
    def reactor(self) -> Any:
        return self._reactor


class _Ending(ChannelEnd):
    """A session that the door can end."""

    def begin(self) -> Over:
        """Begin; return what fires when the session is over."""
        raise NotImplementedError

    def end(self, line: str) -> None:
        """End the session; the user reads why."""
        raise NotImplementedError


@cache
def _template() -> argparse.Namespace:
    return console_options("machine")


def _options(target: Target) -> argparse.Namespace:
    """Return the options of ``kubectl console`` for a machine."""
    options = copy.copy(_template())
    options.name = target.name
    options.namespace, options.space = target.namespace, target.space
    return options


_DOOR_REFUSED = (
    "the API server does not accept the login of the ssh door, which is not yours: "
    "ask the operator of the door"
)


def explain_at_door(error: BaseException, line: str) -> str:
    """Return the line about an error, with what concerns the door and not its user."""
    if isinstance(error, KubeConfigError):
        return "the ssh door cannot use its own login at the API server: ask its operator"
    if not isinstance(error, APIError):
        return line
    if error.code == Unauthorized.code:
        return _DOOR_REFUSED
    if error.code == Forbidden.code and "cannot impersonate" in error.message:
        return f"the ssh door may not act as you, its operator has to allow that: {error.message}"
    if error.code == Forbidden.code and "impersonated users do not count" in error.message:
        return f"{line}; by ssh you are impersonated, and kubectl console connects as yourself"
    return line


class _DoorConsole(SSHConsole):
    agent = AGENT

    def __init__(
        self,
        options: argparse.Namespace,
        config: ClientConfig,
        streams: ChannelStreams,
        sessions: DoorSessions,
    ) -> None:
        super().__init__(options, config, streams)
        self._sessions = sessions
        self.advice = DoorAdvice(options.space)

    def explain(self, error: BaseException) -> str:
        return self._sessions.explain(error, super().explain(error))

    def withdrawn(self, message: str) -> str:
        return self._sessions.explain_withdrawal(message, super().withdrawn(message))


class _Console(ChannelConsole, _Ending):
    def __init__(
        self,
        channel: SessionChannel,
        request: SessionRequest,
        options: argparse.Namespace,
        config: ClientConfig,
        sessions: DoorSessions,
    ) -> None:
        self._sessions = sessions
        super().__init__(channel, request, options, config, sessions.reactor)

    def make_console(
        self, options: argparse.Namespace, config: ClientConfig, streams: ChannelStreams
    ) -> SSHConsole:
        return _DoorConsole(options, config, streams, self._sessions)


class _Refused(Exception):
    """A request was refused; the message is for the user."""


class _Text(_Ending):
    """A command that prints a text."""

    _log = Logger()

    def __init__(
        self,
        channel: SessionChannel,
        request: SessionRequest,
        options: argparse.Namespace,
        config: ClientConfig,
        command: Command,
        sessions: DoorSessions,
    ) -> None:
        self._channel, self._options, self._config = channel, options, config
        self._command, self._sessions = command, sessions
        self._reactor = sessions.reactor
        self._is_terminal = request.terminal is not None
        self._flows: Sequence[Flow] = ()  # at most one
        self._over: Deferred[None] = Deferred()
        self._answering: Deferred[Any] = Deferred()
        self._is_over = False

    def begin(self) -> Over:
        self._answering = Deferred.fromCoroutine(self._answer())
        self._answering.addCallbacks(lambda _: self._finish(0), self._failed)
        return self._over

    async def _answer(self) -> None:
        config, name = self._config, str(self._options.name)
        advice = DoorAdvice(self._options.space)
        try:
            if self._options.space:
                config = (await visit(config, self._options, self._reactor)).config
            await answer(
                self._command, Place(config, name, self._reactor, self._options.reason), self
            )
        except APIError as error:
            act, what = ("use", name) if name else ("list", "machines")
            line = await explain_with_hint(error, config, what, self._reactor, act, advice)
            raise _Refused(self._sessions.explain(error, line)) from None

    def _failed(self, failure: Failure) -> None:
        error = failure.value
        if isinstance(error, CancelledError):
            self._finish(_INTERRUPTED_CODE)
            return
        if isinstance(error, _Refused):
            line = str(error)
        elif isinstance(error, KubeConfigError | TLSConfigError):
            line = self._sessions.explain(error, explain(error))
        else:
            self._log.failure("a command of ssh failed", failure)
            line = "internal error: the log of the ssh door has it"
        if not self._is_over:
            self.say(line)
        self._finish(1)

    def _finish(self, code: int) -> None:
        if not self._is_over:
            self._is_over = True
            self._channel.finish(code)
            self._over.callback(None)

    # Of the answer.

    def write(self, data: bytes) -> None:
        if self._is_terminal:
            data = data.replace(b"\n", b"\r\n")
        if not self._is_over and data:
            self._channel.write(data)

    def say(self, line: str) -> None:
        self._channel.tell(one_line(line[:_MOST_MESSAGE_CHARACTERS]))

    def flows(self, flow: Flow) -> None:
        self._flows = (flow,)
        if self._channel.is_full:
            flow.pause()

    # Of the user.

    def received(self, data: bytes) -> None:
        if self._is_terminal and _INTERRUPT in data:
            self._answering.cancel()

    def full(self) -> None:
        for each in self._flows:
            each.pause()

    def drained(self) -> None:
        for each in self._flows:
            each.resume()

    def hung_up(self) -> None:
        self._answering.cancel()

    def end(self, line: str) -> None:
        if not self._is_over:
            self.say(line)
            self._finish(1)
            self._answering.cancel()
