"""
A runtime with one machine, in memory, that is continued by another one, and so on.
"""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import Clock

from tests.clocks import pass_seconds
from tests.runtimes.serving.test_server import UPGRADE, Raw
from tests.runtimes.serving.test_stream_server_resuming import SECRET, _Line
from tests.streaming.remotecommand.resuming import Client
from twisted_exec.console.line import LineEnded
from twisted_exec.console.shared_console import SharedConsole
from twisted_exec.console.shared_console_limits import ConsoleLimits
from twisted_exec.iri.request_cache import Grant, RequestCache
from twisted_exec.journal.journal import Journal
from twisted_exec.program.audit_file import JSONLinesAudit
from twisted_exec.program.session_limits import SessionLimits
from twisted_exec.runtimes.handover import SessionsHandOver
from twisted_exec.runtimes.serving.options import Listening
from twisted_exec.runtimes.serving.stream_server import StreamRoutes, StreamServer
from twisted_exec.runtimes.viewer_export import export_viewer
from twisted_exec.streaming.http.responses import Dispatcher
from twisted_exec.streaming.http.site import Request, Site
from twisted_exec.streaming.http.upgrade_client import Upgraded, UpgradeRequest, upgrade
from twisted_exec.streaming.http.upgrade_server import requested_protocol, take_over
from twisted_exec.streaming.interfaces import Ending, IAttachment
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


class Process:
    """
    One process of the runtime.

    :ivar lines: the line of the machine in this process.
    """

    def __init__(self, runtime: Runtime, predecessor: Process | None = None) -> None:
        clock, self.runtime = runtime.clock, runtime
        self.line = _Line()
        if predecessor is not None:
            self.line.items, self.line.sizes = predecessor.line.items, predecessor.line.sizes
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
            limits=SessionLimits(1000, 1000),
            resume_seconds=runtime.resume_seconds,
        )
        self.server.kept_sessions.start(SECRET)
        self.sessions = SessionsHandOver(self.server, self.cache, self, clock)
        routes = StreamRoutes(self.server, self.cache, self.attach, self.server.kept_sessions)
        self.site = Site(routes, clock)
        self.retiring: Deferred[None] | None = None

    def attach(self, grant: Grant) -> tuple[Subject, IAttachment]:
        return Subject("", namespace="lab", machine="x", uid="uid-x"), self.shared.viewer()

    def viewers(self) -> list[tuple[str, Any, dict[str, Any]]]:
        """As of :class:`.MachinesHandOver`."""
        states = [(viewer, export_viewer(viewer)) for viewer in self.shared.viewers]
        return [("m", viewer, state) for viewer, state in states if state is not None]

    def console(self, machine_id: str, *, waits: bool = False) -> SharedConsole:
        """As of :class:`.MachinesHandOver`."""
        return self.shared

    def freeze(self) -> Any:
        self.server.freeze()
        self.shared.suspend()
        return json.loads(json.dumps(self.sessions.export()))

    def thaw(self) -> None:
        succeeded = Deferred.fromCoroutine(self.sessions.thaw())
        assert succeeded.called
        line, self.line = self.line, _Line()
        self.line.items, self.line.sizes = line.items, line.sizes
        if self.runtime.is_on:
            self.shared.unsuspend(self.line)
            self.shared.open()
        else:
            self.shared.unsuspend()
        self.server.thaw()

    def retire(self, seconds: float = 3600) -> None:
        self.retiring = Deferred.fromCoroutine(self.sessions.retire(seconds))


class _Listener:
    """The factory of whatever process listens at present."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def buildProtocol(self, address: Any) -> Protocol | None:
        return self._runtime.process.site.buildProtocol(address)


class Runtime:
    """
    A runtime, whatever process it is at present.

    :param restart_seconds: how long sessions wait when the machine has ended; 0: they end with it.
    :ivar process: the newest process.
    :ivar retired: the others.
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
        self.retired: list[Process] = []
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

    def upgrade(self, values: Any = None) -> None:
        """Replace the process."""
        old = self.process
        values = values or old.freeze()
        self.process = Process(self, old)
        if self.is_on:
            self.process.shared.open()
        self.process.sessions.restore(values)
        self.retired.append(old)
        old.retire()

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

    def hop(self, rejoin: str, user: str = "ann", session: str = "") -> Any:
        """Open or rejoin a stream, as the hop before a runtime does."""
        head = self.head(user)
        if session:
            self.token = self.token_of(user, session)
        raw = Raw()
        self.network.endpoint(self.public).connect(Factory.forProtocol(lambda: raw))  # type: ignore[arg-type]
        headers = b"".join(b"%b: %b\r\n" % each for each in head.headers)
        assert raw.transport is not None
        raw.transport.write(
            b"GET /exec/%b HTTP/1.1\r\n" % self.token.encode()
            + UPGRADE.encode()
            + headers
            + b"X-Twisted-Exec-Rejoin: %b\r\n\r\n" % rejoin.encode()
        )
        self.pump()
        return raw

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
