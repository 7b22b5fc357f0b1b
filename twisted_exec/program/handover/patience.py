"""Wait for a process that starts as long as it goes on: a slow one may take its time."""

from __future__ import annotations

import os
from typing import Any

from twisted.internet.defer import CancelledError, Deferred, TimeoutError
from twisted.internet.interfaces import IDelayedCall, IReactorTime

LONGEST_SECONDS: float = 120
"""Time limit of a whole hand-over; below ``TimeoutStartSec`` of the systemd units."""

_LOOK_SECONDS = 1.0
_SHARE = 0.1
"""
Least part of the time that a process is busy if it does not hang; timers of an idle reactor need
less.
"""


class Patience:
    """
    Waits for a process as long as it goes on.

    :ivar is_over: the whole time has passed, not only that of a silent process.
    """

    is_over = False

    def __init__(
        self, pid: int, clock: IReactorTime, silent_seconds: float, longest_seconds: float
    ) -> None:
        self._pid, self._clock, self._silent_seconds = pid, clock, silent_seconds
        self._ends_at = clock.seconds() + longest_seconds

    async def wait(self, waiting: Deferred[Any]) -> Any:
        """
        Wait for a result, which is cancelled when the time is over.

        :raises TimeoutError: the process does nothing any more, or the whole time has passed.
        """
        watch = _Watch(self._pid, self._clock, self._silent_seconds, self._ends_at, waiting)
        try:
            return await waiting
        except CancelledError:
            if not watch.has_given_up:
                raise  # the program stops
            self.is_over = self._clock.seconds() >= self._ends_at
            raise TimeoutError from None
        finally:
            watch.stop()


class _Watch:
    def __init__(
        self,
        pid: int,
        clock: IReactorTime,
        silent_seconds: float,
        ends_at: float,
        waiting: Deferred[Any],
    ) -> None:
        self._pid, self._clock, self._waiting = pid, clock, waiting
        self._silent_seconds, self._ends_at = silent_seconds, ends_at
        self._busy_seconds, _ = read_activity(pid)
        self._looked_at = self._went_on_at = clock.seconds()
        self._timer: IDelayedCall | None = None
        self.has_given_up = False
        if not waiting.called:
            self._again()

    def _again(self) -> None:
        self._timer = self._clock.callLater(_LOOK_SECONDS, self._look)

    def _look(self) -> None:
        self._timer = None
        now = self._clock.seconds()
        busy_seconds, waits_for_disk = read_activity(self._pid)
        least_seconds = _SHARE * (now - self._looked_at)
        # A slow process computes, or waits for a processor or for a disk; one that hangs does none
        # of these.
        if waits_for_disk or busy_seconds - self._busy_seconds >= least_seconds:
            self._went_on_at = now
        self._busy_seconds, self._looked_at = busy_seconds, now
        if now - self._went_on_at >= self._silent_seconds or now >= self._ends_at:
            self.has_given_up = True
            self._waiting.cancel()
        else:
            self._again()

    def stop(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()


def read_activity(pid: int) -> tuple[float, bool]:
    """
    Return the seconds that a process has run or waited for a processor, and whether it waits for a
    disk now.

    The waiting is that of the first thread, where programs start.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            state, *numbers = file.read().rpartition(b")")[2].split()
    except OSError:
        return 0.0, False
    # utime and stime, the fields 14 and 15 (proc_pid_stat(5)).
    busy_seconds = (int(numbers[10]) + int(numbers[11])) / os.sysconf("SC_CLK_TCK")
    try:
        with open(f"/proc/{pid}/schedstat", "rb") as file:
            # The second number: nanoseconds of waiting for a processor.
            busy_seconds += int(file.read().split()[1]) / 1_000_000_000
    except (OSError, IndexError):
        pass
    return busy_seconds, state == b"D"
