"""
The thread for pure functions on large objects.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from twisted.application.service import Service
from twisted.internet import defer
from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThreadPool
from twisted.python.failure import Failure
from twisted.python.threadpool import ThreadPool

from twisted_exec.api.status import APIError

SWITCH_SECONDS = 0.0002
"""How soon the reactor gets the interpreter back from the thread."""


class _Thread(threading.Thread):
    def __init__(self, **arguments: Any) -> None:
        # A program that ends without stopping its services must not wait for the thread.
        super().__init__(**arguments, daemon=True)


class _Pool(ThreadPool):
    threadFactory: type[threading.Thread] = _Thread


class WorkerThread(Service):
    """One thread for pure functions."""

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        self._pool: ThreadPool | None = None

    def startService(self) -> None:
        super().startService()
        # For the whole process; the default of 5 ms would be added to each system call.
        sys.setswitchinterval(min(sys.getswitchinterval(), SWITCH_SECONDS))
        self._pool = _Pool(minthreads=0, maxthreads=1, name="worker")
        self._pool.start()

    def stopService(self) -> None:
        super().stopService()
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.stop()

    def execute(self, function: Callable[[], Any]) -> Deferred[Any]:
        """Run a function in the thread; at once before the start and after the stop."""
        if self._pool is None:
            return defer.execute(function)
        outcome = deferToThreadPool(self._reactor, self._pool, _outcome, function)
        return outcome.addCallback(_result)


def _outcome(function: Callable[[], Any]) -> Any:
    """
    Return a function's result, or its API error as :class:`_Refused`.

    Otherwise the exception and its frame would be a reference cycle.
    """
    try:
        return function()
    except APIError as refusal:
        refusal.__cause__ = refusal.__context__ = None
        return _Refused(refusal.with_traceback(None))


@dataclass(frozen=True)
class _Refused:
    refusal: APIError


def _result(outcome: Any) -> Any:
    if isinstance(outcome, _Refused):
        return Failure(outcome.refusal)
    return outcome
