"""
The store of several API servers: etcd, with its reads and writes.

Each server has the objects in memory (:mod:`twisted_exec.storage.history`), kept current by a watch
(:mod:`.reflector`).

A read that must see other servers' writes (:class:`Reads`) gets the revision of the marker
(:mod:`twisted_exec.storage.etcd.keys`), and waits until that is visible here.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NoReturn

import grpc
from twisted.internet import defer
from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from twisted_exec.api.resource import Resource
from twisted_exec.api.status import APIError, GatewayTimeout, InternalError, ServiceUnavailable
from twisted_exec.storage import history
from twisted_exec.storage.etcd.client import (
    RANGE,
    READ_SECONDS,
    TXN,
    UNAVAILABLE,
    WRITE_SECONDS,
    EtcdClient,
    EtcdError,
    read_refusal,
    write_refusal,
)
from twisted_exec.storage.etcd.keys import Keys, MarkerValue, is_marker_of, place_of, value_of
from twisted_exec.storage.etcd.order import OrderedWrite
from twisted_exec.storage.etcd.protos import etcd_pb2 as pb
from twisted_exec.storage.etcd.reflector import CATCH_UP_SECONDS, EtcdReflector
from twisted_exec.storage.etcd.target import EtcdTarget
from twisted_exec.storage.history import History
from twisted_exec.storage.interfaces import (
    ADDED,
    DELETED,
    MODIFIED,
    IStorage,
    Object,
)
from twisted_exec.storage.memory import HistoryStorage
from twisted_exec.storage.quota import NO_LIMITS, QuotaLimits


@implementer(IStorage)
class EtcdStorage(HistoryStorage):
    """
    Objects in an etcd cluster.

    :param limits: servers that write at the same time may exceed them by these writes.
    :param remembered: number of changes kept for watches and older lists.
    :param remembered_bytes: limit of the size of these changes together.
    """

    exclusive = False

    def __init__(
        self,
        target: EtcdTarget,
        reactor: Any,
        *,
        remembered: int = history.REMEMBERED_CHANGES,
        remembered_bytes: int = history.REMEMBERED_BYTES,
        read_seconds: float = READ_SECONDS,
        write_seconds: float = WRITE_SECONDS,
        limits: QuotaLimits = NO_LIMITS,
    ) -> None:
        super().__init__(limits)
        self._reactor, self._keys = reactor, Keys(target.prefix)
        self.location = target.location
        self._remembered = remembered, remembered_bytes
        self._client = EtcdClient(target, reactor, read_seconds, write_seconds)
        self._begin_anew()

    def _begin_anew(self) -> None:
        self.history = History(*self._remembered)
        sources = (self.history, self._reactor)
        self._following = EtcdReflector(self._client, self._keys, *sources)
        self._reads = Reads(self._client, self._keys.marker, self._following, *sources)
        self._writes = Writes(self._client, self._keys, self._following, self._reads, *sources)

    @property
    def trouble(self) -> str:
        """The problem with etcd, for operators, or empty."""
        return self._following.trouble

    def startService(self) -> None:
        """Start to list and watch; see :meth:`when_ready`."""
        super().startService()
        self._begin_anew()
        self._following.start()

    def stopService(self) -> Deferred[None]:
        """Fires when accepted writes are complete or timed out."""
        super().stopService()
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        await self._writes.finish()
        self._following.stop()
        self._client.close()
        self._writes.stop()

    def when_ready(self) -> Deferred[None]:
        return self._following.when_ready()

    def create(self, resource: Resource, obj: Object) -> Deferred[Object]:
        return self.within_quota(resource, obj, ADDED, partial(self._write, ADDED, resource, obj))

    def update(self, resource: Resource, obj: Object) -> Deferred[Object]:
        return self.within_quota(
            resource, obj, MODIFIED, partial(self._write, MODIFIED, resource, obj)
        )

    def delete(self, resource: Resource, obj: Object) -> Deferred[Object]:
        return self._write(DELETED, resource, obj)

    def current(self) -> Deferred[int]:
        return self._reads.current() if self.running else defer.fail(_closed())

    def probe(self) -> Deferred[object]:
        return self._writes.probe() if self.running else defer.fail(_closed())

    def _write(self, change: str, resource: Resource, obj: Object) -> Deferred[Object]:
        if not self.running:
            return defer.fail(_closed())
        return self._writes.begin(change, resource, obj)


def _closed() -> APIError:
    return ServiceUnavailable("the store is closed", retry_after_seconds=1)


_Reads = Sequence[Deferred[int]]


class Reads:
    """Waits until the local copy is current."""

    _log = Logger()

    def __init__(
        self,
        client: EtcdClient,
        marker: bytes,
        following: EtcdReflector,
        history: History,
        reactor: Any,
    ) -> None:
        self._client, self._marker, self._reactor = client, marker, reactor
        self._following, self._history = following, history
        self._waiting: list[Deferred[int]] = []
        self._reading = False

    def current(self) -> Deferred[int]:
        waiting: Deferred[int] = Deferred()
        self._waiting.append(waiting)
        if not self._reading:
            self._reading = True
            Deferred.fromCoroutine(self._read())
        return waiting

    async def _read(self) -> None:
        while self._waiting:
            reads, self._waiting = self._waiting, []
            try:
                await self._reach(reads)
            except EtcdError as error:
                _fail(reads, read_refusal(error))
            except Exception:  # otherwise the reads would wait forever
                self._log.failure("reading failed")
                _fail(reads, InternalError("the store failed, see the log"))
        self._reading = False

    async def _reach(self, reads: _Reads) -> None:
        order = self._following.order
        revision = order.seen
        # etcd's progress notifications seem made for this, but may arrive before the events that
        # they cover (etcd issue 15220, in Debian's 3.4.23).
        answer = await self._client.read(RANGE, pb.RangeRequest(key=self._marker))
        marker = answer.kvs[0] if answer.kvs else pb.KeyValue()
        latest = marker.mod_revision
        # After etcd was restored from a backup, the same revision can be another write.
        another = latest == order.seen and not is_marker_of(order.marker, marker)
        if latest < revision or another:
            self._following.doubt("etcd was put back to an earlier state")
            raise EtcdError(UNAVAILABLE, "etcdserver: was put back to an earlier state")
        reached = order.reached(latest)
        reached.addTimeout(CATCH_UP_SECONDS, self._reactor)
        reached.addCallbacks(partial(self._shown, reads), partial(self._not_shown, reads))

    def _shown(self, reads: _Reads, _: None) -> None:
        for each in reads:
            if not each.called:
                each.callback(self._history.version)

    def _not_shown(self, reads: _Reads, failure: Failure) -> None:
        """Switch members: this member's watch does not deliver a write."""
        self._following.lags(EtcdError(UNAVAILABLE, "the watch lags behind"))
        _fail(reads, GatewayTimeout("the store is catching up with etcd", retry_after_seconds=1))


def _fail(reads: _Reads, refusal: APIError) -> None:
    for each in reads:
        if not each.called:
            each.errback(refusal)


_WAITING_WRITES = 2048
_STOP_SECONDS = 2.0
_NEVER = -1


class Writes:
    """Sends writes, a limited number at the same time."""

    def __init__(
        self,
        client: EtcdClient,
        keys: Keys,
        following: EtcdReflector,
        reads: Reads,
        history: History,
        reactor: Any,
    ) -> None:
        self._client, self._keys, self._reactor = client, keys, reactor
        self._following, self._reads, self._history = following, reads, history
        self._order = following.order
        self._busy: set[Deferred[Any]] = set()

    def begin(self, change: str, resource: Resource, obj: Object) -> Deferred[Object]:
        """As :meth:`IStorage.create` and the others."""
        if len(self._busy) >= _WAITING_WRITES:
            return defer.fail(
                ServiceUnavailable("too many writes are waiting", retry_after_seconds=1)
            )
        return self._busily(self._write(change, resource, obj))

    def probe(self) -> Deferred[object]:
        """
        As :meth:`IStorage.probe`: a transaction whose condition never holds. It fails when etcd's
        quota is used up.
        """
        return self._busily(self._probe())

    async def finish(self) -> None:
        """Wait for the writes that were begun, with a time limit."""
        if not self._busy:
            return
        # The time limit must not cancel the writes themselves.
        waiting: Deferred[None] = Deferred()
        all_done = defer.DeferredList(list(self._busy))
        all_done.addCallback(lambda _: waiting.callback(None) if not waiting.called else None)
        waiting.addTimeout(_STOP_SECONDS, self._reactor)
        await waiting.addErrback(_if_too_late)

    def stop(self) -> None:
        """Fail the unconfirmed writes; their outcome is unknown."""
        for write in self._order.waiting():
            self._dismiss(write, write_refusal(EtcdError(grpc.StatusCode.CANCELLED, "")))

    async def _probe(self) -> None:
        await self._following.until_following()
        request = pb.TxnRequest(
            compare=[pb.Compare(target=pb.Compare.VERSION, key=self._keys.marker, version=_NEVER)],
            success=[pb.RequestOp(request_put=self._marking("probe"))],
        )
        try:
            await self._client.write(TXN, request)
        except EtcdError as error:
            raise write_refusal(error) from None

    def _busily(self, work: Any) -> Deferred[Any]:
        doing = Deferred.fromCoroutine(work)
        if doing.called:
            return doing
        self._busy.add(doing)
        outcome_deferred: Deferred[Any] = Deferred(lambda _: doing.cancel())

        def done(outcome: Any) -> None:
            self._busy.discard(doing)
            if not outcome_deferred.called:
                outcome_deferred.callback(outcome)

        doing.addBoth(done)
        return outcome_deferred

    async def _write(self, change: str, resource: Resource, obj: Object) -> Object:
        await self._following.until_following()
        key = self._keys.key(resource, *history.key_of(obj))
        if change == ADDED:
            stored, compare = None, pb.Compare(target=pb.Compare.CREATE, key=key, create_revision=0)
        else:
            stored = await self._checked(resource, obj)
            revision = self._keys.revision(int(stored["metadata"]["resourceVersion"]))
            compare = pb.Compare(target=pb.Compare.MOD, key=key, mod_revision=revision)
        if change == DELETED and stored is not None:
            put = pb.RequestOp(request_delete_range=pb.DeleteRangeRequest(key=key))
            obj, text = stored, ""
        else:
            text = value_of(obj)
            put = pb.RequestOp(request_put=pb.PutRequest(key=key, value=text.encode("ascii")))
        write = OrderedWrite(
            self._following.next_write(), place_of(resource, obj), change, obj, text
        )
        await self._send(resource, write, compare, put)
        return await write.done

    async def _checked(self, resource: Resource, obj: Object) -> Object:
        stored = self._history.find(resource, obj)
        version = obj["metadata"].get("resourceVersion")
        if stored is None or stored["metadata"]["resourceVersion"] != version:
            # The writer may have read a newer object from another server; wait until it is visible here.
            await self._reads.current()
            stored = self._history.find(resource, obj)
        metadata = stored["metadata"] if stored is not None else {}
        history.check_current(
            resource, obj, metadata.get("uid"), metadata.get("resourceVersion", "")
        )
        assert stored is not None, "it was checked to be there"
        return stored

    async def _send(
        self, resource: Resource, write: OrderedWrite, compare: pb.Compare, put: pb.RequestOp
    ) -> None:
        marker = self._keys.marker
        ours = pb.Compare(
            target=pb.Compare.CREATE, key=marker, create_revision=self._following.created
        )
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
            # The write is durable; only watchers of this server get it later.
            obj = self._order.as_shown(write, answer.header.revision)
            write.done.addTimeout(CATCH_UP_SECONDS, self._reactor, lambda *_: obj)

    def _dismiss(self, write: OrderedWrite, refusal: APIError) -> None:
        self._order.dismiss(write)
        if not write.done.called:
            write.done.errback(refusal)

    def _refuse(self, resource: Resource, write: OrderedWrite, answer: pb.TxnResponse) -> NoReturn:
        markers, pairs = (each.response_range.kvs for each in answer.responses)
        if not markers or markers[0].create_revision != self._following.created:
            self._following.doubt("etcd's keys were replaced")
            raise ServiceUnavailable("the store was replaced just now", retry_after_seconds=1)
        if write.change == ADDED:
            history.check_absent(resource, write.obj, pairs)
            raise InternalError("etcd refused to make what is not there")
        history.check_current(
            resource, write.obj, write.obj["metadata"]["uid"] if pairs else None, ""
        )
        raise AssertionError("no version is empty")

    def _marking(self, write: str) -> pb.PutRequest:
        value = MarkerValue(write, self._keys.skipped).encode()
        return pb.PutRequest(key=self._keys.marker, value=value, prev_kv=True)


def _if_too_late(failure: Failure) -> None:
    failure.trap(defer.TimeoutError)
