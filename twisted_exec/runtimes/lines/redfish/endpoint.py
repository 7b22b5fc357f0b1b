"""
The endpoint of a server's console: the first way that opens, of those that its BMC has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from twisted.internet.defer import CancelledError, Deferred, TimeoutError
from twisted.internet.interfaces import IProtocolFactory, IStreamClientEndpoint
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.python.failure import Failure
from zope.interface import implementer

from twisted_exec.api.status import APIError, message_of
from twisted_exec.program.tasks import as_deferred
from twisted_exec.runtimes.interfaces import CannotStart, IProbed
from twisted_exec.runtimes.lines.ipmi import TAKEN as SOL_TAKEN
from twisted_exec.runtimes.lines.ipmi import IPMIDriver, IPMILine
from twisted_exec.runtimes.lines.layer import LayeredEndpoint, LineLayer
from twisted_exec.runtimes.lines.redfish.bmc import BMC
from twisted_exec.runtimes.lines.redfish.claim import Claim
from twisted_exec.runtimes.lines.redfish.console_line import ConsoleLine
from twisted_exec.runtimes.lines.redfish.discovery import Server
from twisted_exec.runtimes.lines.redfish.entry import TAKEN, TAKEN_MESSAGE
from twisted_exec.runtimes.lines.redfish.quirks import Quirk, Transport, find
from twisted_exec.runtimes.lines.redfish.ranking import Choice, Ranking, Refused, rank
from twisted_exec.runtimes.lines.redfish.websocket import WebSocketEndpoint
from twisted_exec.runtimes.lines.ssh import SSHDriver, SSHLine
from twisted_exec.streaming.interfaces import LINE_LOST
from twisted_exec.tls.endpoints import client_endpoint

NO_CONSOLE = "NoConsole"
"""Reason of the machine's condition: none of the ways to the console opened."""

NO_PROGRAM, NO_HOST_KEY = "NoProgram", "NoHostKey"
"""Reasons of the machine's condition: a way needs a program, or the host's key, that is missing."""

PROBE_SECONDS = 3.0
ATTEMPT_SECONDS = 30.0
"""Time for one way, so that the others get theirs."""

_NAMES = {
    Transport.WEBSOCKET: "WebSocket",
    Transport.OPENBMC: "OpenBMC",
    Transport.SSH: "SSH",
    Transport.VENDOR_SSH: "VendorSSH",
    Transport.IPMI: "IPMI",
}
WITH_BREAK = (Transport.SSH, Transport.VENDOR_SSH, Transport.IPMI)
_WEB = (Transport.WEBSOCKET, Transport.OPENBMC)


class _Probes(Factory):
    noisy = False
    protocol = Protocol


@implementer(IStreamClientEndpoint, IProbed)
class ConsoleEndpoint:
    """
    Opens the console of one server, and describes the way in the machine's condition.

    ``connect()`` fails with :class:`~twisted_exec.interfaces.CannotStart` if no way opens.
    """

    def __init__(
        self,
        bmc: BMC,
        claim: Claim,
        quirks: Sequence[Quirk],
        ssh: SSHDriver,
        ipmi: IPMIDriver,
        reactor: Any,
    ) -> None:
        self._bmc, self._claim, self._quirks = bmc, claim, quirks
        self._ssh, self._ipmi, self._reactor = ssh, ipmi, reactor
        self._is_away = False  # no TCP connection could be made lately

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[Any]:
        return Deferred.fromCoroutine(self._connect(protocolFactory))

    async def _connect(self, factory: IProtocolFactory) -> Any:
        server = await self._claim.server()
        try:
            return await self._open(server, factory)
        except CancelledError:
            raise
        except APIError as problem:
            raise self._claim.failed(problem) from None

    @as_deferred
    async def has_come_back(self) -> bool:
        """Try a TCP connection; return true for the first one after one that failed."""
        line, was_away = self._claim.line, self._is_away
        probe = client_endpoint(
            self._reactor, line.host, line.port, None, timeout_seconds=PROBE_SECONDS
        )
        try:
            connection: Any = await probe.connect(_Probes())
        except CancelledError:
            raise
        except Exception:
            self._is_away = True
            return False
        connection.transport.abortConnection()
        self._is_away = False
        return was_away

    async def _open(self, server: Server, factory: IProtocolFactory) -> Any:
        quirk = find(
            self._quirks, server.manufacturer, server.model, server.firmware, server.controller
        )
        ranking = _permitted(
            rank(server, quirk, self._claim.line.host), self._claim.line.transports
        )
        tried: list[str] = []
        reason = NO_CONSOLE
        for choice in ranking.choices:
            name = choice.transport.value
            try:
                protocol = await self._attempt(choice, quirk, factory)
            except CancelledError:
                raise
            except Exception as error:
                tried.append(f"not {name}: {_why(error)}")
                if isinstance(error, CannotStart) and reason == NO_CONSOLE:
                    reason = error.condition
                continue
            self._claim.opened(quirk.exclusive or server.max_sessions == 1)
            why = [f"the console is open by {name}: {choice.why}", *tried, *_texts(ranking.refused)]
            self._claim.describe("True", _NAMES[choice.transport], "; ".join(why))
            return protocol
        why = [*tried, *_texts(ranking.refused)]
        raise CannotStart(reason, f"no way to the console opens: {'; '.join(why)}")

    def _attempt(self, choice: Choice, quirk: Quirk, factory: IProtocolFactory) -> Deferred[Any]:
        opening = Deferred.fromCoroutine(self._open_by(choice, quirk, factory))
        return opening.addTimeout(ATTEMPT_SECONDS, self._reactor)

    async def _open_by(self, choice: Choice, quirk: Quirk, factory: IProtocolFactory) -> Any:
        is_ours = self._bmc.mark.is_recent()
        releases = is_ours or self._claim.line.steal
        try:
            return await self._layered(choice, quirk, False).connect(factory)
        except APIError as problem:
            is_taken = isinstance(problem, CannotStart) and problem.condition == TAKEN
            if not (is_taken or SOL_TAKEN in problem.message):
                raise
            if not releases:
                raise CannotStart(TAKEN, TAKEN_MESSAGE) from None
        whose = "an earlier run of this runtime" if is_ours else "another client (steal: true)"
        self._claim.facts.event(
            "Warning", "ConsoleReleased", f"the console's session of {whose} is ended"
        )
        return await self._layered(choice, quirk, True).connect(factory)

    def _layered(self, choice: Choice, quirk: Quirk, releases: bool) -> LayeredEndpoint:
        has_break = choice.transport in WITH_BREAK

        def watch(upper: Any) -> _WatchedLine:
            return _WatchedLine(upper, has_break, self._lost)

        return LayeredEndpoint(self._endpoint(choice, quirk, releases), watch)

    def _endpoint(self, choice: Choice, quirk: Quirk, releases: bool) -> IStreamClientEndpoint:
        if choice.transport in _WEB:
            return self._websocket(choice, quirk)
        if choice.transport is Transport.IPMI:
            return self._sol(choice, releases)
        return self._shell(choice, quirk, releases)

    def _websocket(self, choice: Choice, quirk: Quirk) -> IStreamClientEndpoint:
        return WebSocketEndpoint(
            self._bmc.client.endpoint,
            self._bmc.client.host_header,
            choice.targets,
            self._bmc.sessions,
            self._reactor,
            keep_alive_seconds=quirk.keep_alive_seconds,
        )

    def _sol(self, choice: Choice, releases: bool) -> IStreamClientEndpoint:
        if missing := self._ipmi.missing():
            raise CannotStart(NO_PROGRAM, missing)
        line = self._claim.line
        server = IPMILine(
            line.host,
            choice.port,
            user=line.user,
            password_file=line.password_file,
            cipher_suite=line.cipher_suite,
            force=releases,
        )
        return self._ipmi.endpoint(self._claim.facts, server, self._claim.keep_mark)

    def _shell(self, choice: Choice, quirk: Quirk, releases: bool) -> IStreamClientEndpoint:
        if missing := self._ssh.missing():
            raise CannotStart(NO_PROGRAM, missing)
        line = self._claim.line
        if not line.known_hosts:
            raise CannotStart(
                NO_HOST_KEY,
                f"known_hosts is missing: ssh-keyscan -p {choice.port} {line.host} shows the key; compare it, write it "
                "to a file, and name that as known_hosts in the classes file",
            )
        rules = quirk if choice.has_shell else replace(quirk, prompts=())

        def enter(upper: Any) -> ConsoleLine:
            return ConsoleLine(
                upper, self._reactor, rules, choice.entries, upper.notify, releases=releases
            )

        server = SSHLine(
            line.host,
            choice.port,
            user=line.user,
            known_hosts=line.known_hosts,
            password_file=line.password_file,
        )
        shell = self._ssh.endpoint(self._claim.facts, server, is_shell=choice.has_shell)
        return LayeredEndpoint(shell, enter)

    def _lost(self, reason: Failure) -> None:
        error = reason.value
        self._claim.forget_server()
        if isinstance(error, CannotStart):
            self._claim.describe("False", error.condition, error.message)
        else:
            why = f"the console's connection has ended: {_why(error)}"
            self._claim.describe("False", LINE_LOST, why)


class _WatchedLine(LineLayer):
    """
    The upper layer of each way to the console.

    :param ended: called with the reason when a console that had begun has ended, unless this side has closed it.
    """

    def __init__(self, upper: Any, has_break: bool, ended: Callable[[Failure], None]) -> None:
        super().__init__(upper)
        self._has_break, self._ended = has_break, ended
        self._is_closing = False

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        if self._has_begun and not self._is_closing:
            self._ended(reason)
        super().connectionLost(reason)

    def loseConnection(self) -> None:
        self._is_closing = True
        super().loseConnection()

    def send_break(self, milliseconds: int) -> None:
        if self._has_break:
            self.transport.send_break(milliseconds)
        else:
            self.notify("this way to the console has no BREAK")


def _permitted(ranking: Ranking, transports: Sequence[Transport]) -> Ranking:
    """Return the ranking without the ways that the class does not permit."""
    others = [each for each in ranking.choices if each.transport not in transports]
    return Ranking(
        tuple(each for each in ranking.choices if each.transport in transports),
        (
            *ranking.refused,
            *(Refused(each.transport, "transports of the class lacks it") for each in others),
        ),
    )


def _texts(refused: Sequence[Refused]) -> list[str]:
    return [f"not {each.transport.value}: {each.why}" for each in refused]


def _why(error: BaseException | None) -> str:
    if isinstance(error, TimeoutError):
        return f"it did not open in {ATTEMPT_SECONDS:g} s"
    return error.message if isinstance(error, APIError) else message_of(error)
