"""
A console for tests: its output, and waiting for expected output.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import connectProtocol
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure

from twisted_exec.kube.console_endpoint import ConsoleEndpoint
from twisted_exec.kube.kubeconfig.loader import load


class Screen(Protocol):
    """
    Collects what a console prints.

    :ivar output: all output so far.
    :ivar ended: fires with the reason of ``connectionLost``, an exception.
    """

    transport: Any

    def __init__(self) -> None:
        self.output = b""
        self.ended: Deferred[Any] = Deferred()
        self._reason: object = None
        self._waiting: list[tuple[re.Pattern[bytes], int, Deferred[int]]] = []

    def dataReceived(self, data: bytes) -> None:
        self.output += data
        waiting, self._waiting = self._waiting, []
        for pattern, start, found in waiting:
            self._look(pattern, start, found)

    def _look(self, pattern: re.Pattern[bytes], start: int, found: Deferred[int]) -> None:
        if found.called:
            return
        match = pattern.search(self.output, start)
        if match is None:
            self._waiting.append((pattern, start, found))
        else:
            found.callback(match.end())

    def until(self, pattern: bytes, *, start: int = 0, seconds: float = 600) -> Deferred[int]:
        """Fires with the offset behind the first match at or after ``start``."""
        found: Deferred[int] = Deferred()

        def late(result: object, timeout: float) -> Failure:
            tail = self.output[-2000:]
            return Failure(AssertionError(f"no {pattern!r} in {timeout} s, but {tail!r}"))

        found.addTimeout(seconds, reactor, onTimeoutCancel=late)
        self._look(re.compile(pattern), start, found)
        if self._reason is not None:
            self._fail(self._reason)
        return found

    def type(self, data: bytes) -> None:
        """Press keys."""
        self.transport.write(data)

    async def ask(self, line: bytes, pattern: bytes, *, seconds: float = 600) -> int:
        """Type a line and wait for an answer after the present output."""
        start = len(self.output)
        self.type(line)
        return await self.until(pattern, start=start, seconds=seconds)

    async def leave(self) -> None:
        """Close from this side and wait for the end."""
        self.transport.loseConnection()
        await self.ended

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._reason = reason.value
        self._fail(reason.value)
        self.ended.callback(reason.value)

    def _fail(self, reason: object) -> None:
        waiting, self._waiting = self._waiting, []
        for pattern, _, found in waiting:
            if not found.called:
                told = f"the console ended without {pattern.pattern!r}: {reason}"
                found.errback(AssertionError(f"{told}; {self.output[-2000:]!r}"))


def endpoint(
    kubeconfig: str, machine: str, *, resume: bool = False, **more: str
) -> IStreamClientEndpoint:
    """The console of a machine in the kubeconfig's namespace."""
    config = load(kubeconfig)
    return ConsoleEndpoint(
        config,
        config.namespace,
        machine,
        reactor,
        resume=resume,
        **more,  # type: ignore[arg-type]
    )


def watch(kubeconfig: str, machine: str, *, resume: bool = False, **more: str) -> Deferred[Screen]:
    """
    Open a machine's console.

    :param resume: connect again after a loss; the test then has to leave the console.
    :param more: further arguments of the endpoint, such as ``reason``.
    """
    return connectProtocol(endpoint(kubeconfig, machine, resume=resume, **more), Screen())


async def ending_after(
    open_console: Callable[[], Awaitable[Screen]],
    end: Callable[[], Awaitable[object]],
    undo: Callable[[], Awaitable[object]],
) -> Any:
    """
    Return why a session ended; a hop that is late is cut off before the reason has passed: then try again.

    :param end: ends the open session.
    :param undo: lets another session begin.
    """
    while True:
        screen = await open_console()
        await end()
        lost = await screen.ended
        if lost.ending is not None:
            return lost.ending
        await undo()
