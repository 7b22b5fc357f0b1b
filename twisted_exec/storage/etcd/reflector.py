"""
A local copy of etcd's objects.

If etcd was restored from a backup, or has compacted changes that the copy lacks, all objects are
listed again.
"""

from __future__ import annotations

import secrets
from typing import Any

from twisted.internet import defer
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from twisted_exec.api.status import APIError, ServiceUnavailable
from twisted_exec.control.backoff import Backoff
from twisted_exec.program.service import SUMMARY
from twisted_exec.storage.etcd.claim import claim
from twisted_exec.storage.etcd.client import RANGE, EtcdClient
from twisted_exec.storage.etcd.compaction import Compaction
from twisted_exec.storage.etcd.errors import EtcdError, hint, refused
from twisted_exec.storage.etcd.keys import Keys
from twisted_exec.storage.etcd.listing import list_all
from twisted_exec.storage.etcd.marker import MarkerValue, read_marker
from twisted_exec.storage.etcd.order import ChangeOrder
from twisted_exec.storage.etcd.protos import etcd_pb2 as pb
from twisted_exec.storage.etcd.watch import Compacted, EtcdWatch
from twisted_exec.storage.history import History
from twisted_exec.storage.interfaces import StorageError

CATCH_UP_SECONDS = 3.0
"""Time limit for a read or a confirmed write to become visible here."""
_FIRST_RETRY_SECONDS, _LONGEST_RETRY_SECONDS = 0.1, 5.0


class _Contradiction(Exception):
    """Events contradict the copy: list again."""


class EtcdReflector:
    """
    Follows one etcd, from :meth:`start` to :meth:`stop`.

    :ivar created: revision at which the prefix was claimed; 0 while unknown.
    """

    _log = Logger()

    def __init__(self, client: EtcdClient, keys: Keys, history: History, reactor: Any) -> None:
        self._client, self._keys, self._reactor = client, keys, reactor
        self._target = client.target
        self._history = history
        self.order = ChangeOrder(history, keys, reactor, self.list_again)
        self._compaction = Compaction(client, keys, reactor, client.target.compaction_seconds)
        self._replica = secrets.token_hex(8)
        self._written = 0
        self.created = 0
        self._followed_from = 0
        self.trouble = ""
        self._failures = 0
        self._keeping_up: Deferred[None] | None = None
        self._ready: list[Deferred[None]] = []
        self._outcome: Failure | None = None
        self._is_ready = self._is_stopped = False
        self._feed: EtcdWatch | None = None
        self._ended: Deferred[None] | None = None
        self._is_following = False
        self._waiting: list[Deferred[None]] = []

    def start(self) -> None:
        """Start; see :meth:`when_ready`."""
        self._keeping_up = Deferred.fromCoroutine(self._keep_up())
        self._keeping_up.addErrback(self._failed)

    def stop(self) -> None:
        """Stop; reads and writes that wait for etcd fail."""
        self._is_stopped = True
        if self._keeping_up is not None:
            self._keeping_up.cancel()
        self._compaction.stop()
        self._stop_feed()
        self.order.stop()
        for each in self._waiting:
            each.cancel()
        self._fire_ready(Failure(StorageError("the store has been stopped")))

    def when_ready(self) -> Deferred[None]:
        waiting: Deferred[None] = Deferred()
        if self._outcome is not None:
            waiting.errback(self._outcome)
        elif self._is_ready:
            waiting.callback(None)
        else:
            self._ready.append(waiting)
        return waiting

    async def until_following(self) -> None:
        """
        Wait until the copy follows etcd.

        :raises ServiceUnavailable: etcd is out of reach.
        """
        if self._is_following:
            return
        if self.trouble or self._is_stopped:
            raise _out_of_reach()
        waiting: Deferred[None] = Deferred()
        waiting.addTimeout(CATCH_UP_SECONDS, self._reactor)
        self._waiting.append(waiting)
        try:
            await waiting
        except (defer.TimeoutError, defer.CancelledError):
            raise _out_of_reach() from None

    def next_write(self) -> str:
        self._written += 1
        return f"{self._replica}-{self._written}"

    def list_again(self, why: str) -> None:
        """List everything again, because events contradict the copy."""
        self._end_feed(_Contradiction(why))

    def lags(self, why: EtcdError) -> None:
        """Connect to the next member, because this member's watch lags behind."""
        if self._feed is not None:
            self._feed_ended(why)

    async def _keep_up(self) -> None:
        # Not a PokedLoop: the state between two attempts is where the stream of events stands.
        self._client.load()
        backoff = Backoff(_FIRST_RETRY_SECONDS, _LONGEST_RETRY_SECONDS)
        is_known = False
        while True:
            began = self._reactor.seconds()
            try:
                if not is_known or not await self._continue_history():
                    is_known = False
                    await self._list()
                    is_known = True
                await self._follow()
            except (Compacted, _Contradiction) as problem:
                is_known = False
                if str(problem):
                    self._log.warn("the store is listed again: {problem}", problem=problem)
            except EtcdError as error:
                if error.is_refusal and not self._is_ready:
                    raise StorageError(refused(error, self._target)) from None
                self._in_trouble(str(error))
            except StorageError as problem:
                if not self._is_ready:
                    raise
                self._in_trouble(str(problem))
            if self._reactor.seconds() - began > _LONGEST_RETRY_SECONDS:
                backoff.reset()
            if not self._has_other_members():
                await deferLater(self._reactor, backoff.pause())

    async def _continue_history(self) -> bool:
        """Follow on from the last event seen, if the store has the same history; return whether it has."""
        revision, marker, key = self.order.seen, self.order.marker, self._keys.marker
        now = await self._client.read(RANGE, pb.RangeRequest(key=key))
        if not now.kvs or now.kvs[0].mod_revision < revision:
            self._log.error("etcd was put back to an earlier state: the store is listed again")
            return False
        if now.kvs[0].mod_revision > revision:
            try:
                now = await self._client.read(RANGE, pb.RangeRequest(key=key, revision=revision))
            except EtcdError as error:
                if error.is_compacted:
                    return False
                raise
        then = now.kvs[0] if now.kvs else pb.KeyValue()
        if then.mod_revision == revision and read_marker(key, then.value).write == marker:
            self._followed_from = revision + 1
            return True
        self._log.error("etcd has another history than before: the store is listed again")
        return False

    async def _list(self) -> None:
        marker = await claim(self._client, self._keys, MarkerValue(self.next_write()).encode())
        self._keys.skipped = marker.value.skipped
        complain = self.order.complain if self.created else None
        objects, latest = await list_all(self._client, self._keys, marker.revision, complain)
        version = self._keys.version(max(latest, marker.seen))
        if self.created:
            if marker.created != self.created:
                self._log.error(
                    "another program deleted etcd's keys below {prefix}; objects left: {count}",
                    prefix=self._target.prefix,
                    count=len(objects),
                )
            self._history.start_over(objects, version)
        else:
            self._history.restore(objects, version, version)
        self.order.begin(marker.seen, marker.value.write)
        self.created = marker.created
        # Not from our last write: another program in the same etcd may have compacted that revision.
        self._followed_from = marker.revision + 1

    async def _follow(self) -> None:
        await self._client.authenticated()
        ended = self._ended = Deferred()
        feed = self._feed = EtcdWatch(
            self._client, self._reactor, self._begun, self.order.events, self._feed_ended
        )
        feed.start(self._keys.first, self._keys.end, self._followed_from)
        try:
            await ended
        finally:
            self._stop_feed()
            self.order.forget()

    def _begun(self) -> None:
        self._is_following = True
        self._compaction.start()
        self._out_of_trouble()
        self._fire_ready(None)
        waiting_writes, self._waiting = self._waiting, []
        for waiting in waiting_writes:
            if not waiting.called:
                waiting.callback(None)

    def _feed_ended(self, why: Exception) -> None:
        if isinstance(why, EtcdError) and self._feed is not None:
            self._client.leave(self._feed.endpoint)
            self._client.forget_token()
        self._end_feed(why)

    def _end_feed(self, why: Exception) -> None:
        ended, self._ended = self._ended, None
        if ended is not None:
            ended.errback(why)

    def _stop_feed(self) -> None:
        feed, self._feed, self._ended, self._is_following = self._feed, None, None, False
        if feed is not None:
            feed.stop()

    def _failed(self, failure: Failure) -> None:
        if failure.check(defer.CancelledError):
            return
        if not failure.check(StorageError):
            self._log.failure("the store has failed", failure)
            failure = Failure(StorageError("the store has failed, see the log"))
        self.trouble = failure.getErrorMessage()
        self._fire_ready(failure)

    def _fire_ready(self, failure: Failure | None) -> None:
        self._outcome, self._is_ready = failure, failure is None
        ready, self._ready = self._ready, []
        for waiting in ready:
            if waiting.called:
                continue
            if failure is None:
                waiting.callback(None)
            else:
                waiting.errback(failure)

    def _in_trouble(self, why: str) -> None:
        self._failures += 1
        if self._has_other_members():
            return
        helps = hint(why, self._target)
        # Once per outage; again if a later error has a remedy and the first had none: that etcd wants a
        # certificate shows only after it is up.
        if not self.trouble or (helps and not hint(self.trouble, self._target)):
            self._log.warn(
                "etcd at {target} does not serve the store: {why}{helps}",
                target=self._target,
                why=why,
                helps=helps,
            )
        self.trouble = why or "does not answer"

    def _has_other_members(self) -> bool:
        return 0 < self._failures < len(self._target.endpoints)

    def _out_of_trouble(self) -> None:
        self._failures = 0
        if self.trouble:
            self.trouble = ""
            self._log.info(
                "etcd at {target} serves the store again", target=self._target, **{SUMMARY: True}
            )


def _out_of_reach() -> APIError:
    return ServiceUnavailable(
        "the store cannot write: etcd cannot be reached", retry_after_seconds=1
    )
