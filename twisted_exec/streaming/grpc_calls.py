"""
Calls of a gRPC peer, as Deferreds.

grpcio has its own threads; they meet the reactor in one place, the done callback of a call's
future.  Channels are opened by the first call, not before: a program is made before its
daemon forks.  Whoever imports ``grpc`` imports this first.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorFromThreads

# grpcio's fork handlers wait for its own threads: a pty spawned while calls are
# under way hangs in them.  grpc reads this once, when it is first imported.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"
# Its C core writes to standard error by itself, past every log; what matters comes
# back as the status of a call.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

T = TypeVar("T")

CHANNEL_OPTIONS = (
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # Subchannels shared by the process would also share their back-off.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
)
"""For every channel: soon connected again, and never by a proxy that the environment names."""


class Link:
    """One channel, closed when it is retired and its last call has ended."""

    def __init__(self, channel: Any) -> None:
        self.channel = channel
        self._stubs: dict[str, Any] = {}
        self._calls = 0
        self._retired = False

    def unary(self, path: str) -> Any:
        """grpcio's callable of a method, with bytes both ways; made once, for that takes long."""
        found = self._stubs.get(path)
        if found is None:
            found = self._stubs[path] = self.channel.unary_unary(path)
        return found

    def began(self) -> None:
        """A call goes on over it."""
        self._calls += 1

    def ended(self) -> None:
        """A call of :meth:`began` is over."""
        self._calls -= 1
        self._close_if_done()

    def retire(self) -> None:
        """No call comes any more."""
        self._retired = True
        self._close_if_done()

    def close(self) -> None:
        """Now; calls that go on fail as cancelled."""
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
    A call that has begun, as a Deferred.

    :param future: of a stub, with a deadline.
    :param read: called with the future when it is done, in one of grpcio's threads, so that a
        long answer does not keep the reactor waiting (at once, when it is done already); must not
        raise.
    :param outcome: called in the reactor's thread with the future and what ``read`` made.
    :return: fires with what ``outcome`` returns, fails with it when that is an exception.
        Cancelling it ends the call.
    """
    link.began()
    answer: Deferred[Any] = Deferred(lambda _: future.cancel())

    def done(made: T) -> None:
        link.ended()
        told = outcome(future, made)
        if answer.called:
            return
        if isinstance(told, Exception):
            answer.errback(told)
        else:
            answer.callback(told)

    future.add_done_callback(lambda _: reactor.callFromThread(done, read(future)))
    return answer


class Callers:
    """
    A few threads that call and wait.

    grpcio answers a thread that waits sooner than it runs a future's callback, by a fifth of a
    millisecond; but a thread waits for one call only.  So this is for who calls often and is waited
    for: as long as a thread is free, it calls.

    :param reactor: where answers arrive.
    """

    def __init__(self, reactor: IReactorFromThreads, threads: int = 2) -> None:
        self._reactor, self._most = reactor, threads
        self._free = self._started = 0
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()

    @property
    def free(self) -> bool:
        """Whether a call would begin at once."""
        return self._free > 0 or self._started < self._most

    def stop(self) -> None:
        """The threads end when their calls have."""
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

        :param begin: called there; calls, waits and reads, and must not raise.
        :param outcome: called in the reactor's thread with what it returned.
        :return: as :func:`call`; cancelling it leaves the call alone, which has a deadline.
        """
        link.began()
        answer: Deferred[Any] = Deferred()
        work = self._work

        def done(made: T) -> None:
            link.ended()
            if work is self._work:
                self._free += 1
            told = outcome(made)
            if answer.called:
                return
            if isinstance(told, Exception):
                answer.errback(told)
            else:
                answer.callback(told)

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
