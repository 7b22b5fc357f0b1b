"""
A script that talks to a machine: wait for a prompt, type a command, read the answer.

    python docs/examples/expect_console.py console:demo-vm:kubeconfig=exec-state/admin.kubeconfig \\
        '=> ' 'echo q$arch'

The console is an ordinary Twisted endpoint, named by an ordinary endpoint string; so
any protocol, and any library that takes endpoints, can be connected to a machine.
"""

from __future__ import annotations

import sys
from typing import Any

from twisted.internet import task
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import clientFromString, connectProtocol
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure


class Expect(Protocol):
    """Collects what the machine prints, and tells when it has printed what is awaited."""

    def __init__(self) -> None:
        self._printed = b""
        self._awaited: tuple[bytes, Deferred[bytes]] | None = None

    def until(self, text: bytes) -> Deferred[bytes]:
        """Fires with everything up to and with ``text``; that is used up then."""
        found: Deferred[bytes] = Deferred(lambda _: setattr(self, "_awaited", None))
        self._awaited = text, found
        self._look()
        return found

    def type(self, text: bytes) -> None:
        assert self.transport is not None
        self.transport.write(text)

    def dataReceived(self, data: bytes) -> None:
        self._printed += data
        self._look()

    def _look(self) -> None:
        if self._awaited is None or self._awaited[0] not in self._printed:
            return
        (text, found), self._awaited = self._awaited, None
        before, _, self._printed = self._printed.partition(text)
        found.callback(before + text)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        # The reason says why the session ended: "MachineDeleted: ..."
        if self._awaited is not None:
            self._awaited[1].errback(reason)


async def prompted(console: Expect, prompt: bytes, reactor: Any, seconds: float = 60) -> None:
    """Press Enter each second until the machine shows its prompt."""
    knocking = task.LoopingCall(console.type, b"\r")
    knocking.clock = reactor
    knocking.start(1.0)
    try:
        await console.until(prompt).addTimeout(seconds, reactor)
    finally:
        knocking.stop()


async def ask(console: Expect, command: bytes, prompt: bytes, reactor: Any) -> bytes:
    """Type a command; what it printed, without its echo and the prompt."""
    console.type(command + b"\r")
    await console.until(command + b"\r\n").addTimeout(10, reactor)
    answer = await console.until(prompt).addTimeout(10, reactor)
    return answer.removesuffix(prompt)


async def main(reactor: Any, endpoint: str, prompt: str, *commands: str) -> None:
    console = await connectProtocol(clientFromString(reactor, endpoint), Expect())
    await prompted(console, prompt.encode(), reactor)
    for command in commands:
        answer = await ask(console, command.encode(), prompt.encode(), reactor)
        print(answer.decode(errors="replace").replace("\r", ""), end="")
    console.transport.loseConnection()


if __name__ == "__main__":
    task.react(lambda reactor: Deferred.fromCoroutine(main(reactor, *sys.argv[1:])))
