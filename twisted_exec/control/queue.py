"""Queues of keys for controllers."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Iterable
from dataclasses import dataclass
from enum import Enum, auto
from math import inf
from typing import Generic, TypeVar

from twisted.internet.defer import CancelledError, Deferred, DeferredList
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from twisted_exec.api.status import APIError
from twisted_exec.control.backoff import FIRST_PAUSE_SECONDS, Backoff
from twisted_exec.control.metrics import UNREAD, QueueMetrics
from twisted_exec.control.runs import readable

LONGEST_RETRY_SECONDS = 60.0
MAX_WORKERS = 8
SLICE = 50
"""Number of workers to start per turn of the reactor."""
SLICE_SECONDS = 0.002
"""Time after which the next worker starts in another turn of the reactor."""
_GAP_SECONDS = 0.0005
"""Workers that start later than this after another do so in another turn."""

K = TypeVar("K", bound=Hashable)

_HURRIED = -inf
"""A due time: at once, and also after a failure."""


class Again(Exception):
    """
    Raised by a worker that has not failed, and needs time: its key is handled again with back-off.

    :param longest_seconds: limit of the pause.
    """

    def __init__(self, longest_seconds: float = inf) -> None:
        super().__init__()
        self.longest_seconds = longest_seconds


class _State(Enum):
    DELAYED = auto()
    FAILED = auto()
    """Waits for its back-off."""
    QUEUED = auto()
    RUNNING = auto()


@dataclass(slots=True, eq=False)
class _Entry:
    state: _State = _State.DELAYED
    timer: IDelayedCall | None = None
    """The end of the delay or of the back-off."""
    since: float = 0.0
    """When the key was queued; while its worker runs, when that began."""
    running: Deferred[float | None] | None = None
    """The running worker, to cancel it; ``None`` while the worker starts."""
    due: float = inf
    """When the key was added for, since the worker started."""
    backoff: Backoff | None = None
    failures: int = 0
    bug: str = ""
    """The unexpected exception that was logged last."""


class WorkQueue(Generic[K]):
    """
    A queue of keys with one worker per key at a time, a limit for all, and back-off for keys that
    fail.

    Keys are taken in the order of their additions, so a key that is added all the time delays each
    other key by one run only.

    :param work: handles one key. If it returns a number of seconds, the key is added after them,
        unless it is added earlier. If it fails or raises :class:`Again`, it is called again with
        back-off.
    :param refused: called after each failure of a key, with the number of failures since its last
        success; :class:`Again` is none. The argument for a bug is an :class:`InternalError`; the
        bug is logged once until the key succeeds.
    :param workers: how many keys are handled concurrently.
    :param backoff: makes the back-off of one key.
    """

    _log = Logger()

    def __init__(
        self,
        work: Callable[[K], Awaitable[float | None]],
        clock: IReactorTime,
        refused: Callable[[K, APIError, int], None] = lambda *_: None,
        *,
        workers: int = MAX_WORKERS,
        backoff: Callable[[], Backoff] = lambda: Backoff(
            FIRST_PAUSE_SECONDS, LONGEST_RETRY_SECONDS
        ),
        metrics: QueueMetrics | None = None,
    ) -> None:
        self._do, self._clock, self._refused = work, clock, refused
        self._max_workers, self._new_backoff = workers, backoff
        self._metrics = metrics or UNREAD.of("")
        self._entries: dict[K, _Entry] = {}
        self._waiting: deque[tuple[K, _Entry]] = deque()
        self._at_work: set[_Entry] = set()
        self._next_turn: IDelayedCall | None = None
        self._slice_began = self._last_began = -inf
        self._is_beginning = self._stopped = False
        self._draining: list[Deferred[None]] = []
        self._metrics.add(self)

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def unsettled(self) -> int:
        """Number of keys that are queued, handled, or wait for their back-off."""
        return sum(entry.state is not _State.DELAYED for entry in self._entries.values())

    def __contains__(self, key: K) -> bool:
        """Return whether a key waits or is handled."""
        return key in self._entries

    def is_running(self, key: K) -> bool:
        """Return whether a key is handled now."""
        entry = self._entries.get(key)
        return entry is not None and entry.state is _State.RUNNING

    def at_work_seconds(self) -> Iterable[float]:
        """Return how long each worker has been at its key; a stopped one may not have ended."""
        now = self._clock.seconds()
        return [now - entry.since for entry in self._at_work]

    def add(self, key: K) -> None:
        """
        Queue a key, once.

        A key that failed lately waits for its back-off.
        """
        self.add_after(key, 0.0)

    def add_after(self, key: K, seconds: float) -> None:
        """
        Queue a key after some time, or earlier if it is added for an earlier time.

        A run of the key serves all additions until it begins, also those for a later time.
        """
        if self._stopped:
            return
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = _Entry()
            self._delay(key, entry, seconds)
        elif entry.state is _State.RUNNING:
            entry.due = min(entry.due, self._clock.seconds() + seconds)
        elif entry.state is _State.DELAYED and entry.timer is not None:
            earlier = self._clock.seconds() + seconds
            if entry.timer.getTime() >= earlier:
                entry.timer.cancel()
                self._delay(key, entry, seconds)

    def hurry(self, key: K) -> None:
        """Queue a key without its back-off, because the cause of its failure has changed."""
        entry = self._entries.get(key)
        if entry is None or self._stopped:
            self.add(key)
            return
        entry.backoff = None
        if entry.state is _State.RUNNING:
            entry.due = _HURRIED
        elif entry.timer is not None:
            entry.timer.cancel()
            self._queue(key, entry)

    def forget(self, key: K, *, cancel: bool = False) -> None:
        """
        Drop a key that waits.

        :param cancel: also end its running worker, which continues otherwise.
        """
        entry = self._entries.get(key)
        if entry is None:
            return
        if entry.state is _State.RUNNING:
            entry.due = inf
            if cancel and entry.running is not None:
                del self._entries[key]
                entry.running.cancel()
            return
        del self._entries[key]
        if entry.timer is not None:
            entry.timer.cancel()
        else:
            self._metrics.dropped()

    def drained(self) -> Deferred[None]:
        """Fires when no key is queued or handled; keys that wait for a time do not count."""
        draining: Deferred[None] = Deferred(lambda each: self._draining.remove(each))
        self._draining.append(draining)
        self._check_drained()
        return draining

    def _check_drained(self) -> None:
        if not self._at_work and not self._waiting:
            draining, self._draining = self._draining, []
            for each in draining:
                each.callback(None)

    def start(self) -> None:
        """Take keys again after :meth:`stop`."""
        self._stopped = False

    def stop(self) -> Deferred[None]:
        """Drop all keys and cancel all workers; fires when these have ended."""
        self._stopped = True
        entries, self._entries = self._entries, {}
        self._metrics.dropped(sum(each.state is _State.QUEUED for each in entries.values()))
        self._waiting.clear()
        if self._next_turn is not None:
            self._next_turn.cancel()
            self._next_turn = None
        for entry in entries.values():
            if entry.timer is not None:
                entry.timer.cancel()
        ending = [each.running for each in entries.values() if each.running is not None]
        for running in ending:
            running.cancel()
        self._check_drained()
        done: Deferred[None] = DeferredList(ending).addCallback(lambda _: None)
        return done

    def _delay(self, key: K, entry: _Entry, seconds: float, state: _State = _State.DELAYED) -> None:
        if seconds > 0:
            self._wait(key, entry, seconds, state)
        else:
            self._queue(key, entry)

    def _wait(self, key: K, entry: _Entry, seconds: float, state: _State) -> None:
        entry.state = state
        entry.timer = self._clock.callLater(seconds, self._queue, key, entry)

    def _queue(self, key: K, entry: _Entry) -> None:
        entry.state, entry.timer, entry.since = _State.QUEUED, None, self._clock.seconds()
        self._metrics.queued()
        self._waiting.append((key, entry))
        self._begin_some()

    def _take_turn(self) -> None:
        self._next_turn, self._last_began = None, -inf
        self._begin_some()
        self._check_drained()

    def _begin_some(self) -> None:
        if self._is_beginning or self._next_turn is not None:
            return
        now = self._clock.seconds()
        is_new_turn = now - self._last_began > _GAP_SECONDS
        if is_new_turn:
            self._slice_began = now
        until = self._slice_began + SLICE_SECONDS
        self._is_beginning, begun, is_over = True, 0, not is_new_turn and now >= until
        while self._waiting and len(self._at_work) < self._max_workers:
            if is_over:
                self._next_turn = self._clock.callLater(0, self._take_turn)
                break
            key, entry = self._waiting.popleft()
            if self._entries.get(key) is entry:
                self._begin(key, entry)
                begun += 1
                is_over = begun == SLICE or self._clock.seconds() >= until
        self._is_beginning, self._last_began = False, self._clock.seconds()

    def _begin(self, key: K, entry: _Entry) -> None:
        self._at_work.add(entry)
        now = self._clock.seconds()
        self._metrics.begun(now - entry.since)
        entry.state, entry.due, entry.since = _State.RUNNING, inf, now
        running = Deferred.fromCoroutine(self._one(key))
        if not running.called:
            entry.running = running
        running.addBoth(self._ended, key, entry)

    async def _one(self, key: K) -> float | None:
        return await self._do(key)

    def _ended(self, result: float | Failure | None, key: K, entry: _Entry) -> None:
        entry.running = None
        self._at_work.discard(entry)
        if self._entries.get(key) is entry:
            if isinstance(result, Failure):
                self._failed(key, entry, result)
            else:
                self._succeeded(key, entry, result)
        self._begin_some()
        self._check_drained()

    def _succeeded(self, key: K, entry: _Entry, again: float | None) -> None:
        due, now = entry.due, self._clock.seconds()
        if again is not None:
            due = min(due, now + again)
        entry.backoff, entry.failures, entry.bug = None, 0, ""
        if due == inf:
            del self._entries[key]
        else:
            # Not at once: work that is over at once would recurse.
            self._wait(key, entry, max(0.0, due - now), _State.DELAYED)

    def _failed(self, key: K, entry: _Entry, failure: Failure) -> None:
        entry.backoff = backoff = entry.backoff or self._new_backoff()
        pause, error = backoff.pause(), failure.value
        if isinstance(error, Again):
            pause = min(pause, error.longest_seconds)
        else:
            entry.failures += 1
        if not isinstance(error, Again | APIError | CancelledError):
            if repr(error) != entry.bug:
                entry.bug = repr(error)
                self._log.failure("work on {key} failed", failure, key=key)
            error = readable(error)
        if isinstance(error, APIError):
            # A server that is busy says when to come back.
            requested_seconds = min(float(error.retry_after_seconds or 0), LONGEST_RETRY_SECONDS)
            pause = max(pause, requested_seconds)
        self._metrics.retried()
        self._wait(key, entry, 0.0 if entry.due == _HURRIED else pause, _State.FAILED)
        if isinstance(error, APIError):
            try:
                self._refused(key, error, entry.failures)
            except Exception:
                self._log.failure("the report of a failure of {key} failed", key=key)
