"""
The steps of a hand-over, in the old process: when its successor starts, and when it is given up.

SIGUSR2 starts the successor from this process's own command line. Once it has said hello, the
service freezes, and its state and the listening sockets move. If the successor fails, hangs or
takes too long (:class:`Patience`), it is killed, and this process goes on. Otherwise this process
serves its sessions until they end, for a limited time, and exits.

The time limits tell a slow successor from one that hangs: a start takes longer on a busy host, but
new connections and writes wait while the program is frozen.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, MutableMapping
from enum import Enum
from typing import Any

from twisted.internet.defer import CancelledError, Deferred, TimeoutError, maybeDeferred
from twisted.internet.error import ReactorNotRunning
from twisted.logger import Logger
from twisted.python.failure import Failure

from twisted_exec.program import systemd
from twisted_exec.program.handover.channel import Lingering, Message
from twisted_exec.program.handover.interfaces import (
    HANDOVER_SECONDS,
    LINGER_SECONDS,
    IHandsOver,
    ServiceState,
)
from twisted_exec.program.handover.patience import LONGEST_SECONDS, Patience
from twisted_exec.program.handover.predecessor import Predecessor, predecessor
from twisted_exec.program.handover.successor import HandOverError, ProcessCommand, Successor
from twisted_exec.program.handover.twistd import PidFile, append_to_log
from twisted_exec.program.listening import LISTENING, ListeningSockets
from twisted_exec.program.systemd import activated_sockets


class ProcessStage(Enum):
    """The stage of a process; the value is the answer to another SIGUSR2."""

    STARTING = "this program is not ready yet: the hand-over begins when it is"
    SERVING = ""
    HANDING_OVER = "a hand-over is under way already"
    RETIRED = "its successor has the program already, and needs the signal"
    STOPPING = "this program is stopping"


class HandOver:
    """
    Replaces this process by a successor, on request.

    :param linger_seconds: how long sessions that cannot move are served.
    :param limit_seconds: how long the successor may do nothing, and this process may take to get
        its state.
    """

    _log = Logger()

    def __init__(
        self,
        service: IHandsOver | None,
        reactor: Any,
        command: ProcessCommand,
        twistd: MutableMapping[str, Any] | None = None,
        *,
        lingering: Lingering,
        listening: ListeningSockets,
        linger_seconds: float = LINGER_SECONDS,
        limit_seconds: float = HANDOVER_SECONDS,
    ) -> None:
        self._service, self._reactor, self._command = service, reactor, command
        self._twistd, self.pidfile = twistd, PidFile(twistd)
        self._lingering, self._listening = lingering, listening
        self._is_requested = False  # before it was ready
        self._linger_seconds, self._limit_seconds = linger_seconds, limit_seconds
        self._longest_seconds = max(LONGEST_SECONDS, limit_seconds)
        self._state = ProcessStage.STARTING
        self._task: Deferred[None] | None = None
        self._successor: Successor | None = None

    def ready(self) -> None:
        """Take note that the program is ready."""
        if self._state is ProcessStage.STARTING:
            self._state = ProcessStage.SERVING
            if self._is_requested:
                self._reactor.callLater(0, self.begin)  # systemd learns first that it is ready

    def begin(self) -> None:
        """Start a successor, when the program is ready."""
        why = self._state.value
        if self._service is None:
            why = "this program cannot be continued by another process; restart it"
        elif self._state is ProcessStage.STARTING:
            self._is_requested = True
            self._log.info(why)
            return
        if why:
            self._log.warn("no hand-over: {why}", why=why)
            return
        self._state = ProcessStage.HANDING_OVER
        self._task = Deferred.fromCoroutine(self._hand_over(self._service))
        self._task.addErrback(self._crashed)

    def _crashed(self, failure: Failure) -> None:
        if not failure.check(CancelledError):  # this process stops
            self._log.failure("hand-over", failure)

    async def _hand_over(self, service: Any) -> None:
        systemd.notify(systemd.reloading())
        self._log.info("handing over: starting a successor")
        successor = self._successor = Successor(self._stop)
        has_frozen = False
        try:
            successor.spawn(self._reactor, self._command)
            patience = Patience(
                successor.pid, self._reactor, self._limit_seconds, self._longest_seconds
            )
            self._check(await self._patiently("start", successor.hello, patience))
            has_frozen = True
            self._listening.pause()
            frozen = await self._freeze(service)
            append_to_log(self._twistd)
            successor.move(frozen, self._listening.sockets(), self._lingering.descriptors())
            await self._patiently("become ready", successor.ready, patience)
        except (Exception, CancelledError) as problem:
            self._successor = None
            await successor.kill()
            if self._state is not ProcessStage.STOPPING:
                await self._go_on(problem, service if has_frozen else None)
            return
        await self._retire(successor, service)

    def _check(self, hello: Message) -> None:
        assert self._service is not None
        version, own = hello.get("version"), self._service.state_version
        if not isinstance(version, int) or version < own:
            raise HandOverError(
                f"release {hello.get('release')} has version {version} of the state, older than "
                f"version {own} of this process; stop this program to go back to that release"
            )

    async def _patiently(self, what: str, waiting: Deferred[Any], patience: Patience) -> Any:
        try:
            return await patience.wait(waiting)
        except TimeoutError:
            if patience.is_over:
                why = f"within {self._longest_seconds:g} s, although it went on"
            else:
                why = f"and did nothing for {self._limit_seconds:g} s (--handover-seconds)"
            raise HandOverError(f"it did not {what} {why}") from None

    async def _freeze(self, service: IHandsOver) -> ServiceState:
        try:
            freezing = maybeDeferred(service.freeze)
            return await freezing.addTimeout(self._limit_seconds, self._reactor)
        except TimeoutError:
            limit = f"{self._limit_seconds:g} s (--handover-seconds)"
            raise HandOverError(f"it did not get the state within {limit}") from None

    async def _go_on(self, problem: BaseException, frozen: IHandsOver | None) -> None:
        if frozen is not None:
            try:
                await maybeDeferred(frozen.thaw)
            except CancelledError:
                return  # this process stops meanwhile
            except Exception:
                self._log.failure("the program did not go on after a hand-over that failed")
            if self._state is ProcessStage.STOPPING:
                return  # a service may thaw nevertheless
            self._listening.accept()
        self._state = ProcessStage.SERVING
        systemd.notify(systemd.READY)
        if isinstance(problem, HandOverError):
            self._log.error(
                "no hand-over, this process goes on: the successor: {why}", why=str(problem)
            )
        else:
            self._log.failure("no hand-over, this process goes on", Failure(problem))

    async def _retire(self, successor: Successor, service: IHandsOver) -> None:
        self._state = ProcessStage.RETIRED
        self._listening.release()
        self.pidfile.leave()
        systemd.notify(systemd.replaced_by(successor.pid))
        os.environ.pop(systemd.VARIABLE, None)  # from now on the successor speaks for the service
        successor.go()
        self._lingering.leave()
        self._log.info("process {pid} has taken over", pid=successor.pid)
        try:
            await maybeDeferred(service.retire, self._linger_seconds)
        except CancelledError:
            return
        except Exception:
            self._log.failure("sessions could not be left to the successor")
        self._log.info("the last session has ended: this process stops")
        self._stop()

    def _stop(self) -> None:
        if self._state is ProcessStage.RETIRED:
            try:
                self._reactor.stop()
            except ReactorNotRunning:
                pass  # it is stopping already

    def abandon(self) -> None:
        """End a hand-over that is under way, because this process stops."""
        before, self._state = self._state, ProcessStage.STOPPING
        if before is ProcessStage.HANDING_OVER and self._task is not None:
            self._task.cancel()


_DRAIN_SECONDS = 5.0
_FAREWELL_SECONDS = 5.0
"""How much longer than its drain a predecessor may take to stop."""


class ProcessHandOver:
    """
    Both sides of hand-overs of this process.

    :raises ValueError: there is a predecessor whose state cannot be continued.
    :raises EOFError: there was a predecessor, which has ended.
    """

    def __init__(
        self,
        program: str,
        service: Any,
        reactor: Any,
        options: Mapping[str, Any],
        twistd: MutableMapping[str, Any] | None,
    ) -> None:
        self._service, self._reactor, self._twistd = service, reactor, twistd
        self._drain_seconds: float = options.get("drain-seconds") or _DRAIN_SECONDS
        hands_over = IHandsOver(service, None)
        self._lingering = Lingering()
        self._hand_over = HandOver(
            hands_over,
            reactor,
            ProcessCommand.own(),
            twistd,
            lingering=self._lingering,
            listening=LISTENING,
            linger_seconds=options.get("linger", LINGER_SECONDS),
            limit_seconds=options.get("handover-seconds", HANDOVER_SECONDS),
        )
        LISTENING.inherit(activated_sockets())
        self._predecessor = predecessor()
        if self._predecessor is not None:
            self._predecessor.take_over(program, hands_over, LISTENING)
            self._predecessor.attach(reactor, self._lingering)
        reactor.callWhenRunning(self._listen_to_signal)
        reactor.addSystemEventTrigger("before", "shutdown", self._stop)

    def _listen_to_signal(self) -> None:
        # A service that was made but not started, as by a tool that shows options, changes no process.
        is_debugged = self._twistd is not None and self._twistd.get("debug")
        if self._service.running and not is_debugged:
            signal.signal(
                signal.SIGUSR2, lambda *_: self._reactor.callFromThread(self._hand_over.begin)
            )

    def until_ready(self, ready: Deferred[None]) -> None:
        """Let a Deferred wait further, until the predecessor has left."""
        if self._predecessor is not None:
            ready.addCallback(self._take, self._predecessor)
        else:
            ready.addCallback(lambda _: LISTENING.close_unused())
        ready.addCallback(lambda _: self._hand_over.ready())

    async def _wait(self, predecessor: Predecessor) -> None:
        await predecessor.ready()
        append_to_log(self._twistd)
        self._hand_over.pidfile.take()
        self._reactor.addSystemEventTrigger("after", "shutdown", self._hand_over.pidfile.remove)

    def _take(self, _: None, predecessor: Predecessor) -> Deferred[None]:
        return Deferred.fromCoroutine(self._wait(predecessor))

    def _stop(self) -> Deferred[None]:
        self._hand_over.abandon()
        if self._predecessor is not None:
            self._predecessor.stopping()
        limit = self._drain_seconds + _FAREWELL_SECONDS
        stopped = self._lingering.stop().addTimeout(limit, self._reactor)
        return stopped.addErrback(lambda why: why.trap(TimeoutError))
