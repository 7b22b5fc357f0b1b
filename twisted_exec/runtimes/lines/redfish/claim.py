"""
One machine's claim on a BMC: the facts on its server, its power state, and its condition ``ConsoleLine``.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

from twisted.internet.defer import CancelledError, Deferred

from twisted_exec.api.conditions import POWER_UNKNOWN
from twisted_exec.api.status import APIError
from twisted_exec.control.loop import PokedLoop
from twisted_exec.runtimes.interfaces import CannotStart, MachineFacts
from twisted_exec.runtimes.lines.redfish.client import Answer
from twisted_exec.runtimes.lines.redfish.discovery import Server, discover
from twisted_exec.runtimes.lines.redfish.documents import Document, text
from twisted_exec.runtimes.lines.redfish.line_mark import LineMark
from twisted_exec.runtimes.lines.redfish.options import RedfishLine
from twisted_exec.runtimes.lines.redfish.power_watch import OFF, OFF_BY_OTHERS, PowerWatch
from twisted_exec.runtimes.lines.redfish.sessions import Sessions

_T = TypeVar("_T")

BMC_FAILED = "BMCFailed"
"""Reason of the machine's condition: the BMC cannot be reached, or its answers make no sense."""

OPENING = "Opening"

CLOSED = "Closed"
"""Reason of the condition ``ConsoleLine``, and of requests behind the end of a claim."""

LOOK_SECONDS = 30.0
"""Longest time between looks at the power state."""
LEAST_LOOK_SECONDS = 10.0
"""Shortest time, whatever the BMC says of its sessions: each look may have an Event. Redfish has 30 s as the least timeout."""

_RESET_IT = "set spec.power to Off and then to On, as a reset does, to switch it on"
_AT_ITS_BMC = "switch it on at its BMC: its class does not switch the power (power: true)"

_FEW_FAILURES = 3
"""A BMC that is busy for a moment refuses fewer looks in succession."""

_SHARE_OF_SESSION = 0.4  # looks keep the session, which must be used before half of its timeout


class Claim:
    """
    From :meth:`.BMC.claim` to :meth:`end`, which a release of the BMC calls, and a row of a list that has changed.

    Behind its end it sends nothing and describes nothing: the BMC may be another machine's.

    :param sessions: with the BMC; they outlive the claim.
    :param mark: of the BMC's console.
    """

    def __init__(
        self,
        line: RedfishLine,
        facts: MachineFacts,
        sessions: Sessions,
        mark: LineMark,
        reactor: Any,
    ) -> None:
        self.line, self.facts = line, facts
        self._sessions, self._mark, self._reactor = sessions, mark, reactor
        self._watch = PowerWatch(facts)
        self._server: Server | None = None
        self._looks: PokedLoop | None = None
        self._has_line = self._has_ended = False
        self._unknown = ""  # why nothing is known of the power now
        self._requests: set[Deferred[Any]] = set()  # under way
        self._description = self._told = ("", "", "")

    def end(self, reason: str = CLOSED, message: str = "the console is closed") -> None:
        """
        End the claim and its requests.

        :param reason: with the message, for the condition of a console that is open.
        """
        if self._has_ended:
            return
        if self._description[0] == "True":
            self.describe("False", reason, message)
        self._has_ended = True
        if self._has_line:
            self._mark.remove()
        for request in tuple(self._requests):
            request.cancel()
        if self._looks is not None:
            self._looks.stop()

    # Requests.

    async def get(self, path: str) -> Document:
        """
        Return a document of the BMC; see :meth:`.Sessions.get`.

        :raises CannotStart: the claim has ended, perhaps meanwhile.
        """
        self._check()
        return await self._until_end(self._sessions.get(path))

    async def send(self, method: str, path: str, body: Mapping[str, object]) -> Answer:
        """Send a request; see :meth:`get` and :meth:`.Sessions.send`."""
        self._check()
        return await self._until_end(self._sessions.send(method, path, body))

    async def _until_end(self, requesting: Coroutine[Any, Any, _T]) -> _T:
        # A request may wait for a login, behind which the BMC is another machine's.
        request = Deferred.fromCoroutine(requesting)
        self._requests.add(request)
        try:
            return await request
        except CancelledError:
            self._check()
            raise
        finally:
            self._requests.discard(request)

    @property
    def has_ended(self) -> bool:
        return self._has_ended

    def _check(self) -> None:
        if self._has_ended:
            raise CannotStart(CLOSED, "the machine does not have this server any more")

    # Facts on the server.

    async def server(self) -> Server:
        """
        Return the facts on the server, from the BMC if they are not known.

        :raises CannotStart: see :meth:`failed`.
        """
        if self._server is not None:
            return self._server
        if self._sessions.problem is not None:
            self.failed(self._sessions.problem)  # the next login may have to wait
        elif not self._description[1]:
            self.describe("False", OPENING, "the console is being opened")
        try:
            server = self._server = await discover(
                self.get, self.line.system, self.line.system_remedy
            )
        except APIError as problem:
            raise self.failed(problem) from None
        self._check()
        self.note_power(server.power_state)
        if self._looks is None:
            seconds = max(LEAST_LOOK_SECONDS, _SHARE_OF_SESSION * server.session_seconds)
            seconds = min(LOOK_SECONDS, seconds)
            self._looks = PokedLoop(self._look, self._reactor, seconds, refused=self._not_looked)
            self._looks.start(seconds)
        return server

    def failed(self, problem: APIError) -> CannotStart:
        """
        Forget the server, and describe why its console does not open.

        :return: the error with the reason of the machine's condition.
        """
        self.forget_server()
        reason = problem.condition if isinstance(problem, CannotStart) else BMC_FAILED
        self.describe("False", reason, problem.message)
        return CannotStart(reason, problem.message)

    def forget_server(self) -> None:
        """Read the facts anew next time, such as after a change of firmware."""
        self._server = None

    async def _look(self) -> None:
        """Use the session, follow the power state, and renew the mark."""
        if self._has_line:
            self._mark.write()
        if self._server is None:
            return  # the BMC does not answer, or is being asked
        notes = self._watch.notes
        state = text(await self.get(self._server.system), "PowerState")
        if self._watch.notes == notes:  # else a switch has seen a newer one meanwhile
            self.note_power(state)

    def _not_looked(self, problem: APIError, failures: int) -> None:
        """Warn of a console that stays open while its BMC refuses everything else, such as the login."""
        is_brief = failures < _FEW_FAILURES and not isinstance(problem, CannotStart)
        if self._has_ended or self._server is None or is_brief:
            return
        if not self._unknown:
            reason = problem.condition if isinstance(problem, CannotStart) else BMC_FAILED
            self.facts.event("Warning", reason, f"{POWER_UNKNOWN}{problem.message}")
        self._unknown = problem.message
        self._describe_again()

    def switched_off(self) -> None:
        """Expect that the server goes off; see :meth:`.PowerWatch.switched_off`."""
        self._watch.switched_off()

    def note_power(self, state: str) -> None:
        """Note a power state that the BMC reports."""
        if not self._has_ended:
            self._unknown = ""
            self._watch.note(state)
            remedy = _RESET_IT if self.line.power else _AT_ITS_BMC
            self.facts.found_off(f"{OFF_BY_OTHERS}; {remedy}" if self._watch.state == OFF else "")
            self._describe_again()

    # The console.

    def opened(self, is_exclusive: bool) -> None:
        """Note that the console is open."""
        self._has_line = is_exclusive
        if is_exclusive:
            self._mark.write()

    def keep_mark(self) -> None:
        """Leave the note, also behind the end: a later claim may end the session that the BMC still has."""
        self._has_line = False
        self._mark.write()

    def describe(self, status: str, reason: str, message: str) -> None:
        """Set the condition ``ConsoleLine`` of the machine."""
        self._description = (status, reason, message)
        self._describe_again()

    def _describe_again(self) -> None:
        status, reason, message = self._description
        if self._has_ended or not reason:
            return
        if self._unknown and status == "True":
            message = f"{POWER_UNKNOWN}{self._unknown}; {message}"
        elif self._watch.state == OFF:
            message += "; the server is off"
        if (status, reason, message) != self._told:
            self._told = (status, reason, message)
            self.facts.described(self._told)
