"""
The quiet user: types a key every few milliseconds into a line that echoes, whether or not the
previous keys have come back, and measures how long each takes.

A user who waited for each echo would type nothing while the chain stands still, and would count a
pause of a second as one slow key.
"""

from __future__ import annotations

import ssl
import statistics
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.benchmarks.console import Console

INTERVAL_SECONDS = 0.005
_PATIENCE_SECONDS = 20.0


@dataclass
class Trips:
    """
    Round trips of keys, in milliseconds.

    :ivar lost: keys without an echo after 20 s, or whose session ended.
    """

    times: list[float] = field(default_factory=list)
    lost: int = 0

    def percentile(self, percent: int) -> float:
        return percentile(self.times, percent)


def percentile(values: Sequence[float], percent: int) -> float:
    """Not a number when there are no values."""
    ordered = sorted(values)
    if not ordered:
        return float("nan")
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]


def median(values: Sequence[float]) -> float:
    return statistics.median(values) if values else float("nan")


class Typist:
    """A console whose machine echoes."""

    def __init__(self, line: ssl.SSLSocket, console: Console) -> None:
        self._line, self._console = line, console
        self._sent: deque[float] = deque()

    def type_for(self, seconds: float) -> Trips:
        """Type; then wait for the rest of the echoes."""
        trips = Trips()
        begun = due = time.perf_counter()
        try:
            while due < begun + seconds:
                self._console.type(b"x")
                self._sent.append(time.perf_counter())
                due += INTERVAL_SECONDS
                self._read_until(due, trips)
            self._read_until(time.perf_counter() + _PATIENCE_SECONDS, trips, stop_when_idle=True)
        except ConnectionError:
            pass  # lost input is counted below
        trips.lost = len(self._sent)
        self._sent.clear()
        return trips

    def _read_until(self, due: float, trips: Trips, stop_when_idle: bool = False) -> None:
        while (left := due - time.perf_counter()) > 0:
            if stop_when_idle and not self._sent:
                return
            self._line.settimeout(left)
            try:
                echo = self._console.receive()
            except TimeoutError:
                return
            now = time.perf_counter()
            for _ in range(min(len(echo), len(self._sent))):
                trips.times.append((now - self._sent.popleft()) * 1e3)
