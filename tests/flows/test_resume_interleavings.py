"""
Losses at every moment: our client, a runtime's stream server and a shared console in one process, over
a network and a clock of the test.
"""

from __future__ import annotations

import io
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IProtocol, IProtocolFactory, IStreamClientEndpoint
from twisted.internet.protocol import Protocol
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from tests.console.doubles import MemoryConsole
from twisted_exec.console.shared_console import SharedConsole
from twisted_exec.iri.request_cache import Grant, RequestCache
from twisted_exec.observe.audit import JSONLinesAudit
from twisted_exec.runtimes.serving.server import Listening, StreamServer
from twisted_exec.streaming.http.upgrade_client import UpgradeRequest
from twisted_exec.streaming.interfaces import Ending, IAttachment, Subject
from twisted_exec.streaming.remotecommand.client import ConsoleClient, connect
from twisted_exec.streaming.remotecommand.resuming_client import ResumingClient
from twisted_exec.testing.network import MemoryNetwork, MemoryTransport
from twisted_exec.wire.channel import V5
from twisted_exec.wire.resume import MARKS
from twisted_exec.wire.stream_options import CONSOLE

SECONDS = 60
IDENTITY = [(b"X-Twisted-Exec-User", b"ada"), (b"X-Twisted-Exec-Machine-Uid", b"uid-x")]


class User:
    """The user of the resuming client."""

    def __init__(self) -> None:
        self.stream: ResumingClient | None = None
        self.printed = b""
        self.gaps: list[int | None] = []
        self.uncertain: list[int] = []
        self.ending: Ending | None = None
        self.detached_with: str | None = None

    def attached(self, stream: Any) -> None:
        self.stream = stream

    def data_received(self, data: bytes) -> None:
        self.printed += data

    def ended(self, ending: Ending) -> None:
        self.ending = ending

    def detached(self, reason: str) -> None:
        self.detached_with = reason

    def outage(self, reason: str) -> None:
        """Nothing to do."""

    def resumed(self, seconds: float, uncertain: int) -> None:
        self.uncertain.append(uncertain)

    def notice(self, text: str) -> None:
        """Nothing to do."""

    def skipped(self, count: int | None) -> None:
        self.gaps.append(count)


class _FirstUser:
    """Lets a resuming client use the first connection."""

    def __init__(self, client: ResumingClient) -> None:
        self._client = client

    def attached(self, stream: Any) -> None:
        self._client.start(stream)


@implementer(IStreamClientEndpoint)
class _Way:
    """
    The way to the server.

    :ivar dialled: the client's ends of all connections.
    """

    def __init__(self, network: MemoryNetwork, endpoint: IStreamClientEndpoint) -> None:
        self._network, self._endpoint = network, endpoint
        self.dialled: list[MemoryTransport] = []

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[IProtocol]:
        connecting = self._endpoint.connect(protocolFactory)
        self.dialled.append(self._network.transports[-2])
        return connecting


class Chain:
    """
    A client, a server and the network between them.

    :ivar printed: all that the machine has printed.
    :ivar typed: all that the user has typed.
    :ivar heard: all that the machine has got.
    """

    def __init__(self) -> None:
        self.clock: Any = Clock()
        self.network = MemoryNetwork()
        self.console = MemoryConsole(paced=True)
        self.shared = SharedConsole(self.console, self.clock)
        self.shared.open()
        self.cache = RequestCache(self.clock)
        self.server = StreamServer(
            Listening("unix:/nowhere"),
            self._attach,
            self.cache,
            JSONLinesAudit(io.StringIO()),
            self.clock,
            resume_seconds=SECONDS,
        )
        self.server.startService()
        self._way = _Way(self.network, self.network.endpoint(self.server._site))
        self.printed = self.typed = self._heard = b""
        self.user = User()
        self.client = ResumingClient(self.user, self._connect, self.clock, jitter=lambda: 0.0)
        self._connect(MARKS, _FirstUser(self.client))
        self.network.pump()

    def _attach(self, grant: Grant) -> tuple[Subject, IAttachment]:
        subject = Subject(
            session="", namespace="default", machine="x", uid="uid-x", resource="machines.x"
        )
        return subject, self.shared.viewer()

    def _connect(self, resume: str, user: Any, protocol: str = V5) -> Deferred[ConsoleClient]:
        """Open a connection with a token of its own, as API server and poollet do."""
        grant = Grant("m", "uid-x", user="ada", session=f"s{len(self.network.transports)}")
        path = f"/exec/{self.cache.insert(grant)}?".encode() + CONSOLE.query()
        head = UpgradeRequest(b"GET", path, b"localhost", IDENTITY)
        return connect(self._way, head, user, clock=self.clock, timeout_seconds=30, resume=resume)

    @property
    def heard(self) -> bytes:
        self._heard += self.console.heard()
        return self._heard

    # What may happen.

    def machine_prints(self, size: int) -> None:
        data = bytes((len(self.printed) + each) % 251 for each in range(size))
        self.printed += data
        self.console.says(data)

    def user_types(self, size: int) -> None:
        data = bytes((len(self.typed) + each) % 253 for each in range(size))
        self.typed += data
        self.client.write(data)

    def turns(self, turns: int, chunk_bytes: int) -> None:
        """Let the network work for a little while."""
        for _ in range(turns):
            for transport in list(self.network.transports):
                transport.step(chunk_bytes)

    def cut(self) -> None:
        """Reset the newest connection at the client; the server sees it in its turn."""
        for transport in self._client_ends()[-1:]:
            transport.abortConnection()

    def forget(self) -> None:
        """
        The newest connection ends at the client alone: what it has sent still arrives, and the server
        sees no end.
        """
        for end in self._client_ends()[-1:]:
            orphan = MemoryTransport(Protocol())
            orphan.reading = False
            orphan.peer, end.peer.peer = end.peer, orphan
            orphan.queued, end.queued = end.queued, b""
            self.network.transports.append(orphan)
            end.abortConnection()

    def _client_ends(self) -> list[MemoryTransport]:
        return [each for each in self._way.dialled if each.connected]

    def time_passes(self, tenths: int) -> None:
        for _ in range(tenths):
            self.clock.advance(0.1)

    def recover(self) -> None:
        """Let everything arrive, and wait for what is due."""
        for _ in range(100):
            self.network.pump()
            if self.user.detached_with is not None:
                return
            if self.user.printed == self.printed and self.heard == self.typed:
                return
            self.clock.advance(0.5)


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("machine_prints"), st.integers(1, 3000)),
        st.tuples(st.just("user_types"), st.integers(1, 6000)),
        st.tuples(st.just("turns"), st.integers(1, 8), st.integers(1, 2000)),
        st.tuples(st.just("cut")),
        st.tuples(st.just("forget")),
        st.tuples(st.just("time_passes"), st.integers(1, 700)),
    ),
    max_size=30,
)


class InterleavingTests(SynchronousTestCase):
    """Whatever happens in whatever order, nothing is lost and nothing is there twice."""

    @given(ACTIONS)
    def test_any_order(self, actions: list[tuple[Any, ...]]) -> None:
        """
        At each moment both ends have a beginning of what the other side has sent; in the end they
        have all of it, unless the session is over because its time was.
        """
        chain = Chain()
        for name, *arguments in actions:
            getattr(chain, name)(*arguments)
            self.assertTrue(chain.printed.startswith(chain.user.printed))
            self.assertTrue(chain.typed.startswith(chain.heard))
        chain.recover()
        self.assertTrue(chain.typed.startswith(chain.heard))
        self.assertTrue(chain.printed.startswith(chain.user.printed))
        self.assertEqual((chain.user.gaps, set(chain.user.uncertain) - {0}), ([], set()))
        if chain.user.detached_with is None:
            self.assertEqual(chain.user.printed, chain.printed)
            self.assertEqual(chain.heard, chain.typed)
        else:
            self.assertIn("no such session", chain.user.detached_with)
