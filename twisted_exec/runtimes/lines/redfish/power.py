"""
The power of one server by Redfish.

The server is switched only for a user who changes ``spec.power``. A Machine that the runtime has
got otherwise, as after a restart, takes its server as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from twisted.internet.interfaces import IReactorTime

from twisted_exec.api.display import listed
from twisted_exec.api.status import APIError, BadGateway, ServiceUnavailable
from twisted_exec.control.polling import until
from twisted_exec.runtimes.interfaces import CannotStart, MachineFacts
from twisted_exec.runtimes.lines.redfish.claim import Claim
from twisted_exec.runtimes.lines.redfish.discovery import Server
from twisted_exec.runtimes.lines.redfish.documents import text
from twisted_exec.runtimes.lines.redfish.power_watch import OFF, ON

_ON_VALUES = ("On", "ForceOn")
_MAX_LISTED = 10
_GRACEFUL, _FORCE = "GracefulShutdown", "ForceOff"


class RedfishPower:
    """
    The switch of one server; see :class:`~twisted_exec.interfaces.Power`.

    :param claim: returns the machine's claim on its BMC; raises ``CannotStart``. A switch ends with its claim.
    :param off_seconds: time for a graceful shutdown.
    :param force: switch the server off if it does not shut down in that time.
    """

    def __init__(
        self,
        claim: Callable[[], Claim],
        facts: MachineFacts,
        clock: IReactorTime,
        *,
        off_seconds: float,
        force: bool,
        look_seconds: float = 2.0,
        on_seconds: float = 60.0,
    ) -> None:
        self._claim, self._facts = claim, facts
        self._clock, self._off_seconds, self._force = clock, off_seconds, force
        self._look_seconds, self._on_seconds = look_seconds, on_seconds

    async def on(self) -> None:
        """
        Switch the server on if it is off, and a user has switched the Machine on.

        :raises CannotStart: the server is not on.
        """
        if not self._facts.switches():
            return
        try:
            await _Switch(self._claim(), self._clock, self._look_seconds).on(self._on_seconds)
        except CannotStart:
            raise
        except APIError as problem:
            raise CannotStart("PowerFailed", problem.message) from None

    async def off(self) -> None:
        switch = _Switch(self._claim(), self._clock, self._look_seconds)
        why = await switch.shut_down(self._off_seconds)
        if not why:
            return
        if not self._force:
            raise ServiceUnavailable(
                f"{why}; force_off: true of the class would switch it off then"
            )
        await switch.force_off(self._on_seconds)
        self._facts.event("Warning", "SwitchedOff", f"{why}: it was switched off")


class _Switch:
    """One use of the switch, which ends with the claim."""

    def __init__(self, claim: Claim, clock: IReactorTime, look_seconds: float) -> None:
        self._claim, self._clock, self._look_seconds = claim, clock, look_seconds

    async def on(self, seconds: float) -> None:
        server = await self._claim.server()
        if await self._state(server) == ON:
            return
        await self._reset(server, _ON_VALUES)
        if not await self._becomes(server, ON, seconds):
            raise ServiceUnavailable(
                f"the server is not on {seconds:g} s after the BMC accepted that; see why on the BMC's own page"
            )

    async def shut_down(self, seconds: float) -> str:
        """Request a shutdown; return why the server is not off in time, or an empty text."""
        server = await self._claim.server()
        if await self._state(server) == OFF:
            return ""
        self._claim.switched_off()
        if server.reset_values and _GRACEFUL not in server.reset_values:
            return "the server cannot be asked to shut down"
        await self._reset(server, (_GRACEFUL,))
        self._claim.facts.shutting_down()
        if await self._becomes(server, OFF, seconds):
            return ""
        return f"the server did not shut down in {seconds:g} s"

    async def force_off(self, seconds: float) -> None:
        server = await self._claim.server()
        await self._reset(server, (_FORCE,))
        if not await self._becomes(server, OFF, seconds):
            raise ServiceUnavailable(
                f"the server is not off {seconds:g} s after the BMC accepted that; see why on the BMC's own page"
            )

    async def _reset(self, server: Server, values: Sequence[str]) -> None:
        """Request the first of several resets that the server has."""
        if not server.reset_target:
            raise BadGateway(
                "the BMC cannot switch this server: it has no reset action; remove power: true for it"
            )
        known = [each for each in values if each in server.reset_values]
        if not known and server.reset_values:
            raise BadGateway(
                f"the BMC has no reset {' or '.join(values)}, only {listed(server.reset_values, _MAX_LISTED)}"
            )
        body = {"ResetType": (known or values)[0]}
        await self._claim.send("POST", server.reset_target, body)

    async def _becomes(self, server: Server, state: str, seconds: float) -> bool:
        async def is_so() -> bool:
            try:
                return await self._state(server) == state
            except APIError:
                if self._claim.has_ended:
                    raise
                return False  # many BMCs are busy while they switch

        return await until(is_so, self._clock, self._look_seconds, seconds)

    async def _state(self, server: Server) -> str:
        state = text(await self._claim.get(server.system), "PowerState")
        self._claim.note_power(state)
        return state
