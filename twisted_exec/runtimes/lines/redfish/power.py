"""
The power of one server by Redfish.

The server is switched only for a user who changes ``spec.power``. A Machine that the runtime has
got otherwise, as after a restart, takes its server as it is.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from twisted_exec.api.display import listed
from twisted_exec.api.status import APIError, BadGateway, ServiceUnavailable
from twisted_exec.control.polling import until
from twisted_exec.runtimes.interfaces import CannotStart, MachineFacts
from twisted_exec.runtimes.lines.redfish.discovery import Server
from twisted_exec.runtimes.lines.redfish.documents import text
from twisted_exec.runtimes.lines.redfish.sessions import Sessions

ON, OFF = "On", "Off"

_ON_VALUES = ("On", "ForceOn")
_MAX_LISTED = 10
_GRACEFUL, _FORCE = "GracefulShutdown", "ForceOff"


class PowerWatch:
    """Follows ``PowerState``: its changes become Events, and marks of boots in the journal."""

    def __init__(self, facts: MachineFacts) -> None:
        self._facts = facts
        self.state = ""

    def note(self, state: str) -> None:
        """Note a state that the BMC reports; empty if it reports none."""
        before, self.state = self.state, state or self.state
        if not before or state == before:
            return
        if state == ON:
            self._facts.event("Normal", "PoweredOn", "the server is on")
            self._facts.booted()
        elif state == OFF:
            self._facts.event("Normal", "PoweredOff", "the server is off")


class RedfishPower:
    """
    The switch of one server; see :class:`~twisted_exec.interfaces.Power`.

    :param discover: returns the facts on the server, from the BMC if they are not known yet.
    :param note: called with each power state that the BMC reports.
    :param off_seconds: time for a graceful shutdown.
    :param force: switch the server off if it does not shut down in that time.
    """

    def __init__(
        self,
        sessions: Sessions,
        discover: Callable[[], Awaitable[Server]],
        facts: MachineFacts,
        note: Callable[[str], None],
        clock: Any,
        *,
        off_seconds: float,
        force: bool,
        look_seconds: float = 2.0,
        on_seconds: float = 60.0,
    ) -> None:
        self._sessions, self._discover = sessions, discover
        self._facts, self._note = facts, note
        self._clock, self._off_seconds, self._force = clock, off_seconds, force
        self._look_seconds, self._on_seconds = look_seconds, on_seconds

    async def on(self) -> None:
        """
        Switch the server on if it is off, and a user has switched the Machine on.

        :raises CannotStart: the server is not on.
        """
        if not self._facts.was_switched():
            return
        try:
            server = await self._discover()
            if await self._state(server) == ON:
                return
            await self._reset(server, _ON_VALUES)
            if not await self._becomes(server, ON, self._on_seconds):
                raise ServiceUnavailable(
                    f"the server was not on {self._on_seconds:g} s after the BMC had accepted that"
                )
        except CannotStart:
            raise
        except APIError as problem:
            raise CannotStart("PowerFailed", problem.message) from None

    async def off(self) -> None:
        try:
            server = await self._discover()
            if await self._state(server) == OFF:
                return
            why = await self._shut_down(server)
            if not why:
                return
            if not self._force:
                raise ServiceUnavailable(
                    f"{why}, and stays on: force_off: true of the class would switch it off"
                )
            await self._reset(server, (_FORCE,))
            await self._becomes(server, OFF, self._on_seconds)
        except APIError as problem:
            self._facts.event("Warning", "PowerFailed", problem.message)
            return
        self._facts.event("Warning", "SwitchedOff", f"{why}: it was switched off")

    async def _shut_down(self, server: Server) -> str:
        """Request a shutdown; return why the server is not off in time, or an empty text."""
        if server.reset_values and _GRACEFUL not in server.reset_values:
            return "the server cannot be asked to shut down"
        await self._reset(server, (_GRACEFUL,))
        if await self._becomes(server, OFF, self._off_seconds):
            return ""
        return f"the server did not shut down in {self._off_seconds:g} s"

    async def _reset(self, server: Server, values: Sequence[str]) -> None:
        """Request the first of several resets that the server has."""
        if not server.reset_target:
            raise BadGateway("the BMC cannot switch this server: it has no reset action")
        known = [each for each in values if each in server.reset_values]
        if not known and server.reset_values:
            raise BadGateway(
                f"the BMC has no reset {' or '.join(values)}, only {listed(server.reset_values, _MAX_LISTED)}"
            )
        body = {"ResetType": (known or values)[0]}
        await self._sessions.send("POST", server.reset_target, body)

    async def _becomes(self, server: Server, state: str, seconds: float) -> bool:
        async def is_so() -> bool:
            try:
                return await self._state(server) == state
            except APIError:
                return False  # many BMCs are busy while they switch

        return await until(is_so, self._clock, self._look_seconds, seconds)

    async def _state(self, server: Server) -> str:
        state = text(await self._sessions.get(server.system), "PowerState")
        self._note(state)
        return state
