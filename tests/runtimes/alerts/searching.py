"""
The search for alerts in this process, at once.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred, succeed

from twisted_exec.program.job_messages import decode
from twisted_exec.runtimes.alerts.process import Searcher


class JobsAtOnce:
    """Does the jobs of a process when they are given."""

    def __init__(self, reactor: Any = None) -> None:
        self._searcher = Searcher()
        self.jobs: list[Any] = []

    def do(self, message: bytes, key: str) -> Deferred[Any]:
        """As :meth:`JobProcesses.do`."""
        job = decode(bytearray(message))
        assert job is not None
        self.jobs.append(job[0])
        answer = decode(bytearray(self._searcher.answer(*job)))
        assert answer is not None
        return succeed(answer)

    def close(self) -> Deferred[None]:
        """As :meth:`JobProcesses.close`."""
        return succeed(None)
