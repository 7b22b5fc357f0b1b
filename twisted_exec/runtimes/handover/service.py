"""
The hand-over of a whole runtime, in the order of its parts.

Each step of :meth:`RuntimeHandOver.freeze` has one that undoes it.  So :meth:`RuntimeHandOver.thaw`
can go on from wherever the freeze has come to.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred, TimeoutError

from twisted_exec.program.handover.interfaces import ServiceState
from twisted_exec.runtimes.handover.machines import MachinesHandOver
from twisted_exec.runtimes.handover.sessions import SessionsHandOver

if TYPE_CHECKING:
    from twisted_exec.runtimes.host import RuntimeHost

_SETTLE_SECONDS = 5.0
"""Longest wait of a new process for its machines; they are adopted within milliseconds."""


class RuntimeHandOver:
    """
    Hands one runtime over to another process, or continues that of another process.

    :ivar is_retired: another process has the machines and the sessions.
    """

    is_retired = False

    def __init__(self, host: RuntimeHost, reactor: Any) -> None:
        self._host, self._reactor = host, reactor
        self._machines = MachinesHandOver(host.runtime)
        self._sessions = SessionsHandOver(host.streams, host.cache, self._machines, reactor)
        self._inherited: Mapping[str, Any] | None = None
        self._undo: list[Callable[[], Awaitable[object]]] = []

    # The new process.

    def inherit(self, inherited: ServiceState) -> None:
        """Continue the runtime of another process at the start."""
        if not {"machines", "sessions"} <= inherited.values.keys():
            raise ValueError("the state of a runtime has machines and sessions")
        self._inherited = inherited.values

    async def prepare_machines(self) -> None:
        """Prepare the runtime, with the machines of another process if there is one."""
        if self._inherited is None:
            await self._host.runtime.prepare()
        else:
            await self._machines.prepare(self._inherited["machines"])

    async def prepare_sessions(self) -> None:
        """Continue the sessions of another process if there is one; its machines are prepared."""
        inherited, self._inherited = self._inherited, None
        if inherited is not None:
            self._sessions.restore(inherited["sessions"])
            settled = Deferred.fromCoroutine(self._machines.settle())
            try:
                await settled.addTimeout(_SETTLE_SECONDS, self._reactor)
            except TimeoutError:
                pass  # a machine that does not answer is started again later
        self._listen()

    def _listen(self) -> None:
        self._sessions.listen(self._host.runtime.directory)

    async def stop_listening(self) -> None:
        """Accept no predecessors any more."""
        await self._sessions.stop_listening()

    # The old process.

    async def freeze(self) -> ServiceState:
        """See :meth:`.IHandsOver.freeze`."""
        host = self._host
        self._machines.check()
        self._undo.append(self._thaw_streams)
        host.streams.freeze()
        self._undo.append(self._unsuspend_iri)
        suspended = Deferred.fromCoroutine(host.iri.suspend())
        # A poollet always waits for matches of alerts; without an answer that would take two seconds.
        self._machines.stop_alerts()
        await suspended
        await self._machines.settle()
        if host.shipping is not None:
            self._undo.append(self._ship_again)
            await host.shipping.stopService()  # before the journals close
        self._undo.append(self._listen_again)
        await self._sessions.stop_listening()
        self._machines.check()
        self._undo.append(self._machines.unsuspend)
        machines = await self._machines.suspend()
        return ServiceState({"machines": machines, "sessions": self._sessions.export()})

    async def thaw(self) -> None:
        """See :meth:`.IHandsOver.thaw`."""
        while self._undo:
            await self._undo.pop()()

    @property
    def is_frozen(self) -> bool:
        """True from :meth:`freeze` to :meth:`thaw` or :meth:`retire`."""
        return bool(self._undo) and not self.is_retired

    async def retire(self, seconds: float) -> None:
        """See :meth:`.IHandsOver.retire`."""
        self.is_retired = True
        self._undo.clear()
        await self._sessions.retire(seconds)

    async def _thaw_streams(self) -> None:
        self._host.streams.thaw()

    async def _unsuspend_iri(self) -> None:
        self._machines.start_alerts()
        self._host.iri.unsuspend()

    async def _ship_again(self) -> None:
        self._host.start_shipping()

    async def _listen_again(self) -> None:
        self._listen()
