"""
A local copy of etcd's objects.

If etcd was restored from a backup, or has compacted changes that the copy lacks, all objects are
listed again.
"""

from __future__ import annotations

import queue
import secrets
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from twisted.internet import defer
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from twisted_exec.api.status import APIError, ServiceUnavailable
from twisted_exec.control.backoff import Backoff
from twisted_exec.control.loop import PokedLoop
from twisted_exec.storage.etcd.client import COMPACT, RANGE, TXN, WATCH, EtcdClient
from twisted_exec.storage.etcd.errors import EtcdError, error_of, hint, refused
from twisted_exec.storage.etcd.keys import ForeignKey, Keys, MarkerValue, read_marker, shown
from twisted_exec.storage.etcd.order import Order
from twisted_exec.storage.etcd.protos import etcd_pb2 as pb
from twisted_exec.storage.history import History
from twisted_exec.storage.interfaces import Object, StorageError

CATCH_UP_SECONDS = 3.0
"""Time limit for a read or a confirmed write to become visible here."""
_FIRST_RETRY_SECONDS, _LONGEST_RETRY_SECONDS = 0.1, 5.0


class _Doubt(Exception):
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
        self.order = Order(history, keys, reactor, self.doubt)
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
        self._tell_ready(Failure(StorageError("the store has been stopped")))

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

    def doubt(self, why: str) -> None:
        """List everything again, because events contradict the copy."""
        self._end_feed(_Doubt(why))

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
                if not is_known or not await self._goes_on():
                    is_known = False
                    await self._list()
                    is_known = True
                await self._follow()
            except (Compacted, _Doubt) as problem:
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
            if not self._others_to_ask():
                await deferLater(self._reactor, backoff.pause())

    async def _goes_on(self) -> bool:
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
        self._tell_ready(None)
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
        self._tell_ready(failure)

    def _tell_ready(self, failure: Failure | None) -> None:
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
        if self._others_to_ask():
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

    def _others_to_ask(self) -> bool:
        return 0 < self._failures < len(self._target.endpoints)

    def _out_of_trouble(self) -> None:
        self._failures = 0
        if self.trouble:
            self.trouble = ""
            self._log.info("etcd at {target} serves the store again", target=self._target)


def _out_of_reach() -> APIError:
    return ServiceUnavailable(
        "the store cannot write: etcd cannot be reached", retry_after_seconds=1
    )


_PAGE_KEYS = 500
_PAGE_SECONDS = 10.0


@dataclass(frozen=True)
class Marker:
    """
    The marker, as read.

    :param seen: revision of the latest write of a server below the prefix.
    """

    revision: int
    seen: int
    created: int
    value: MarkerValue


async def claim(client: EtcdClient, keys: Keys, value: bytes) -> Marker:
    """
    Make sure that the prefix is ours; claim it if nobody uses it.

    :raises StorageError: the prefix is another program's, or the store there cannot be used.
    :raises EtcdError: etcd does not answer, or refuses.
    """
    for _ in range(2):
        marker = await _marker(client, keys)
        if marker is None:
            try:
                await check_free(client, keys)
            except ForeignKey:
                marker = await _marker(client, keys)  # another server may just have claimed it
                if marker is None:
                    raise
        if marker is not None:
            return marker
        compare = pb.Compare(target=pb.Compare.CREATE, key=keys.marker, create_revision=0)
        put = pb.RequestOp(request_put=pb.PutRequest(key=keys.marker, value=value))
        await client.write(TXN, pb.TxnRequest(compare=[compare], success=[put]))
    raise StorageError(f"etcd's key {shown(keys.marker)} is gone as soon as it is made")


async def check_free(client: EtcdClient, keys: Keys) -> None:
    """
    Check that a prefix without a marker is not used.

    A store writes the marker first, so keys without a marker are foreign.

    :raises ForeignKey: another program uses it, or it is within another store.
    :raises EtcdError: etcd does not answer, or refuses.
    """
    foreign = await _any_key(client, keys)
    if foreign is not None:
        raise ForeignKey(
            f"etcd's keys below {shown(keys.prefix.encode())} are another program's (such as "
            f"{shown(foreign)}): choose another prefix="
        )
    await _check_outside(client, keys)


async def _marker(client: EtcdClient, keys: Keys) -> Marker | None:
    answer = await client.read(RANGE, pb.RangeRequest(key=keys.marker))
    if not answer.kvs:
        return None
    (pair,) = answer.kvs
    value = read_marker(keys.marker, pair.value)
    return Marker(answer.header.revision, pair.mod_revision, pair.create_revision, value)


async def _any_key(client: EtcdClient, keys: Keys) -> bytes | None:
    # The store's own two keys do not count: the one for compaction may outlive all objects.
    request = pb.RangeRequest(key=keys.first, range_end=keys.end, limit=3, keys_only=True)
    answer = await client.read(RANGE, request)
    return next((bytes(pair.key) for pair in answer.kvs if not keys.is_own(pair.key)), None)


async def _check_outside(client: EtcdClient, keys: Keys) -> None:
    """Check that our prefix is not within another store, which would see our keys."""
    outer = keys.prefix.rpartition("/")[0]
    while outer:
        marker = Keys(outer).marker
        try:
            answer = await client.read(RANGE, pb.RangeRequest(key=marker, keys_only=True))
        except EtcdError as error:
            if not error.is_refusal:
                raise
            return  # our etcd user must not read there, so the check is not possible
        if answer.kvs:
            raise ForeignKey(
                f"prefix={keys.prefix} is within {outer}, which is a store already: choose "
                "another prefix="
            )
        outer = outer.rpartition("/")[0]


async def list_all(
    client: EtcdClient,
    keys: Keys,
    revision: int,
    complain: Callable[[ForeignKey], None] | None,
) -> tuple[list[tuple[str, Object]], int]:
    """
    Return all objects at a revision, and the latest of their revisions.

    :param revision: 0 for the present one: changes meanwhile may then be seen in part.
    :param complain: called for each foreign key, which is left out.
    :raises ForeignKey: there is a foreign key and no ``complain``.
    :raises EtcdError: etcd does not answer, or refuses.
    """
    objects: list[tuple[str, Object]] = []
    start, limit, latest = keys.first, _PAGE_KEYS, 0
    while True:
        request = pb.RangeRequest(key=start, range_end=keys.end, limit=limit, revision=revision)
        try:
            page = await client.read(RANGE, request, _PAGE_SECONDS)
        except EtcdError as error:
            if not error.is_too_large or limit == 1:
                raise
            limit = max(1, limit // 4)
            continue
        for pair in page.kvs:
            if keys.is_own(pair.key):
                continue
            try:
                place, obj = keys.read(pair.key, pair.value, pair.mod_revision)
            except ForeignKey as problem:
                if complain is None:
                    raise
                complain(problem)
                continue
            objects.append((place.table, obj))
            latest = max(latest, pair.mod_revision)
        if not page.more or not page.kvs:
            return objects, latest
        # The least key behind the last one.
        start = page.kvs[-1].key + b"\0"


_MOST_WAITING = 32
"""Limit of answers in the reactor's queue."""


class Compacted(Exception):
    """etcd has compacted the requested revision."""


class EtcdWatch:
    """
    One watch, until it ends.

    :param on_events: called with the events of whole revisions, in order, and with a function to
        call when they have been handled.
    :param on_end: called once with the reason, :class:`Compacted` or :class:`EtcdError`, but not
        after :meth:`stop`.
    """

    def __init__(
        self,
        client: EtcdClient,
        reactor: Any,
        on_begun: Callable[[], None],
        on_events: Callable[[list[pb.Event], Callable[[], None]], None],
        on_end: Callable[[Exception], None],
    ) -> None:
        self._client, self._reactor = client, reactor
        self._on_begun, self._on_events, self._on_end = on_begun, on_events, on_end
        self._requests: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._room = threading.Semaphore(_MOST_WAITING)
        self._stopped = False
        self._call: Any = None
        self.endpoint = client.endpoint

    def start(self, first: bytes, end: bytes, since: int) -> None:
        """Start with the changes of revision ``since``."""
        # With fragments etcd splits an answer that exceeds its limit of a request.
        create = pb.WatchCreateRequest(
            key=first, range_end=end, start_revision=since, fragment=True
        )
        self._requests.put(pb.WatchRequest(create_request=create).SerializeToString())
        self._link = self._client.link(self.endpoint)
        self._link.began()
        stub = self._link.channel.stream_stream(WATCH.path)
        self._call = stub(self._asking(), metadata=self._client.metadata(WATCH))
        threading.Thread(target=self._read, name="storage feed", daemon=True).start()

    def stop(self) -> None:
        """Stop; nothing is called any more."""
        self._stopped = True
        self._requests.put(None)
        if self._call is not None:
            self._call.cancel()
        # The thread may wait for it.
        self._room.release()

    def _asking(self) -> Iterator[bytes]:
        # gRPC ends the stream when its request iterator ends, so this iterator blocks until stop().
        while (request := self._requests.get()) is not None:
            yield request

    def _read(self) -> None:
        problem: Exception
        try:
            self._read_answers()
            problem = EtcdError(grpc.StatusCode.UNAVAILABLE, "etcd has ended the watch")
        except grpc.RpcError:
            problem = error_of(self._call)
        except DecodeError:
            problem = EtcdError(grpc.StatusCode.INTERNAL, "this is no answer of etcd's")
        except (Compacted, EtcdError) as told:
            problem = told
        except Exception as unexpected:  # otherwise the watch would stop without notice
            problem = EtcdError(grpc.StatusCode.INTERNAL, type(unexpected).__name__)
        self._reactor.callFromThread(self._ended, problem)

    def _read_answers(self) -> None:
        events: list[pb.Event] = []
        for raw in self._call:
            answer = pb.WatchResponse.FromString(raw)
            if answer.compact_revision:
                raise Compacted
            if answer.canceled:
                raise EtcdError(grpc.StatusCode.UNAVAILABLE, answer.cancel_reason)
            if answer.created:
                self._reactor.callFromThread(self._tell_begun)
            events.extend(answer.events)
            if events and not answer.fragment:
                # A burst does not fill this server's memory: etcd keeps what is not read.
                self._room.acquire()
                self._reactor.callFromThread(self._tell, events)
                events = []

    def _tell_begun(self) -> None:
        if not self._stopped:
            self._on_begun()

    def _tell(self, events: list[pb.Event]) -> None:
        if not self._stopped:
            self._on_events(events, self._room.release)

    def _ended(self, problem: Exception) -> None:
        self._call.cancel()
        self._requests.put(None)
        self._link.ended()
        if not self._stopped:
            self._stopped = True
            self._on_end(problem)


class Compaction:
    """
    Compacts etcd's history periodically, in turn with other servers.

    :param interval_seconds: time between two compactions, and the age of compacted revisions; 0
        disables compaction.
    """

    _log = Logger()

    def __init__(self, client: EtcdClient, keys: Keys, clock: Any, interval_seconds: float) -> None:
        self._client, self._key, self._interval = client, keys.compacted, interval_seconds
        self._turns, self._revision = 0, 0
        self._troubled = False
        self._loop = PokedLoop(self.compact, clock, interval_seconds)

    def start(self) -> None:
        if self._interval:
            self._loop.start(self._interval)

    def stop(self) -> None:
        self._loop.stop()

    async def compact(self) -> None:
        """Compact, if it is this server's turn."""
        try:
            await self._compact()
        except EtcdError as error:
            if not self._troubled:
                self._log.warn("etcd cannot be compacted: {error}", error=error)
            self._troubled = True
        else:
            self._troubled = False

    async def _compact(self) -> None:
        revision = self._revision
        # As in kube-apiserver (k8s.io/apiserver/pkg/storage/etcd3/compact.go): of all servers the
        # one that writes the key's next version has the turn.
        compare = pb.Compare(target=pb.Compare.VERSION, key=self._key, version=self._turns)
        put = pb.PutRequest(key=self._key, value=str(revision).encode())
        request = pb.TxnRequest(
            compare=[compare],
            success=[pb.RequestOp(request_put=put)],
            failure=[pb.RequestOp(request_range=pb.RangeRequest(key=self._key))],
        )
        answer = await self._client.write(TXN, request)
        self._revision = answer.header.revision
        if not answer.succeeded:
            kvs = answer.responses[0].response_range.kvs
            self._turns = kvs[0].version if kvs else 0
            return
        self._turns += 1
        # That of one interval ago, so that a server can resume its watch after a shorter outage.
        if revision:
            await self._client.write(COMPACT, pb.CompactionRequest(revision=revision))
