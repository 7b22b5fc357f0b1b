"""
The store of several API servers: etcd.

Every server has all objects in memory (:mod:`twisted_exec.storage.history`) and keeps them
current by one watch, so lists, selectors and watches of clients cost etcd nothing.  A read that must
see what others have written asks etcd one small thing, the revision of the marker
(:mod:`twisted_exec.storage.etcd.keys`), and waits until that is shown here; all reads that
come while one such question is under way share the next one.  (etcd's own progress notifications
would tell the same, but may come before the events they speak of: etcd issue 15220, in Debian's
3.4.23.)

A write is one transaction: under the condition that the object is as its writer has read it, it
and the marker are put.

The watch goes on where it ended, if the marker's history is still the one that is known here;
otherwise, as when etcd has been put back to an earlier state or has compacted what was
missed, everything is listed again and whoever watches is told.  While nobody knows, nothing is
written.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NoReturn

import grpc
from twisted.application.service import Service
from twisted.internet import defer
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from twisted_exec.api.meta import Resource
from twisted_exec.api.status import APIError, GatewayTimeout, InternalError, ServiceUnavailable
from twisted_exec.storage import history
from twisted_exec.storage.errors import StorageError
from twisted_exec.storage.etcd.client import (
    RANGE,
    READ_SECONDS,
    TXN,
    WRITE_SECONDS,
    EtcdClient,
    EtcdError,
    read_refusal,
    write_refusal,
)
from twisted_exec.storage.etcd.compaction import Compaction
from twisted_exec.storage.etcd.feed import Compacted, Feed
from twisted_exec.storage.etcd.keys import (
    Keys,
    marker_value,
    place_of,
    read_marker,
    value_of,
)
from twisted_exec.storage.etcd.listing import claim, list_all
from twisted_exec.storage.etcd.order import Order, Write
from twisted_exec.storage.etcd.protos import etcd_pb2 as pb
from twisted_exec.storage.etcd.target import EtcdTarget
from twisted_exec.storage.history import History
from twisted_exec.storage.interfaces import (
    ADDED,
    DELETED,
    MODIFIED,
    Event,
    IStorage,
    IWatch,
    Listing,
    Object,
)

_WAITING_WRITES = 2048
_CATCH_UP_SECONDS = 3.0
"""How long a read, or a write that is made, may wait until it is shown here."""
_FIRST_RETRY_SECONDS, _LONGEST_RETRY_SECONDS = 0.1, 5.0
_STOP_SECONDS = 2.0
_NEVER = -1
_UNAVAILABLE = grpc.StatusCode.UNAVAILABLE


_Reads = Sequence[Deferred[int]]


class _Doubt(Exception):
    """Something does not fit: list again."""


@implementer(IStorage)
class EtcdStorage(Service):
    """
    Objects in an etcd cluster.

    :param target: which, and which keys of it.
    :param remembered: how many changes watches and older lists can go back.
    :param remembered_bytes: how large these may be together.
    :param read_seconds: how long etcd may take to answer a question.
    :param write_seconds: how long it may take to write.
    :ivar trouble: what keeps it from etcd, for operators; empty while it follows.
    """

    _log = Logger()
    alone = False

    def __init__(
        self,
        target: EtcdTarget,
        reactor: Any,
        *,
        remembered: int = history.REMEMBERED_CHANGES,
        remembered_bytes: int = history.REMEMBERED_BYTES,
        read_seconds: float = READ_SECONDS,
        write_seconds: float = WRITE_SECONDS,
    ) -> None:
        self._target, self._reactor = target, reactor
        self._remembered = remembered, remembered_bytes
        self._keys = Keys(target.prefix)
        self._client = EtcdClient(target, reactor, read_seconds, write_seconds)
        self._compaction = Compaction(self._client, self._keys, reactor, target.compaction_seconds)
        self._history = History(*self._remembered)
        self._order = Order(self._history, self._keys, reactor, self._doubt)
        self._replica = secrets.token_hex(8)
        self._written = 0
        self._created = 0
        self._keeping_up: Deferred[None] | None = None
        self._ready: list[Deferred[None]] = []
        self._outcome: Failure | None = None
        self._is_ready = False
        self._feed: Feed | None = None
        self._ended: Deferred[None] | None = None
        self._is_following = False
        self._following: list[Deferred[None]] = []
        self._reads: list[Deferred[int]] = []
        self._reading = False
        self._busy: set[Deferred[Any]] = set()
        self._failures = 0
        self.trouble = ""

    def startService(self) -> None:
        """Begin to list and to follow; :meth:`when_ready` tells when that is done."""
        super().startService()
        self._history = History(*self._remembered)
        self._order = Order(self._history, self._keys, self._reactor, self._doubt)
        self._outcome, self.trouble, self._created, self._is_ready = None, "", 0, False
        self._keeping_up = Deferred.fromCoroutine(self._keep_up())
        self._keeping_up.addErrback(self._failed)

    def stopService(self) -> Deferred[None]:
        """Fires when writes that were accepted are made, or soon; then nothing is connected."""
        super().stopService()
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        if self._busy:
            # What is waited for must not be timed out itself.
            waiting: Deferred[None] = Deferred()
            made = defer.DeferredList(list(self._busy))
            made.addCallback(lambda _: waiting.callback(None) if not waiting.called else None)
            waiting.addTimeout(_STOP_SECONDS, self._reactor)
            await waiting.addErrback(_if_too_late)
        if self._keeping_up is not None:
            self._keeping_up.cancel()
            self._keeping_up = None
        self._compaction.stop()
        self._stop_feed()
        self._order.stop()
        for each in self._following:
            each.cancel()
        self._client.close()
        self._tell_ready(Failure(StorageError("the store has been stopped")))
        for write in self._order.waiting():
            self._order.dismiss(write)
            write.done.errback(_closed())

    def when_ready(self) -> Deferred[None]:
        """See :meth:`IStorage.when_ready`."""
        waiting: Deferred[None] = Deferred()
        if self._outcome is not None:
            waiting.errback(self._outcome)
        elif self._is_ready:
            waiting.callback(None)
        else:
            self._ready.append(waiting)
        return waiting

    def get(
        self, resource: Resource, namespace: str, name: str, *, stale: bool = False
    ) -> Deferred[Object]:
        """See :meth:`IStorage.get`."""
        if stale:
            return defer.execute(self._history.get, resource, namespace, name)
        return self.current().addCallback(lambda _: self._history.get(resource, namespace, name))

    def list(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        version: int | None = None,
        stale: bool = False,
    ) -> Deferred[Listing]:
        """See :meth:`IStorage.list`."""
        if stale or (version is not None and version <= self._history.version):
            return defer.execute(self._history.list, resource, namespace, version)
        return self.current().addCallback(
            lambda _: self._history.list(resource, namespace, version)
        )

    def create(self, resource: Resource, obj: Object) -> Deferred[Object]:
        """See :meth:`IStorage.create`."""
        return self._begin_write(ADDED, resource, obj)

    def update(self, resource: Resource, obj: Object) -> Deferred[Object]:
        """See :meth:`IStorage.update`."""
        return self._begin_write(MODIFIED, resource, obj)

    def delete(self, resource: Resource, obj: Object) -> Deferred[Object]:
        """See :meth:`IStorage.delete`."""
        return self._begin_write(DELETED, resource, obj)

    def watch(
        self,
        resource: Resource,
        since: int | None,
        on_event: Callable[[Event], None],
        namespace: str = "",
        on_lost: Callable[[], None] | None = None,
    ) -> IWatch:
        """See :meth:`IStorage.watch`."""
        return self._history.watch(resource, since, on_event, namespace, on_lost)

    def version(self) -> int:
        """See :meth:`IStorage.version`."""
        return self._history.version

    def current(self) -> Deferred[int]:
        """See :meth:`IStorage.current`."""
        waiting: Deferred[int] = Deferred()
        if not self.running:
            waiting.errback(_closed())
            return waiting
        self._reads.append(waiting)
        if not self._reading:
            self._reading = True
            Deferred.fromCoroutine(self._read()).addErrback(lambda _: None)
        return waiting

    def probe(self) -> Deferred[object]:
        """
        See :meth:`IStorage.probe`: a transaction whose condition never holds.

        It takes a write's way through the members' logs, and is refused when etcd is full.
        """
        return self._busily(self._probe())

    async def _probe(self) -> None:
        await self._until_following()
        request = pb.TxnRequest(
            compare=[pb.Compare(target=pb.Compare.VERSION, key=self._keys.marker, version=_NEVER)],
            success=[pb.RequestOp(request_put=self._marking("probe"))],
        )
        try:
            await self._client.write(TXN, request)
        except EtcdError as error:
            raise write_refusal(error) from None

    # Keeping up with etcd.

    async def _keep_up(self) -> None:
        self._client.load()
        retry_seconds = _FIRST_RETRY_SECONDS
        known = False
        while True:
            began = self._reactor.seconds()
            try:
                if not known or not await self._goes_on():
                    known = False
                    await self._list()
                    known = True
                await self._follow()
            except (Compacted, _Doubt) as problem:
                known = False
                if str(problem):
                    self._log.warn("the store is listed again: {problem}", problem=problem)
            except EtcdError as error:
                if error.is_refusal and not self._is_ready:
                    raise StorageError(f"etcd at {self._target}: {error}") from None
                self._in_trouble(str(error))
            except StorageError as problem:
                if not self._is_ready:
                    raise
                self._in_trouble(str(problem))
            if self._reactor.seconds() - began > _LONGEST_RETRY_SECONDS:
                retry_seconds = _FIRST_RETRY_SECONDS
            if not self._others_to_ask():
                await deferLater(self._reactor, retry_seconds * random.uniform(0.5, 1.0))
                retry_seconds = min(retry_seconds * 2, _LONGEST_RETRY_SECONDS)

    async def _goes_on(self) -> bool:
        """Whether etcd still has the history that is known here, and where that ends."""
        seen, marker, key = self._order.seen, self._order.marker, self._keys.marker
        now = await self._client.read(RANGE, pb.RangeRequest(key=key))
        if not now.kvs or now.kvs[0].mod_revision < seen:
            self._log.error("etcd was put back to an earlier state: the store is listed again")
            return False
        if now.kvs[0].mod_revision > seen:
            try:
                now = await self._client.read(RANGE, pb.RangeRequest(key=key, revision=seen))
            except EtcdError as error:
                if error.is_compacted:
                    return False
                raise
        then = now.kvs[0] if now.kvs else pb.KeyValue()
        if then.mod_revision == seen and read_marker(key, then.value) == marker:
            return True
        self._log.error("etcd has another history than before: the store is listed again")
        return False

    async def _list(self) -> None:
        marker = await claim(self._client, self._keys, marker_value(self._next_write()))
        complain = self._order.complain if self._created else None
        objects, version = await list_all(self._client, self._keys, marker.revision, complain)
        version = max(version, marker.seen)
        if self._created:
            self._history.begin_anew(objects, version)
        else:
            self._history.restore(objects, version, version)
        self._order.begin(marker.seen, marker.write)
        self._created = marker.created

    async def _follow(self) -> None:
        """Show what happens, until that ends; fails with why."""
        await self._client.authenticated()
        ended = self._ended = Deferred()
        feed = self._feed = Feed(
            self._client, self._reactor, self._begun, self._order.events, self._feed_ended
        )
        feed.start(self._keys.first, self._keys.end, self._order.seen + 1)
        try:
            await ended
        finally:
            self._stop_feed()
            self._order.forget()

    def _begun(self) -> None:
        """From now on nothing is missed."""
        self._is_following = True
        self._compaction.start()
        self._out_of_trouble()
        self._tell_ready(None)
        following, self._following = self._following, []
        for waiting in following:
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

    def _doubt(self, why: str) -> None:
        self._end_feed(_Doubt(why))

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
        if not self.trouble:
            self._log.warn(
                "etcd at {target} does not serve the store: {why}", target=self._target, why=why
            )
        self.trouble = why or "does not answer"

    def _others_to_ask(self) -> bool:
        """Whether a member has failed and another one has not been asked yet."""
        return 0 < self._failures < len(self._target.endpoints)

    def _out_of_trouble(self) -> None:
        self._failures = 0
        if self.trouble:
            self.trouble = ""
            self._log.info("etcd at {target} serves the store again", target=self._target)

    # Reads.

    async def _read(self) -> None:
        """Answer all reads that wait, a round after the other."""
        while self._reads:
            reads, self._reads = self._reads, []
            try:
                await self._reach(reads)
            except EtcdError as error:
                _fail(reads, read_refusal(error))
            except Exception:  # nobody may wait for ever
                self._log.failure("reading failed")
                _fail(reads, InternalError("the store failed, see the log"))
        self._reading = False

    async def _reach(self, reads: _Reads) -> None:
        """One question for all of these; the next one may be asked while they wait to be shown."""
        shown = self._order.seen
        answer = await self._client.read(RANGE, pb.RangeRequest(key=self._keys.marker))
        latest = answer.kvs[0].mod_revision if answer.kvs else 0
        if latest < shown:
            self._doubt("etcd was put back to an earlier state")
            raise EtcdError(_UNAVAILABLE, "etcdserver: was put back to an earlier state")
        reached = self._order.reached(latest)
        reached.addTimeout(_CATCH_UP_SECONDS, self._reactor)
        reached.addCallbacks(partial(self._shown, reads), partial(self._not_shown, reads))

    def _shown(self, reads: _Reads, _: None) -> None:
        for each in reads:
            if not each.called:
                each.callback(self._history.version)

    def _not_shown(self, reads: _Reads, failure: Failure) -> None:
        """etcd has written what its watch does not tell: another member's may."""
        if self._feed is not None:
            self._feed_ended(EtcdError(_UNAVAILABLE, "the watch lags behind"))
        _fail(reads, GatewayTimeout("the store is catching up with etcd", retry_after_seconds=1))

    # Writes.

    def _begin_write(self, change: str, resource: Resource, obj: Object) -> Deferred[Object]:
        if not self.running:
            return defer.fail(_closed())
        if len(self._busy) >= _WAITING_WRITES:
            return defer.fail(
                ServiceUnavailable("too many writes are waiting", retry_after_seconds=1)
            )
        return self._busily(self._write(change, resource, obj))

    def _busily(self, work: Any) -> Deferred[Any]:
        doing = Deferred.fromCoroutine(work)
        if doing.called:
            return doing
        self._busy.add(doing)
        told: Deferred[Any] = Deferred(lambda _: doing.cancel())

        def done(outcome: Any) -> None:
            self._busy.discard(doing)
            if not told.called:
                told.callback(outcome)

        doing.addBoth(done)
        return told

    async def _write(self, change: str, resource: Resource, obj: Object) -> Object:
        await self._until_following()
        key = self._keys.key(resource, *history.key_of(obj))
        if change == ADDED:
            stored, compare = None, pb.Compare(target=pb.Compare.CREATE, key=key, create_revision=0)
        else:
            stored = await self._checked(resource, obj)
            version = int(stored["metadata"]["resourceVersion"])
            compare = pb.Compare(target=pb.Compare.MOD, key=key, mod_revision=version)
        if change == DELETED and stored is not None:
            put = pb.RequestOp(request_delete_range=pb.DeleteRangeRequest(key=key))
            obj, text = stored, ""
        else:
            text = value_of(obj)
            put = pb.RequestOp(request_put=pb.PutRequest(key=key, value=text.encode("ascii")))
        write = Write(self._next_write(), place_of(resource, obj), change, obj, text)
        await self._send(resource, write, compare, put)
        return await write.done

    async def _checked(self, resource: Resource, obj: Object) -> Object:
        """
        What is stored, when it is what the writer knows.

        :raises NotFound: there is none.
        :raises Conflict: it is another one, or has changed.
        """
        stored = self._history.find(resource, obj)
        version = obj["metadata"].get("resourceVersion")
        if stored is None or stored["metadata"]["resourceVersion"] != version:
            # Another server may have written what the writer has read there.
            await self.current()
            stored = self._history.find(resource, obj)
        metadata = stored["metadata"] if stored is not None else {}
        history.check_current(
            resource, obj, metadata.get("uid"), metadata.get("resourceVersion", "")
        )
        assert stored is not None, "it was checked to be there"
        return stored

    async def _send(
        self, resource: Resource, write: Write, compare: pb.Compare, put: pb.RequestOp
    ) -> None:
        marker = self._keys.marker
        ours = pb.Compare(target=pb.Compare.CREATE, key=marker, create_revision=self._created)
        request = pb.TxnRequest(
            compare=[ours, compare],
            success=[put, pb.RequestOp(request_put=self._marking(write.write))],
            failure=[
                pb.RequestOp(request_range=pb.RangeRequest(key=key))
                for key in (marker, compare.key)
            ],
        )
        self._order.expect(write)
        try:
            answer = await self._client.write(TXN, request)
        except EtcdError as error:
            self._dismiss(write, write_refusal(error))
            return
        except BaseException:
            self._order.dismiss(write)
            raise
        if not answer.succeeded:
            self._order.dismiss(write)
            self._refuse(resource, write, answer)
        after = answer.responses[1].response_put.prev_kv.mod_revision
        self._order.confirmed(write, answer.header.revision, after)
        if not write.done.called:
            # It is made; only who watches here has to wait.
            made = self._order.as_shown(write, answer.header.revision)
            write.done.addTimeout(_CATCH_UP_SECONDS, self._reactor, lambda *_: made)

    def _dismiss(self, write: Write, refusal: APIError) -> None:
        """It failed; but the watch may have told that it was made."""
        self._order.dismiss(write)
        if not write.done.called:
            write.done.errback(refusal)

    def _refuse(self, resource: Resource, write: Write, answer: pb.TxnResponse) -> NoReturn:
        """
        A condition did not hold.

        :raises APIError: says which.
        """
        markers, found = (each.response_range.kvs for each in answer.responses)
        if not markers or markers[0].create_revision != self._created:
            self._doubt("etcd's keys were replaced")
            raise ServiceUnavailable("the store was replaced just now", retry_after_seconds=1)
        if write.change == ADDED:
            history.check_absent(resource, write.obj, found)
            raise InternalError("etcd refused to make what is not there")
        history.check_current(
            resource, write.obj, write.obj["metadata"]["uid"] if found else None, ""
        )
        raise AssertionError("no version is empty")

    def _marking(self, write: str) -> pb.PutRequest:
        return pb.PutRequest(key=self._keys.marker, value=marker_value(write), prev_kv=True)

    def _next_write(self) -> str:
        self._written += 1
        return f"{self._replica}-{self._written}"

    async def _until_following(self) -> None:
        """
        Before anything is written it must be known what it is written over.

        :raises ServiceUnavailable: etcd is out of reach.
        """
        if self._is_following:
            return
        if self.trouble or not self.running:
            raise self._out_of_reach()
        waiting: Deferred[None] = Deferred()
        waiting.addTimeout(_CATCH_UP_SECONDS, self._reactor)
        self._following.append(waiting)
        try:
            await waiting
        except (defer.TimeoutError, defer.CancelledError):
            raise self._out_of_reach() from None

    def _out_of_reach(self) -> APIError:
        return ServiceUnavailable(
            "the store cannot write: etcd cannot be reached", retry_after_seconds=1
        )


def _closed() -> APIError:
    return ServiceUnavailable("the store is closed", retry_after_seconds=1)


def _if_too_late(failure: Failure) -> None:
    failure.trap(defer.TimeoutError)


def _fail(reads: _Reads, refusal: APIError) -> None:
    for each in reads:
        if not each.called:
            each.errback(refusal)
