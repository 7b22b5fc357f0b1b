"""
Fair turns for expensive requests, and their metrics.

Expensive work runs in one other thread, and users take turns.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge
from twisted.internet import defer
from twisted.internet.defer import Deferred

from twisted_exec.api.status import TooManyRequests
from twisted_exec.apiserver.serving.costs import CHEAP
from twisted_exec.auth.interfaces import User

Result = TypeVar("Result")

Execute = Callable[[Callable[[], Any]], Deferred[Any]]
"""Runs a function somewhere, and fires with its result."""


@dataclass(eq=False)
class _Job:
    user: str
    function: Callable[[], Any]
    done: Deferred[Any] = field(default_factory=Deferred)


class ExpensiveRequestMetrics:
    """
    Metrics of requests that are too expensive for the reactor thread.

    ``twisted_exec_expensive_requests_waiting`` and
    ``twisted_exec_expensive_requests_refused_total``.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._waiting = Gauge(
            "twisted_exec_expensive_requests_waiting",
            "Requests with large objects that wait for their user's turn.",
            registry=registry,
        )
        self._refused = Counter(
            "twisted_exec_expensive_requests_refused",
            "Requests with large objects that were refused because too many were waiting.",
            registry=registry,
        )

    def waiting(self, count: int) -> None:
        """Set the number of requests that wait."""
        self._waiting.set(count)

    def refused(self) -> None:
        """A request was refused."""
        self._refused.inc()


class FairQueue:
    """
    Calls of expensive functions, of which one runs at a time.

    Users get equal shares of the time, not of the calls: the next call is of the user whose calls
    have taken the least since somebody began to wait.  Source: start-time fair queueing (Goyal,
    Vin and Cheng, 1996).

    :param per_user: a user's limit of waiting calls.
    :param seconds: the time, in seconds since any moment.
    """

    def __init__(
        self,
        execute: Execute = defer.execute,
        metrics: ExpensiveRequestMetrics | None = None,
        per_user: int = 20,
        total: int = 100,
        seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        self._execute, self._metrics = execute, metrics
        self._per_user, self._total, self._seconds = per_user, total, seconds
        self._jobs: dict[str, deque[_Job]] = {}  # of equal users the first is next
        self._shares: dict[str, float] = {}
        """The time that each user's calls have taken; it begins with the share of the running call."""
        self._share = 0.0
        """The share of the running call's user when it began."""
        self._running: _Job | None = None

    def __len__(self) -> int:
        return sum(map(len, self._jobs.values()))

    def check_room(self, user: User) -> None:
        """
        Check that a user may wait for a turn.

        :raises TooManyRequests: too many wait already, in all or of this user.
        """
        mine = len(self._jobs.get(user.name, ()))
        if mine < self._per_user and len(self) < self._total:
            return
        if self._metrics is not None:
            self._metrics.refused()
        whose = f'user "{user.name}" has {mine}' if mine >= self._per_user else "the server has"
        raise TooManyRequests(
            f"Too many requests with large objects: {whose} waiting, please try again later."
        )

    def call(self, user: User, function: Callable[[], Any]) -> Deferred[Any]:
        """Return the result of a function after its turn; cancelling gives the turn up."""
        job = _Job(user.name, function)
        job.done = Deferred(lambda _: self._withdraw(job))
        self._jobs.setdefault(job.user, deque()).append(job)
        self._shares[job.user] = max(self._share, self._shares.get(job.user, 0.0))
        self._next()
        return job.done

    def _withdraw(self, job: _Job) -> None:
        jobs = self._jobs.get(job.user, deque())
        if job in jobs:  # otherwise it is running, and its result is dropped
            jobs.remove(job)
            if not jobs:
                del self._jobs[job.user]
            self._measure()

    def _next(self) -> None:
        if self._running is None and self._jobs:
            user = min(self._jobs, key=self._shares.__getitem__)
            jobs = self._jobs.pop(user)
            job = self._running = jobs.popleft()
            if jobs:
                self._jobs[user] = jobs  # behind all others
            self._share = self._shares[user]
            self._execute(job.function).addBoth(self._ran, job, self._seconds())
        self._measure()

    def _ran(self, result: Any, job: _Job, began: float) -> None:
        self._running = None
        self._shares[job.user] += self._seconds() - began
        # A user without calls who is not ahead of the others will begin with their share.
        self._shares = {
            user: share
            for user, share in self._shares.items()
            if user in self._jobs or (self._jobs and share > self._share)
        }
        if not job.done.called:
            job.done.callback(result)  # its request may queue behind those that wait
        self._next()

    def _measure(self) -> None:
        if self._metrics is not None:
            self._metrics.waiting(len(self))


class Work:
    """The pure work of one request: at once while it is cheap, in the queue otherwise."""

    def __init__(
        self, queue: FairQueue | None = None, user: User | None = None, cost: int = 0
    ) -> None:
        self._queue, self._user, self.cost = queue, user, cost
        self._admitted = False

    async def run(
        self, function: Callable[..., Result], *arguments: Any, cost: int | None = None
    ) -> Result:
        """
        Call a pure function, with arguments that nothing else changes meanwhile.

        :raises TooManyRequests: the queue is full.
        """
        cost = self.cost if cost is None else cost
        if self._queue is None or self._user is None or cost <= CHEAP:
            return function(*arguments)
        if not self._admitted:
            self._queue.check_room(self._user)
            self._admitted = True
        result: Result = await self._queue.call(self._user, partial(function, *arguments))
        return result
