"""
Processes for jobs, in memory: the test does their work.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.error import ProcessTerminated
from twisted.internet.protocol import ProcessProtocol
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from twisted_exec.program.job_messages import decode, encode


class MemoryProcess:
    """The transport of a process that is the test."""

    pid: int | None = 1

    def __init__(self, protocol: ProcessProtocol) -> None:
        self.protocol, self.signals = protocol, list[str]()
        self.messages: list[tuple[dict[str, Any], bytes]] = []
        self.environment: dict[str, str] = {}

    def write(self, data: bytes) -> None:
        message = decode(bytearray(data))
        assert message is not None
        self.messages.append(message)

    def signalProcess(self, signal: str) -> None:
        self.signals.append(signal)
        self.pid = None

    def says(self, head: dict[str, Any], body: bytes = b"") -> None:
        self.protocol.outReceived(encode(head, body))

    def ends(self) -> None:
        self.pid = None
        self.protocol.processEnded(Failure(ProcessTerminated(signal=24)))


class MemoryReactor(Clock):
    """Starts processes in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.processes: list[MemoryProcess] = []
        self.problem: OSError | None = None

    def spawnProcess(
        self, protocol: Any, executable: str, argv: list[str], env: dict[str, str], path: str
    ) -> None:
        if self.problem is not None:
            raise self.problem
        process = MemoryProcess(protocol)
        process.environment = env
        self.processes.append(process)
        protocol.makeConnection(process)
