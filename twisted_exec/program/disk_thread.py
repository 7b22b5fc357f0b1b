"""
A thread for files, which does not hold the reactor when a disk does not answer.

The reactor waits for the answer, since a healthy disk answers within a fraction of a millisecond.
After :data:`WAIT_SECONDS` (or :data:`LONG_WAIT_SECONDS`) the call fails, the thread finishes it
when the disk answers, and until then further calls fail at once.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Protocol, TypeVar

from twisted.internet.defer import Deferred, fail, succeed
from twisted.python.failure import Failure

WAIT_SECONDS = 0.02
"""Longest wait of the reactor for the disk."""
LONG_WAIT_SECONDS = 0.5
"""Longest wait of the reactor for calls that must not fail because a disk is slow."""
_WAITS = 4
"""
Number of parts of a wait, so that a pause of the whole process, as on a busy machine, uses up only
one of them.
"""

_Result = TypeVar("_Result")


class Unanswered(OSError):
    """
    The disk has not answered yet.

    :ivar is_read: the caller has read :attr:`answer`, and handles its error.
    """

    def __init__(self, answer: Deferred[Any] | None = None) -> None:
        super().__init__(errno.ETIMEDOUT, "the disk does not answer")
        self._answer = answer
        self.is_read = False

    @property
    def answer(self) -> Deferred[Any] | None:
        """
        Fires with the result of the call when the disk answers; ``None`` if the call was not begun.

        An error of the disk is dropped if the caller has not read this: it has gone on without the call.
        """
        self.is_read = True
        return self._answer


class Files(Protocol):
    """
    Runs functions that use files, such as in a thread.

    :ivar late: called when the disk does not answer.
    :ivar answered: called when it answers again.
    """

    late: Callable[[], None]
    answered: Callable[[], None]

    def call(self, function: Callable[[], _Result], *, is_long: bool = False) -> _Result:
        """
        Run a function, and wait for it a moment.

        :raises Unanswered: the disk does not answer.
        """

    def run(self, function: Callable[[], Any]) -> Deferred[Any]:
        """Run a function after earlier ones, however long the disk takes."""

    def stop(self) -> None:
        """End after the functions so far, without waiting."""


class AtOnce:
    """Runs each function where it is called."""

    late = answered = staticmethod(lambda: None)

    def call(self, function: Callable[[], _Result], *, is_long: bool = False) -> _Result:
        return function()

    def run(self, function: Callable[[], Any]) -> Deferred[Any]:
        try:
            return succeed(function())
        except Exception:
            return fail()

    def stop(self) -> None:
        """Do nothing."""


class DiskThread:
    """
    One thread, started at the first call.

    :param wait_seconds: the longest wait of a :meth:`call` that is not long; ``None`` means
        :data:`WAIT_SECONDS`.
    """

    def __init__(self, reactor: Any, wait_seconds: float | None = None) -> None:
        self._reactor = reactor
        self._wait_seconds = WAIT_SECONDS if wait_seconds is None else wait_seconds
        self.late: Callable[[], None] = lambda: None
        self.answered: Callable[[], None] = lambda: None
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._late = 0

    def call(self, function: Callable[[], _Result], *, is_long: bool = False) -> _Result:
        """See :meth:`Files.call`.  A function that runs in the thread may call it too."""
        if threading.current_thread() is self._thread:
            return function()
        if self._late:
            raise Unanswered
        job = _Job(function)
        self._submit(job)
        if job.wait(LONG_WAIT_SECONDS if is_long else self._wait_seconds):
            return job.result()  # type: ignore[no-any-return]
        self._late += 1
        unanswered = Unanswered(job.answer)
        job.answer.addBoth(self._answered, unanswered)
        self.late()
        raise unanswered

    def _answered(self, result: Any, unanswered: Unanswered) -> Any:
        self._late -= 1
        self.answered()
        if isinstance(result, Failure) and result.check(OSError) and not unanswered.is_read:
            return None
        return result

    def run(self, function: Callable[[], Any]) -> Deferred[Any]:
        job = _Job(function)
        job.is_late = True
        self._submit(job)
        return job.answer

    def _submit(self, job: _Job) -> None:
        if self._thread is None:
            # A daemon: a program that stops does not wait for a disk that never answers.
            self._thread = threading.Thread(target=self._work, name="files", daemon=True)
            self._thread.start()
        self._jobs.put(job)

    def stop(self) -> None:
        """See :meth:`Files.stop`; a later call starts another thread."""
        if self._thread is not None:
            self._jobs.put(None)
            self._thread, self._jobs = None, SimpleQueue()

    def _work(self) -> None:
        jobs, reactor = self._jobs, self._reactor
        while (job := jobs.get()) is not None:
            if job.run():
                reactor.callFromThread(job.fire)


class _Job:
    __slots__ = ("_done", "_failure", "_function", "_lock", "_value", "answer", "is_late")

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function
        self._value: Any = None
        self._failure: Failure | None = None
        self._lock, self._done = threading.Lock(), threading.Lock()
        self._done.acquire()
        self.answer: Deferred[Any] = Deferred()
        self.is_late = False

    def run(self) -> bool:
        """Run the function in the thread; return whether its caller no longer waits."""
        try:
            self._value = self._function()
        except BaseException:
            self._failure = Failure()
        with self._lock:
            self._done.release()
            return self.is_late

    def wait(self, seconds: float) -> bool:
        if any(self._done.acquire(timeout=seconds / _WAITS) for _ in range(_WAITS)):
            return True
        with self._lock:
            self.is_late = not self._done.acquire(blocking=False)
            return not self.is_late

    def result(self) -> Any:
        if self._failure is not None:
            self._failure.raiseException()
        return self._value

    def fire(self) -> None:
        self.answer.callback(self._value if self._failure is None else self._failure)
