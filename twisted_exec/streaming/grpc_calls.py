"""
Calls of a gRPC peer, as Deferreds.

grpcio has its own threads; they meet the reactor in one place, the done callback of a call's
future.  Channels are opened by the first call, not before: a program is made before its
daemon forks.  Whoever imports ``grpc`` imports this first.
"""

from __future__ import annotations

import os
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
        self._calls = 0
        self._retired = False

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
        long answer does not keep the reactor waiting; must not raise.
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
