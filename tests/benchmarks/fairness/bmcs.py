"""
The BMCs of the row ``bmc``, which misbehave when they are told to, in a process of their own.

``python -m tests.benchmarks.fairness.bmcs`` prints their ports, and the pin of all, as JSON.  Then it reads lines,
``misbehave``, ``behave`` or ``count``, and answers each with a line of JSON: how many requests there were at the BMCs of
each fault since the line before, how many bytes consoles have printed without end, and how many consoles are open.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet import stdio
from twisted.protocols.basic import LineReceiver

from tests.runtimes.bmc.console import ConsoleSocket
from tests.runtimes.bmc.faults import Faults, deep
from tests.runtimes.bmc.server import ROOT, SESSIONS, SmallBMC

reactor: Any = _reactor

_PIECE = (b"x" * 78 + b"\r\n") * 800


class _Flood:
    """Prints at a console as fast as it is read."""

    def __init__(self, bmc: Server, socket: ConsoleSocket) -> None:
        self._bmc, self._socket = bmc, socket
        socket.transport.unregisterProducer()  # the HTTP connection that it was before
        socket.transport.registerProducer(self, False)

    def resumeProducing(self) -> None:
        self._bmc.printed += len(_PIECE)
        self._socket.sendMessage(_PIECE, isBinary=True)

    def stopProducing(self) -> None:
        """The runtime has gone."""


class Server(SmallBMC):
    """
    One BMC.

    :ivar printed: bytes of its console so far.
    """

    printed = 0

    def flood(self) -> None:
        """Let its console print without end."""
        for socket in self.console.sockets:
            _Flood(self, socket)

    def hang_at_console(self) -> None:
        """Never answer the WebSocket."""
        self.console.hangs = True
        self.cut()

    def fail(self, **faults: Any) -> None:
        """Begin with faults; see :class:`Faults`."""
        self.faults = Faults(**faults)
        self.cut()

    def cut(self) -> None:
        """End its session and its connections."""
        self.expire()
        self.console.vanish()

    def behave(self) -> None:
        """End all faults; whatever is connected begins again."""
        self.faults = Faults()
        self.console.hangs = False
        self.waiting.clear()
        for connection in list(self._port.factory.protocols):
            connection.abortConnection()
        self.cut()


FAULTS: dict[str, Callable[[Server], None]] = {
    "100 MB": lambda bmc: bmc.fail(huge={"/redfish/v1/Systems"}),
    "hangs at login": lambda bmc: bmc.fail(hangs={f"POST {SESSIONS}"}),
    "hangs at root": lambda bmc: bmc.fail(hangs={ROOT}),
    "hangs at documents": lambda bmc: bmc.fail(hangs={"/redfish/v1/Systems"}),
    "hangs at console": Server.hang_at_console,
    "503": lambda bmc: bmc.fail(codes={"*": 503}),
    "depth": lambda bmc: bmc.fail(bodies={"*": deep()}),
    "flood": Server.flood,
}
"""Each is that of :data:`_EACH` BMCs."""
_EACH = 4


class _Rack(LineReceiver):
    delimiter = b"\n"

    def connectionMade(self) -> None:
        faults = _EACH * list(FAULTS)
        self._bmcs = [(Server("websocket").start(), fault) for fault in faults]
        self._say({"ports": [bmc.port for bmc, _ in self._bmcs], "pin": self._bmcs[0][0].pin})

    def lineReceived(self, line: bytes) -> None:
        requests: Counter[str] = Counter()
        printed = is_open = 0
        for bmc, fault in self._bmcs:
            requests[fault] += len(bmc.requests) + len(bmc.console.requests)
            printed += bmc.printed
            is_open += len(bmc.console.sockets)
            bmc.requests.clear()
            bmc.console.requests.clear()
            bmc.printed = 0
            if line == b"misbehave":
                FAULTS[fault](bmc)
            elif line == b"behave":
                bmc.behave()
        self._say({"requests": requests, "printed": printed, "open": is_open})

    def connectionLost(self, reason: Any = None) -> None:
        reactor.stop()

    def _say(self, what: object) -> None:
        self.sendLine(json.dumps(what).encode())


if __name__ == "__main__":
    stdio.StandardIO(_Rack())
    reactor.run()
