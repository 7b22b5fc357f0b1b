"""
A watch of etcd's objects.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from twisted_exec.storage.etcd.client import WATCH, EtcdClient
from twisted_exec.storage.etcd.errors import EtcdError, error_of
from twisted_exec.storage.etcd.protos import etcd_pb2 as pb

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
        except (Compacted, EtcdError) as error:
            problem = error
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
