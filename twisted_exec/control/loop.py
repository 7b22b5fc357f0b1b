"""Loops of controllers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from twisted_exec.api.status import APIError
from twisted_exec.control.backoff import Backoff
from twisted_exec.control.metrics import QueueMetrics
from twisted_exec.control.queue import WorkQueue


class PokedLoop:
    """
    Work that is done from time to time, and soon after a poke.

    It is a :class:`~twisted_exec.control.queue.WorkQueue` of one key: one run at a time, and
    back-off after a failure, which a poke does not shorten.

    :param look: returns the seconds until the next look, if these are not the interval;
        :data:`math.inf` to look after a poke only.
    :param interval_seconds: from the end of one look to the next; ``None`` to look after pokes only.
    :param soon_seconds: from a poke, or from the end of the look that it came in, to the next look:
        one look serves many pokes.
    :param refused: called with the error of a failed look, and the number of failures in succession.
    """

    def __init__(
        self,
        look: Callable[[], Awaitable[float | None]],
        clock: IReactorTime,
        interval_seconds: float | None = None,
        *,
        soon_seconds: float = 0.0,
        refused: Callable[[APIError, int], None] = lambda *_: None,
        backoff: Callable[[], Backoff] = Backoff,
        metrics: QueueMetrics | None = None,
    ) -> None:
        self._look, self._interval, self._soon = look, interval_seconds, soon_seconds
        self._queue: WorkQueue[None] = WorkQueue(
            self._run,
            clock,
            lambda _, error, failures: refused(error, failures),
            backoff=backoff,
            metrics=metrics,
        )
        self.running = self._is_looking = self._was_poked = False

    def start(self, after_seconds: float | None = 0.0) -> None:
        """
        Begin, unless the loop runs already.

        :param after_seconds: until the first look; ``None`` to wait for a poke.
        """
        if not self.running:
            self.running = True
            self._queue.start()
            if after_seconds is not None:
                self._queue.add_after(None, after_seconds)

    def stop(self) -> Deferred[None]:
        """Cancel the look that is under way; fires when it has ended."""
        self.running = False
        return self._queue.stop()

    def poke(self, after_seconds: float | None = None) -> None:
        """
        Look soon, because something has changed.

        :param after_seconds: until the look; by default ``soon_seconds``.
        """
        if self._is_looking:
            self._was_poked = True
        elif self.running:
            self._queue.add_after(None, self._soon if after_seconds is None else after_seconds)

    def hurry(self) -> None:
        """Look at once, also if the last look failed, because the cause may be gone."""
        if self.running:
            self._queue.hurry(None)

    async def _run(self, _: None) -> float | None:
        self._is_looking, self._was_poked = True, False
        try:
            seconds = await self._look()
        finally:
            self._is_looking = False
        if seconds is None:
            seconds = self._interval
        if self._was_poked:
            return self._soon if seconds is None else min(seconds, self._soon)
        return seconds
