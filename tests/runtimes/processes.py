"""
A runtime with one machine, in memory, that restarts or is killed; the machine goes on.
"""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.protocol import Protocol
from twisted.internet.task import Clock

from tests.clocks import pass_seconds
from tests.runtimes.serving.test_stream_server_resuming import SECRET, _Line
from tests.streaming.remotecommand.resuming import Client
from twisted_exec.console.line import LineEnded
from twisted_exec.console.shared_console import SharedConsole
from twisted_exec.console.shared_console_limits import ConsoleLimits
from twisted_exec.iri.request_cache import Grant, RequestCache
from twisted_exec.journal.journal import Journal
from twisted_exec.program.audit_file import JSONLinesAudit
from twisted_exec.program.session_limits import SessionLimits
from twisted_exec.runtimes.serving.options import Listening
from twisted_exec.runtimes.serving.stream_server import StreamRoutes, StreamServer
from twisted_exec.streaming.http.responses import Dispatcher
from twisted_exec.streaming.http.site import Request, Site
from twisted_exec.streaming.http.upgrade_client import Upgraded, UpgradeRequest, upgrade
from twisted_exec.streaming.http.upgrade_server import requested_protocol, take_over
from twisted_exec.streaming.interfaces import SHUTTING_DOWN, Ending, IAttachment
from twisted_exec.streaming.rejoin.search import Rejoiner
from twisted_exec.streaming.rejoin.splice import RejoinableSplice
from twisted_exec.streaming.remotecommand.client import ConsoleClient, connect
from twisted_exec.streaming.sessions.resume_headers import REJOIN, accepted_offer
from twisted_exec.streaming.subject import Subject
from twisted_exec.testing.console import RecordingUser
from twisted_exec.testing.network import MemoryNetwork, MemoryTransport
from twisted_exec.wire.channel import V5
from twisted_exec.wire.frame_boundaries import frame_boundaries
from twisted_exec.wire.upgrade import last_value, switching_protocols

DRAIN_SECONDS = 1.5


class Process:
    """
    One process of the runtime.

    :ivar line: the line of the machine in this process.
    :ivar is_stopping: it refuses connections.
    """

    def __init__(self, runtime: Runtime, earlier: Process | None = None) -> None:
        clock, self.runtime = runtime.clock, runtime
        self.is_stopping = False
        self.line = _Line()
        if earlier is not None:
            self.line.items, self.line.sizes = earlier.line.items, earlier.line.sizes
        self.shared = SharedConsole(
            self.line,
            clock,
            journal=runtime.journal,
            limits=ConsoleLimits(restart_seconds=runtime.restart_seconds),
            restarts=lambda ending, has_exited: runtime.restart_seconds > 0,
        )
        self.cache = RequestCache(clock, user_limit=1000)
        self.audit = io.StringIO()
        self.server = StreamServer(
            Listening("unix:/run/not-used"),
            self.attach,
            self.cache,
            JSONLinesAudit(self.audit),
            clock,
            drain_seconds=DRAIN_SECONDS,
            limits=SessionLimits(1000, 1000),
            resume_seconds=runtime.resume_seconds,
        )
        self.server.kept_sessions.start(SECRET)
        routes = StreamRoutes(self.server, self.cache, self.attach, self.server.kept_sessions)
        self.site = Site(routes, clock)

    def attach(self, grant: Grant) -> tuple[Subject, IAttachment]:
        return Subject("", namespace="lab", machine="x", uid="uid-x"), self.shared.viewer()

    def stop(self) -> Deferred[None]:
        """Tell the sessions, and let go of the machine."""
        self.is_stopping = True
        self.site.drain()
        ending = Ending(SHUTTING_DOWN, "")
        return self.server.stopService().addCallback(lambda _: self.shared.end(ending))


class _Refusal(Protocol):
    transport: Any

    def connectionMade(self) -> None:
        self.transport.abortConnection()


class _Listener:
    """The factory of whatever process listens at present."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def buildProtocol(self, address: Any) -> Protocol | None:
        process = self._runtime.process
        return _Refusal() if process.is_stopping else process.site.buildProtocol(address)


class Runtime:
    """
    A runtime, whatever process it is at present.

    :param restart_seconds: how long sessions wait when the machine has ended; 0: they end with it.
    :ivar process: the newest process.
    :ivar is_on: the machine runs.
    :ivar boots: what the machine got, for each boot.
    :ivar query: the options of sessions.
    :ivar frozen: transports that deliver nothing, as behind a black hole.
    """

    def __init__(self, clock: Clock, resume_seconds: int = 60, restart_seconds: int = 0) -> None:
        self.clock, self.resume_seconds = clock, resume_seconds
        self.restart_seconds, self.is_on = restart_seconds, True
        self.frozen: set[MemoryTransport] = set()
        self.journal = Journal()
        self.network = MemoryNetwork()
        self.networks = [self.network]
        self.printed = bytearray()
        self.requests = 0
        self.query = b""
        self.public = _Listener(self)
        self.process = Process(self)
        self.process.shared.open()
        self.journal.booted("Started")
        self.boots: list[list[Any]] = [self.process.line.items]

    @property
    def typed(self) -> bytes:
        """The keys that the machine got."""
        return b"".join(each for each in self.process.line.items if isinstance(each, bytes))

    def print(self, data: bytes) -> None:
        self.printed += data
        self.process.line.says(data)

    def stop(self) -> None:
        """Let the process stop as planned, as far as it needs the network; :meth:`kill` follows."""
        stopped = self.process.stop()
        self.pass_seconds(DRAIN_SECONDS)
        assert stopped.called

    def restart(self) -> None:
        """Replace the process as planned; the next one finds the machine running."""
        self.stop()
        self.kill()

    def kill(self) -> None:
        """Kill the process and reset all connections; another one finds the machine running."""
        for network in self.networks:
            for transport in network.transports:
                transport.abortConnection()
        self.process = Process(self, self.process)
        self.process.shared.open()

    def end_machine(self, ending: Ending) -> None:
        """The machine ends by itself, and is to start again."""
        self.is_on = False
        self.process.line.close(LineEnded(ending))

    def start_machine(self) -> None:
        """The machine starts again."""
        self.is_on = True
        line = self.process.line = _Line()
        self.boots.append(line.items)
        self.process.shared.use(line)
        self.process.shared.is_new_boot = True
        self.journal.booted("Started")
        self.process.shared.open()

    def head(self, user: str = "ann") -> UpgradeRequest:
        """Return a request with a token."""
        self.requests += 1
        self.token = self.token_of(user, f"s{self.requests}")
        headers = [
            (b"X-Twisted-Exec-User", user.encode()),
            (b"X-Twisted-Exec-Machine-Uid", b"uid-x"),
        ]
        path = f"/exec/{self.token}?".encode() + self.query
        return UpgradeRequest(b"GET", path, b"localhost", headers)

    def token_of(self, user: str, session: str) -> str:
        """Return a new token for a session."""
        return self.process.cache.insert(Grant("m", "uid-x", user, session))

    def ours(self, user: str = "ann", end: Any = None) -> Client:
        """
        Open a session of our own client.

        :param end: the user's end; by default it records everything.
        """
        return _Client(self, user, end)

    def stock(
        self, user: str = "ann", protocol: str = V5, *, is_foreign: bool = False
    ) -> RecordingUser:
        """
        Open a session of a client that cannot resume, through a hop that rejoins its stream.

        :param is_foreign: there is no such hop.
        """
        recording = RecordingUser()
        hop: Any = self.public if is_foreign else Site(_Hop(self, user), self.clock)
        opening: Deferred[ConsoleClient] = connect(
            self.network.endpoint(hop),
            self.head(user),
            recording,
            clock=self.clock,
            timeout_seconds=600,
            protocols=[protocol],
        )
        self.pump()
        assert opening.called
        return recording

    def pump(self) -> None:
        """Let the network of the runtime's processes and stock clients work."""
        while self.step():
            pass

    def step(self, chunk_bytes: int = 1 << 16) -> bool:
        """Let each connection deliver once, in a turn of the reactor."""
        self.clock.advance(0)
        transports = [each for network in self.networks for each in network.transports]
        moved = [each.step(chunk_bytes) for each in transports if each not in self.frozen]
        return any(moved)

    def pass_seconds(self, seconds: float) -> None:
        """Let time pass, and the network work."""
        pass_seconds(self.clock, seconds, self.pump)


class _Hop(Dispatcher):
    """The hop before the runtime, as far as it rejoins the stream of one client."""

    def __init__(self, runtime: Runtime, user: str) -> None:
        super().__init__()
        self._runtime, self._user = runtime, user

    async def dispatch(self, request: Request) -> None:
        session = f"s{self._runtime.requests}"
        headers = [
            (name, value)
            for name, values in request.requestHeaders.getAllRawHeaders()
            for value in values
            if name.lower() != b"host"
        ]
        head = UpgradeRequest(request.method, request.uri, b"localhost", headers)
        offer = replace(head, headers=[*headers, (REJOIN, b"offer")])
        upgraded = await self._ask(offer)
        answer = accepted_offer(last_value(upgraded.headers, REJOIN))
        assert answer is not None
        upgrade_to, clock = requested_protocol(request), self._runtime.clock
        version = last_value(upgraded.headers, b"X-Stream-Protocol-Version")
        protocol = (version or last_value(upgraded.headers, b"Sec-WebSocket-Protocol")).decode()

        def rejoin(text: str, patience: float) -> Deferred[Upgraded]:
            token = self._runtime.token_of(self._user, session)
            path = f"/exec/{token}?".encode() + self._runtime.query
            again = replace(head, path=path, headers=[*headers, (REJOIN, text.encode())])
            return self._ask(again)

        rejoiner = Rejoiner(clock, answer, rejoin)
        splice = RejoinableSplice(
            clock,
            lambda _: None,
            lambda: rejoiner.start(splice),
            lambda: splice.left(),
            frame_boundaries(upgrade_to, protocol, commands=True),
        )
        ours = {b"connection", b"upgrade", REJOIN.lower()}
        passed = [each for each in upgraded.headers if each[0].lower() not in ours]
        take_over(request, splice.user, switching_protocols(upgrade_to, passed))
        upgraded.hand_over(splice.machine)

    def _ask(self, head: UpgradeRequest) -> Deferred[Upgraded]:
        endpoint: Any = self._runtime.network.endpoint(self._runtime.public)  # type: ignore[arg-type]
        return upgrade(endpoint, head, clock=self._runtime.clock, timeout_seconds=60)


class _Client(Client):
    """Our own client, in the network of the runtime."""

    def __init__(self, runtime: Runtime, user: str, end: Any = None) -> None:
        self._runtime = runtime
        super().__init__(runtime.public, runtime.clock, end, head=lambda: runtime.head(user))
        runtime.networks.append(self.network)
        self.frozen = runtime.frozen

    def step(self, chunk_bytes: int = 1 << 16) -> bool:
        moved = super().step(chunk_bytes)
        return self._runtime.step() or moved
