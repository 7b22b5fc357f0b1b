"""
Talk to a machine: wait for a prompt, type a command, read the answer.

    python docs/examples/expect_console.py console:demo-vm:kubeconfig=exec-state/admin.kubeconfig \\
        '=> ' 'echo q$arch'

The console is an ordinary Twisted endpoint with an ordinary endpoint string, so any protocol,
and any library that takes endpoints, can be connected to a machine.
"""

from __future__ import annotations

import sys
from typing import Any

from twisted.internet import defer, task
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import clientFromString, connectProtocol
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure


class Expect(Protocol):
    """
    The machine's output, with a Deferred that fires when an expected text appears.

    :ivar ended: fires when the session has ended.
    """

    def __init__(self) -> None:
        self.ended: Deferred[None] = Deferred()
        self._printed = b""
        self._awaited: tuple[bytes, Deferred[bytes]] | None = None
        self._lost: Failure | None = None

    def until(self, text: bytes) -> Deferred[bytes]:
        """Return a Deferred that fires with all output up to the end of ``text``, which it consumes."""
        match: Deferred[bytes] = Deferred(lambda _: setattr(self, "_awaited", None))
        self._awaited = text, match
        self._search()
        return match

    def all(self) -> bytes:
        """Return all output so far, which it consumes."""
        if self._lost is not None:
            self._lost.raiseException()
        printed, self._printed = self._printed, b""
        return printed

    def type(self, text: bytes) -> None:
        assert self.transport is not None
        self.transport.write(text)

    def dataReceived(self, data: bytes) -> None:
        self._printed += data
        self._search()

    def _search(self) -> None:
        if self._awaited is None or self._awaited[0] not in self._printed:
            return
        (text, match), self._awaited = self._awaited, None
        before, _, self._printed = self._printed.partition(text)
        match.callback(before + text)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        # The reason says why the session ended: "MachineDeleted: ..."
        self._lost = reason
        if self._awaited is not None:
            self._awaited[1].errback(reason)
        self.ended.callback(None)


async def prompted(console: Expect, prompt: bytes, reactor: Any, seconds: int = 60) -> None:
    """
    Press Ctrl-C every second until the machine answers with its prompt.

    Earlier output may have prompts, and several keys several answers.  So this consumes the output
    of whole seconds.
    """
    for _ in range(seconds):
        console.type(b"\x03")
        await task.deferLater(reactor, 1.0, lambda: None)
        if console.all().endswith(prompt):
            return
    raise defer.TimeoutError(f"no prompt within {seconds} s")


async def ask(console: Expect, command: bytes, prompt: bytes, reactor: Any) -> bytes:
    """Type a command; return its output without the echo and the prompt."""
    console.type(command + b"\r")
    await console.until(command + b"\r\n").addTimeout(10, reactor)
    answer = await console.until(prompt).addTimeout(10, reactor)
    return answer.removesuffix(prompt)


async def main(reactor: Any, endpoint: str, prompt: str, *commands: str) -> None:
    console = await connectProtocol(clientFromString(reactor, endpoint), Expect())
    try:
        await prompted(console, prompt.encode(), reactor)
        for command in commands:
            answer = await ask(console, command.encode(), prompt.encode(), reactor)
            print(answer.decode(errors="replace").replace("\r", ""), end="")
    finally:
        console.transport.loseConnection()
        # The console takes the session of a program that ends before for one with a lost connection.
        await console.ended


if __name__ == "__main__":
    task.react(lambda reactor: Deferred.fromCoroutine(main(reactor, *sys.argv[1:])))
