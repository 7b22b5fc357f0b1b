"""
Hand-over of all parts of one process.

The parts freeze one after the other, each before those that it uses. In the new process the API
server accepts connections before the poollet starts.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from twisted.internet.defer import DeferredList, maybeDeferred
from twisted.logger import Logger

from twisted_exec.program.handover.interfaces import IHandsOver, ServiceState
from twisted_exec.program.handover.undo import UndoStack
from twisted_exec.program.listening import LISTENING, ListeningSockets
from twisted_exec.standalone.state import StateDirectory

SPACES, POOLLET, APISERVER, RUNTIME = "spaces", "poollet", "apiserver", "runtime"
"""Names of the parts in the state."""
_HANDOVER_ORDER = (SPACES, POOLLET, APISERVER, RUNTIME)
"""Each part uses some of those behind it."""


class PartsHandOver:
    """
    Hands all parts of one process over to another process, or continues those of another.

    :param state: its lock is handed over, too: no third process can take it meanwhile.
    """

    is_successor = is_retired = False
    _log = Logger()

    def __init__(self, state: StateDirectory, sockets: ListeningSockets = LISTENING) -> None:
        self._state, self._sockets = state, sockets
        self._parts: dict[str, IHandsOver] = {}
        self._inherited: dict[str, ServiceState] = {}
        self._undo = UndoStack()

    # The new process.

    def inherit(self, inherited: ServiceState) -> None:
        """See :meth:`.IHandsOver.inherit`; the parts inherit when they are added."""
        parts = inherited.values.get("parts")
        if not isinstance(parts, Mapping) or not inherited.descriptors:
            raise ValueError("the state of exec-standalone has parts and a lock")
        lock, *others = inherited.descriptors
        for name, (values, count) in parts.items():
            self._inherited[name] = ServiceState(values, others[:count])
            del others[:count]
        self.is_successor = True
        self._state.inherit(lock)

    def add(self, name: str, part: IHandsOver) -> None:
        """
        Take note of a part that is about to start.

        :raises ValueError: it cannot continue from the state of its predecessor.
        """
        self._parts[name] = part
        inherited = self._inherited.pop(name, None)
        if inherited is not None:
            part.inherit(inherited)

    # The old process.

    async def freeze(self) -> ServiceState:
        """
        See :meth:`.IHandsOver.freeze`.

        The program has paused the sockets, but the parts that freeze first need the API server.
        """
        self._sockets.accept()
        parts: dict[str, tuple[dict[str, Any], int]] = {}
        descriptors = [self._state.lock]
        self._undo.push(self._thaw_state)
        for name in _HANDOVER_ORDER:
            part = self._parts.get(name)
            if part is None:
                continue
            if name == APISERVER:
                self._sockets.pause()
                self._undo.push(self._accept)
            self._undo.push(partial(_thaw, part))
            frozen = await part.freeze()
            parts[name] = dict(frozen.values), len(frozen.descriptors)
            descriptors += frozen.descriptors
        return ServiceState({"parts": parts}, descriptors)

    async def _accept(self) -> None:
        self._sockets.accept()

    async def _thaw_state(self) -> None:
        self._state.name_holder()

    async def thaw(self) -> None:
        """See :meth:`.IHandsOver.thaw`: goes back from wherever :meth:`freeze` has come to."""
        await self._undo.undo()

    @property
    def is_frozen(self) -> bool:
        """True from :meth:`freeze` to :meth:`thaw` or :meth:`retire`."""
        return not self._undo.is_empty

    async def retire(self, linger_seconds: float) -> None:
        self.is_retired = True
        self._undo.clear()
        self._state.close()
        # In one turn of the reactor: each part cuts its sessions before it hears of another's cuts.
        names = [name for name in _HANDOVER_ORDER if name in self._parts]
        retiring = [maybeDeferred(self._parts[name].retire, linger_seconds) for name in names]
        results = await DeferredList(retiring, consumeErrors=True)
        for name, (succeeded, failure) in zip(names, results, strict=True):
            if not succeeded:
                self._log.failure("{name} was not left to the successor", failure, name=name)


async def _thaw(part: IHandsOver) -> None:
    await part.thaw()
