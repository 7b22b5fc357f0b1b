"""
What every program with a runtime in front has: a start that takes its time, and a probe of its door.
"""

from __future__ import annotations

from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.endpoints import HostnameEndpoint, connectProtocol
from twisted.internet.protocol import Protocol
from twisted.logger import Logger
from twisted.python.failure import Failure

from twisted_exec.iri.target import Target
from twisted_exec.tls.endpoints import unix_client_endpoint


class Starting(Service):
    """
    A service whose start is a coroutine, and may fail.

    Subclasses say what it does (:meth:`start`) and how that is undone (:meth:`stop`).

    :cvar told: what it is, for the log.
    """

    told = "machine runtime"
    _log = Logger()

    def __init__(self) -> None:
        self._starting: Deferred[None] | None = None
        self._waiting: list[Deferred[None]] = []
        self._outcome: Failure | bool = False

    async def start(self) -> None:
        """All that must be done until machines can be asked for."""
        raise NotImplementedError

    async def stop(self) -> None:
        """The contrary, also of a start that was not finished."""
        raise NotImplementedError

    def startService(self) -> None:
        """Start; problems end :meth:`when_ready`."""
        super().startService()
        self._starting = Deferred.fromCoroutine(self.start())
        self._starting.addCallbacks(lambda _: self._settle(True), self._failed)

    def when_ready(self) -> Deferred[None]:
        """Fires when machines can be asked for; fails when it cannot start."""
        waiting: Deferred[None] = Deferred()
        self._waiting.append(waiting)
        if self._outcome:
            self._settle(self._outcome)
        return waiting

    def stopService(self) -> Deferred[None]:
        """End the sessions, saying so, then all else; fires when nothing is left."""
        super().stopService()
        if self._starting is not None:
            self._starting.cancel()
        return Deferred.fromCoroutine(self.stop())

    def _failed(self, failure: Failure) -> None:
        if not failure.check(CancelledError):
            self._settle(failure)

    def _settle(self, outcome: Failure | bool) -> None:
        self._outcome = outcome
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            if isinstance(outcome, Failure):
                one.errback(outcome)
            else:
                one.callback(None)
        if isinstance(outcome, Failure) and not waiting:
            self._log.critical("{told}: {why}", told=self.told, why=outcome.getErrorMessage())


async def probe_iri(target: Target, reactor: Any) -> object:
    """:raises Exception: nobody can connect to where the runtime interface is served."""
    if target.is_unix:
        endpoint: Any = unix_client_endpoint(reactor, target.path)
    else:
        endpoint = HostnameEndpoint(reactor, _reachable(target.host), target.port)
    connection: Any = await connectProtocol(endpoint, Protocol())
    connection.transport.abortConnection()
    return None


def _reachable(host: str) -> str:
    """An address to connect to where one listens on ``host``, which may be all of them."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
