"""
gRPC calls as Deferreds, which fire in the reactor's thread.

Import this module before ``grpc``.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorFromThreads

# grpcio's fork handlers wait for its own threads: forking a pty's process during a call hangs in
# them.  grpc reads this once, when it is first imported.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"
# The C core writes to standard error itself, past every log; relevant errors come back as the
# status of a call.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

T = TypeVar("T")

CHANNEL_OPTIONS = (
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # Subchannels shared in the process would also share their back-off.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
)
"""Short back-off, and no proxy from the environment."""


class Link:
    """A channel.  Once retired, it closes when its last call has ended."""

    def __init__(self, channel: Any) -> None:
        self.channel = channel
        self._stubs: dict[str, Any] = {}
        self._calls = 0
        self._retired = False

    def unary(self, path: str) -> Any:
        """Return grpcio's callable for a method, with bytes both ways; cached."""
        stub = self._stubs.get(path)
        if stub is None:
            stub = self._stubs[path] = self.channel.unary_unary(path)
        return stub

    def began(self) -> None:
        self._calls += 1

    def ended(self) -> None:
        self._calls -= 1
        self._close_if_done()

    def retire(self) -> None:
        """Close once no call is running; the caller begins no further calls."""
        self._retired = True
        self._close_if_done()

    def close(self) -> None:
        """Close now; running calls fail as cancelled."""
        self._retired = True
        self.channel.close()

    def _close_if_done(self) -> None:
        if self._retired and not self._calls:
            self.channel.close()


def call(
    link: Link,
    reactor: IReactorFromThreads,
    future: Any,
    read: Callable[[Any], T],
    outcome: Callable[[Any, T], Any],
) -> Deferred[Any]:
    """
    Wrap a running call in a Deferred.

    :param read: called with the completed future, perhaps in a thread of grpcio; must not raise.
    :param outcome: called in the reactor's thread with the future and the result of ``read``.
    :return: has the result of ``outcome``, or fails with it.  Cancelling it ends the call.
    """
    link.began()
    answer: Deferred[Any] = Deferred(lambda _: future.cancel())

    def done(value: T) -> None:
        link.ended()
        result = outcome(future, value)
        if answer.called:
            return
        if isinstance(result, Exception):
            answer.errback(result)
        else:
            answer.callback(result)

    future.add_done_callback(lambda _: reactor.callFromThread(done, read(future)))
    return answer


class Callers:
    """
    A few threads that make blocking calls: grpcio wakes a waiting thread sooner than it runs a
    future's callback.

    Use this for frequent calls while a thread is :attr:`free`.
    """

    def __init__(self, reactor: IReactorFromThreads, threads: int = 2) -> None:
        self._reactor, self._most = reactor, threads
        self._free = self._started = 0
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()

    @property
    def free(self) -> bool:
        return self._free > 0 or self._started < self._most

    def stop(self) -> None:
        work, self._work = self._work, queue.SimpleQueue()
        for _ in range(self._started):
            work.put(None)
        self._free = self._started = 0

    def call(
        self,
        link: Link,
        begin: Callable[[], T],
        outcome: Callable[[T], Any],
    ) -> Deferred[Any]:
        """
        Call in a thread that is :attr:`free`.

        :param begin: called in the thread; makes the call, waits and reads; must not raise.
        :return: as :func:`call`, but cancelling it does not end the call.
        """
        link.began()
        answer: Deferred[Any] = Deferred()
        work = self._work

        def done(value: T) -> None:
            link.ended()
            if work is self._work:
                self._free += 1
            result = outcome(value)
            if answer.called:
                return
            if isinstance(result, Exception):
                answer.errback(result)
            else:
                answer.callback(result)

        if self._free:
            self._free -= 1
        else:
            self._started += 1
            threading.Thread(
                target=self._run, args=(work,), name="grpc caller", daemon=True
            ).start()
        work.put(lambda: self._reactor.callFromThread(done, begin()))
        return answer

    @staticmethod
    def _run(work: queue.SimpleQueue[Callable[[], None] | None]) -> None:
        while (job := work.get()) is not None:
            job()
