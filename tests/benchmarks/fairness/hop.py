"""
A program of ours whose reactor turns are measured.

``python -m tests.benchmarks.fairness.hop FILE PLUGIN OPTION ...`` runs one of our ``twistd``
plugins.  On SIGUSR1 it writes the turns since the previous signal to FILE: their number, and the
largest and the 99th percentile of thread CPU time, in milliseconds, as JSON.

A turn runs from one wait for descriptors to the next: the descriptors that are ready, then timers.
Only the reactor's thread counts, so neither other processes nor worker threads do.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from array import array
from pathlib import Path
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.scripts import twistd

reactor: Any = _reactor


class Turns:
    """
    The CPU time of each turn since the last report.

    :param path: file of the reports.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._nanoseconds = array("q")
        self._begun: int | None = None
        self._report_wanted = False

    def ask(self, number: int, frame: object) -> None:
        """Handle the signal; the report waits for the end of the turn, which may be a long one."""
        self._report_wanted = True

    def begin(self) -> None:
        """End a turn, and begin the next."""
        now = time.thread_time_ns()
        if self._begun is not None:
            self._nanoseconds.append(now - self._begun)
        if self._report_wanted:
            self._report_wanted = False
            self._report()
            now = time.thread_time_ns()
        self._begun = now

    def _report(self) -> None:
        turns = sorted(self._nanoseconds) or [0]
        report = {
            "turns": len(turns),
            "largest_ms": turns[-1] / 1e6,
            "p99_ms": turns[len(turns) * 99 // 100] / 1e6,
        }
        self._nanoseconds = array("q")
        complete = self._path.with_suffix(".new")
        complete.write_text(json.dumps(report))
        os.replace(complete, self._path)


class MeasuredPoller:
    """The reactor's poller, which begins a turn with each wait."""

    def __init__(self, poller: Any, turns: Turns) -> None:
        self._poll, self._turns = poller.poll, turns
        self.register, self.unregister = poller.register, poller.unregister
        self.modify, self.close = poller.modify, poller.close

    def poll(self, *arguments: Any) -> Any:
        """As :meth:`select.epoll.poll`."""
        self._turns.begin()
        return self._poll(*arguments)


def main() -> None:
    turns = Turns(Path(sys.argv[1]))
    # The loop of our programs passes over the delayed calls only when there is one to call.
    reactor._poller = MeasuredPoller(reactor._poller, turns)
    signal.signal(signal.SIGUSR1, turns.ask)
    sys.argv = ["twistd", "-n", "--pidfile=", *sys.argv[2:]]
    twistd.run()


if __name__ == "__main__":
    main()
