"""
Uploads of closed recordings, until a store has each of them.

There is no queue on disk: after a start, the owner of the recordings adds those that are not stored
yet. The owner retains their source until :meth:`Uploads.store` has fired.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from twisted_exec.control.backoff import Backoff
from twisted_exec.control.runs import BackgroundTask
from twisted_exec.program.service import SUMMARY
from twisted_exec.recording.stores.interfaces import (
    KINDS,
    ReadText,
    Stored,
    StoreError,
    digest,
    reader,
)

FIRST_DELAY_SECONDS = 1.0
LONGEST_DELAY_SECONDS = 60.0

_READING = "source"
_PREFIX = "twisted_exec_recording_store_"


class UploadMetrics:
    """Metrics of a store of recordings."""

    def __init__(self) -> None:
        self.stored = Counter(
            _PREFIX + "recordings", "Recordings that a store has, verified.", registry=None
        )
        self.stored_bytes = Counter(
            _PREFIX + "bytes", "Bytes of the recordings that a store has.", registry=None
        )
        self.failures = Counter(
            _PREFIX + "failures", "Failed attempts, by their kind.", ["kind"], registry=None
        )
        self.waiting = Gauge(
            _PREFIX + "waiting",
            "Recordings that are to be stored or deleted; their output is retained meanwhile.",
            registry=None,
        )
        for kind in (*KINDS, _READING):
            self.failures.labels(kind)

    def register(self, registry: CollectorRegistry) -> UploadMetrics:
        for metric in (self.stored, self.stored_bytes, self.failures, self.waiting):
            registry.register(metric)
        return self


@dataclass
class _Job:
    name: str
    read: ReadText | None
    is_unreadable: bool = False
    done: Deferred[Any] = field(default_factory=Deferred)


class Uploads(BackgroundTask):
    """
    Stores and deletes recordings one after the other; repeats what failed, with exponential
    back-off.

    :ivar problem: why the last attempt failed; empty after a success.
    :ivar failing: called with name and reason when a recording could not be stored.
    """

    _log = Logger()

    def __init__(
        self,
        store: Any,
        clock: IReactorTime,
        metrics: UploadMetrics,
        *,
        rng: random.Random | None = None,
    ) -> None:
        self.backend = store
        self._clock, self._metrics = clock, metrics
        self._jobs: dict[str, _Job] = {}
        self._current: tuple[_Job, Deferred[Any]] | None = None
        self._backoff = Backoff(FIRST_DELAY_SECONDS, LONGEST_DELAY_SECONDS, rng)
        self._is_working = self.is_stopped = False
        self.problem = ""
        self.failing: Callable[[str, str], object] = lambda name, why: None

    def store(self, name: str, read: ReadText) -> Deferred[Stored]:
        """
        Store a recording.

        :return: fires when the recording is in the store, and a copy read back from it was the
            same. The Deferred never fails, and does not fire if the recording is deleted or the
            program stops before.
        """
        return self._add(_Job(name, read))

    def delete(self, name: str) -> Deferred[None]:
        """Delete a recording in the store, or give up storing it."""
        return self._add(_Job(name, None))

    def _add(self, job: _Job) -> Deferred[Any]:
        earlier = self._jobs.pop(job.name, None)
        if earlier is not None and (earlier.read is None) == (job.read is None):
            # Both callers wait for the same upload.
            earlier.done.addCallback(lambda result: _fire(job.done, result))
            self._jobs[job.name] = earlier
            return job.done
        self._jobs[job.name] = job
        self._count()
        if earlier is not None and self._current is not None and self._current[0] is earlier:
            self._current[1].cancel()
        if not self._is_working and not self.is_stopped:
            self._is_working = True
            self._begin(self._work())
        return job.done

    def stop(self) -> Deferred[None]:
        self.is_stopped = True
        stopped: Deferred[None] = super().stop()
        return stopped.addCallback(lambda _: self.backend.close())

    def _crashed(self, failure: Failure) -> None:
        self._log.failure("recordings are stored no longer", failure=failure)

    def _count(self) -> None:
        self._metrics.waiting.set(len(self._jobs))

    async def _work(self) -> None:
        # Not a WorkQueue: one upload at a time, and after a failure all wait for the same store.
        while self._jobs:
            job = self._next()
            working = Deferred.fromCoroutine(self._run(job))
            self._current = job, working
            try:
                result = await working
            except CancelledError:
                if self._jobs.get(job.name) is job:
                    raise  # the program stops
                continue
            except StoreError as error:
                await self._failed(job, error.kind, str(error))
            except Exception as error:
                self._log.failure("the recording {name} cannot be read", name=job.name)
                await self._failed(
                    job, _READING, f"the recording {job.name} cannot be read: {error}"
                )
            else:
                self._finished(job, result)
            finally:
                self._current = None
        self._is_working = False

    def _next(self) -> _Job:
        jobs = self._jobs.values()
        return next((each for each in jobs if not each.is_unreadable), next(iter(jobs)))

    async def _run(self, job: _Job) -> Stored | None:
        if job.read is None:
            await self.backend.delete(job.name)
            return None
        stored: Stored = await self.backend.put(job.name, job.read)
        if await digest(reader(self.backend, job.name), stored.size) != stored:
            raise StoreError("answer", f"{self.backend.location(job.name)} is not as it was sent")
        return stored

    def _finished(self, job: _Job, result: Stored | None) -> None:
        if self._jobs.get(job.name) is job:
            del self._jobs[job.name]
        self._count()
        self._backoff.reset()
        if self.problem:
            self.problem = ""
            self._log.info("{url} stores recordings again", url=self.backend.url, **{SUMMARY: True})
        if result is not None:
            self._metrics.stored.inc()
            self._metrics.stored_bytes.inc(result.size)
        _fire(job.done, result)

    async def _failed(self, job: _Job, kind: str, why: str) -> None:
        self._metrics.failures.labels(kind).inc()
        if not self.problem:
            self._log.warn(
                "{url}: {why}; recordings are retained and tried again",
                url=self.backend.url,
                why=why.rstrip("."),
            )
        self.problem = why
        if self._jobs.get(job.name) is job:
            self._jobs[job.name] = self._jobs.pop(job.name)
            if job.read is not None:
                self.failing(job.name, why)
        job.is_unreadable = kind == _READING
        if job.is_unreadable and not self._next().is_unreadable:
            return
        await deferLater(self._clock, self._backoff.pause())


def _fire(done: Deferred[Any], result: Any) -> Any:
    if not done.called:
        done.callback(result)
    return result
