"""
Append what a machine prints to a file, and say there where output may be missing.

    python docs/examples/save_console.py console:demo-vm:kubeconfig=exec-state/admin.kubeconfig FILE

A protocol without these two interfaces reads the messages in its output, between the bytes of the
machine, and does not learn how long the connection was lost.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, BinaryIO

from twisted.internet import task
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import clientFromString, connectProtocol
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure
from zope.interface import implementer

from twisted_exec.interfaces import IRecordedProtocol, IResumableProtocol, OpenRecording


@implementer(IResumableProtocol, IRecordedProtocol)
class SavedConsole(Protocol):
    """
    A machine's output in a file.

    :ivar ended: fires with the reason of the end.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.ended: Deferred[str] = Deferred()

    def dataReceived(self, data: bytes) -> None:
        self._file.write(data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.ended.callback(reason.getErrorMessage())

    def _say(self, text: str) -> None:
        self._file.write(f"\r\n--- {text} ---\r\n".encode())

    # Methods of IResumableProtocol.

    def outage(self, reason: str) -> None:
        self._say(reason)

    def resumed(self, seconds: float, uncertain: int) -> None:
        self._say(f"connected again after {seconds:.0f} s")

    def notice(self, text: str) -> None:
        self._say(text)

    def skipped(self, count: int | None) -> None:
        self._say("output is missing" if count is None else f"{count} bytes are missing")

    # A method of IRecordedProtocol.

    def recordings_changed(self, recordings: Sequence[OpenRecording]) -> None:
        self._say("recorded for " + (", ".join(each.user for each in recordings) or "nobody"))


async def main(reactor: Any, endpoint: str, path: str) -> None:
    with open(path, "ab", buffering=0) as file:
        console = await connectProtocol(clientFromString(reactor, endpoint), SavedConsole(file))
        print(await console.ended)


if __name__ == "__main__":
    task.react(lambda reactor: Deferred.fromCoroutine(main(reactor, *sys.argv[1:])))
