"""
Writes of objects to etcd.
"""

from __future__ import annotations

from typing import Any, NoReturn

import grpc
from twisted.internet import defer
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from twisted_exec.api.resource import Resource
from twisted_exec.api.status import APIError, InternalError, ServiceUnavailable
from twisted_exec.storage import history, write_checks
from twisted_exec.storage.etcd.client import TXN, EtcdClient
from twisted_exec.storage.etcd.consistent_reads import ConsistentReads
from twisted_exec.storage.etcd.errors import EtcdError, write_refusal
from twisted_exec.storage.etcd.keys import Keys, place_of, value_of
from twisted_exec.storage.etcd.marker import MarkerValue
from twisted_exec.storage.etcd.order import OrderedWrite
from twisted_exec.storage.etcd.protos import etcd_pb2 as pb
from twisted_exec.storage.etcd.reflector import CATCH_UP_SECONDS, EtcdReflector
from twisted_exec.storage.history import History
from twisted_exec.storage.interfaces import ADDED, DELETED, Object

_MOST_PENDING = 2048
"""Writes that were begun and are not complete; more are refused."""
_STOP_SECONDS = 2.0
_IMPOSSIBLE_VERSION = -1


class Writes:
    """
    Sends writes, a limited number at the same time.

    Each is a transaction, whose condition is that the object is the one that the writer has read.
    """

    def __init__(
        self,
        client: EtcdClient,
        keys: Keys,
        following: EtcdReflector,
        reads: ConsistentReads,
        history: History,
        reactor: Any,
    ) -> None:
        self._client, self._keys, self._reactor = client, keys, reactor
        self._following, self._reads, self._history = following, reads, history
        self._order = following.order
        self._pending: set[Deferred[Any]] = set()

    def begin(self, change: str, resource: Resource, obj: Object) -> Deferred[Object]:
        """
        Begin a write; fires as :meth:`IStorage.create`, :meth:`IStorage.update` and :meth:`IStorage.delete`.

        :param change: :data:`.ADDED`, :data:`.MODIFIED` or :data:`.DELETED`.
        """
        if len(self._pending) >= _MOST_PENDING:
            return defer.fail(
                ServiceUnavailable("too many writes are waiting", retry_after_seconds=1)
            )
        return self._tracked(self._write(change, resource, obj))

    def probe(self) -> Deferred[object]:
        """
        Fires as :meth:`IStorage.probe`, after a transaction whose condition never holds.

        etcd refuses it when its quota is used up.
        """
        return self._tracked(self._probe())

    async def finish(self) -> None:
        """Wait for the pending writes, with a time limit."""
        if not self._pending:
            return
        # The time limit must not cancel the writes themselves.
        waiting: Deferred[None] = Deferred()
        complete = defer.DeferredList(list(self._pending))
        complete.addCallback(lambda _: waiting.callback(None) if not waiting.called else None)
        waiting.addTimeout(_STOP_SECONDS, self._reactor)
        await waiting.addErrback(_if_too_late)

    def stop(self) -> None:
        """Fail the unconfirmed writes; their outcome is unknown."""
        for write in self._order.waiting():
            self._dismiss(write, write_refusal(EtcdError(grpc.StatusCode.CANCELLED, "")))

    async def _probe(self) -> None:
        await self._following.until_following()
        request = pb.TxnRequest(
            compare=[
                pb.Compare(
                    target=pb.Compare.VERSION, key=self._keys.marker, version=_IMPOSSIBLE_VERSION
                )
            ],
            success=[pb.RequestOp(request_put=self._marker_put("probe"))],
        )
        try:
            await self._client.write(TXN, request)
        except EtcdError as error:
            raise write_refusal(error) from None

    def _tracked(self, work: Any) -> Deferred[Any]:
        running = Deferred.fromCoroutine(work)
        if running.called:
            return running
        self._pending.add(running)
        result: Deferred[Any] = Deferred(lambda _: running.cancel())

        def done(outcome: Any) -> None:
            self._pending.discard(running)
            if not result.called:
                result.callback(outcome)

        running.addBoth(done)
        return result

    async def _write(self, change: str, resource: Resource, obj: Object) -> Object:
        await self._following.until_following()
        key = self._keys.key(resource, *history.key_of(obj))
        if change == ADDED:
            stored, compare = None, pb.Compare(target=pb.Compare.CREATE, key=key, create_revision=0)
        else:
            stored = await self._stored_object(resource, obj)
            revision = self._keys.revision(int(stored["metadata"]["resourceVersion"]))
            compare = pb.Compare(target=pb.Compare.MOD, key=key, mod_revision=revision)
        if change == DELETED and stored is not None:
            operation = pb.RequestOp(request_delete_range=pb.DeleteRangeRequest(key=key))
            obj, text = stored, ""
        else:
            text = value_of(obj)
            operation = pb.RequestOp(request_put=pb.PutRequest(key=key, value=text.encode("ascii")))
        write = OrderedWrite(
            self._following.next_write(), place_of(resource, obj), change, obj, text
        )
        await self._send(resource, write, compare, operation)
        return await write.done

    async def _stored_object(self, resource: Resource, obj: Object) -> Object:
        """
        Return the stored object.

        :raises APIError: it is not the one that the writer has read.
        """
        stored = self._history.find(resource, obj)
        version = obj["metadata"].get("resourceVersion")
        if stored is None or stored["metadata"]["resourceVersion"] != version:
            # The writer may have read a newer object from another server; wait until it is visible here.
            await self._reads.current_version()
            stored = self._history.find(resource, obj)
        metadata = stored["metadata"] if stored is not None else {}
        write_checks.check_current(
            resource, obj, metadata.get("uid"), metadata.get("resourceVersion", "")
        )
        assert stored is not None, "check_current refuses a missing object"
        return stored

    async def _send(
        self,
        resource: Resource,
        write: OrderedWrite,
        compare: pb.Compare,
        operation: pb.RequestOp,
    ) -> None:
        marker = self._keys.marker
        is_our_store = pb.Compare(
            target=pb.Compare.CREATE, key=marker, create_revision=self._following.created
        )
        request = pb.TxnRequest(
            compare=[is_our_store, compare],
            success=[operation, pb.RequestOp(request_put=self._marker_put(write.id))],
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
            self._raise_refusal(resource, write, answer)
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

    def _raise_refusal(
        self, resource: Resource, write: OrderedWrite, answer: pb.TxnResponse
    ) -> NoReturn:
        markers, pairs = (each.response_range.kvs for each in answer.responses)
        if not markers or markers[0].create_revision != self._following.created:
            self._following.list_again("etcd's keys were replaced")
            raise ServiceUnavailable("the store was replaced just now", retry_after_seconds=1)
        if write.change == ADDED:
            write_checks.check_absent(resource, write.obj, pairs[0] if pairs else None)
            raise InternalError("etcd refused to create an object, and does not have it")
        write_checks.check_current(
            resource, write.obj, write.obj["metadata"]["uid"] if pairs else None, ""
        )
        raise AssertionError("check_current refuses an empty resourceVersion")

    def _marker_put(self, write: str) -> pb.PutRequest:
        value = MarkerValue(write, self._keys.skipped).encode()
        return pb.PutRequest(key=self._keys.marker, value=value, prev_kv=True)


def _if_too_late(failure: Failure) -> None:
    failure.trap(defer.TimeoutError)
