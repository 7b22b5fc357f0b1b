"""
A resuming client over a network in memory, with a user that checks what it gets.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, fail
from twisted.internet.error import ConnectionRefusedError
from twisted.internet.interfaces import IProtocol, IProtocolFactory, IStreamClientEndpoint
from twisted.internet.task import Clock
from zope.interface import implementer

from tests.clocks import pass_seconds
from tests.control.support import WithoutJitter
from twisted_exec.streaming.http.upgrade_client import UpgradeRequest
from twisted_exec.streaming.remotecommand.client import ConsoleClient, connect
from twisted_exec.streaming.remotecommand.first_user import FirstUser
from twisted_exec.streaming.remotecommand.stream import MarkUser
from twisted_exec.testing.console import RecordingUser
from twisted_exec.testing.network import MemoryNetwork, MemoryTransport
from twisted_exec.wire.channel import V5
from twisted_exec.wire.marks import Attendance, Notice
from twisted_exec.wire.resume import MARKS

HEAD = UpgradeRequest(b"GET", b"/exec", b"server")


class ResumingUser(RecordingUser):
    """
    A user with all callbacks.

    :ivar items: output, and gaps as numbers, in order.
    :ivar order: output, and where it caught up, in order.
    :ivar outages: reasons.
    :ivar returns: seconds and uncertain pieces of each return.
    :ivar unsent: those pieces of the last return that were never sent.
    """

    sends_late = True

    def __init__(self) -> None:
        super().__init__()
        self.items: list[bytes | int | None] = []
        self.order: list[bytes | str] = []
        self.outages: list[str] = []
        self.returns: list[tuple[float, int]] = []
        self.unsent = 0
        self.notices: list[str] = []
        self.attendances: list[Attendance] = []

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self.items.append(data)
        self.order.append(data)

    def skipped(self, count: int | None) -> None:
        self.items.append(count)

    def outage(self, reason: str) -> None:
        self.outages.append(reason)

    def resumed(self, seconds: float, uncertain: int, unsent: int) -> None:
        self.returns.append((seconds, uncertain))
        self.unsent = unsent

    def caught_up(self) -> None:
        self.order.append("caught up")

    def attendance_changed(self, attendance: Attendance) -> None:
        self.attendances.append(attendance)

    def notice(self, notice: Notice) -> None:
        self.notices.append(notice.text)


@implementer(IStreamClientEndpoint)
class Link:
    """
    An endpoint over a network that can fail.

    :ivar state: ``up``, ``down`` (connections are refused) or ``hole`` (no answer).
    """

    def __init__(self, network: MemoryNetwork, inner: IStreamClientEndpoint) -> None:
        self.network, self.inner, self.state = network, inner, "up"
        self.attempts = 0

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[IProtocol]:
        self.attempts += 1
        if self.state == "down":
            return fail(ConnectionRefusedError())
        if self.state == "hole":
            return Deferred()
        return self.inner.connect(protocolFactory)


class Client:
    """
    A client and its network.

    :ivar frozen: transports that deliver nothing, as behind a black hole.
    """

    def __init__(
        self,
        server: Any,
        clock: Clock,
        user: Any = None,
        protocol: str = V5,
        head: Callable[[], UpgradeRequest] = lambda: HEAD,
    ) -> None:
        self.clock, self.head = clock, head
        self.network = MemoryNetwork()
        self.frozen: set[MemoryTransport] = set()
        self.link = Link(self.network, self.network.endpoint(server))
        self.user = ResumingUser() if user is None else user
        first = FirstUser(self.user, self.connect, clock)
        self.opening = self.connect(MARKS, first, protocol)
        self.pump()
        self.client: Any = first.stream
        self.client._retries._pauses._backoff._random = WithoutJitter()

    def connect(self, resume: str, user: MarkUser, protocol: str) -> Deferred[ConsoleClient]:
        return connect(
            self.link,
            self.head(),
            user,
            clock=self.clock,
            timeout_seconds=30,
            protocols=[protocol],
            resume=resume,
        )

    @property
    def stream(self) -> ConsoleClient:
        """The present connection."""
        stream = self.client._connection.stream
        assert stream is not None
        return stream

    def step(self, chunk_bytes: int = 1 << 16) -> bool:
        """Let each connection deliver once."""
        moved = [
            transport.step(chunk_bytes)
            for transport in list(self.network.transports)
            if transport not in self.frozen
        ]
        return any(moved)

    def pump(self) -> None:
        """Deliver until nothing moves."""
        while self.step():
            pass

    def cut(self) -> None:
        """Reset all connections, with what they have not delivered."""
        for transport in self.network.transports:
            transport.abortConnection()
        self.pump()

    def freeze(self) -> None:
        """Let nothing more through the connections so far."""
        self.frozen.update(self.network.transports)

    def wait(self, seconds: float) -> None:
        """Let time pass, and the network work."""
        pass_seconds(self.clock, seconds, self.pump)
