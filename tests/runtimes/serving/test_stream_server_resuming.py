"""
Sessions of the real runtime's end are resumed exactly: a search over interleavings.

As :mod:`tests.streaming.remotecommand.test_resumable_interleavings`, with the stream server of a runtime and
the viewers of a console.
"""

from __future__ import annotations

import io
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule, run_state_machine_as_test
from twisted.internet.protocol import Protocol
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from tests.console.doubles import LineTransport, MemoryConsole
from tests.streaming.remotecommand.resuming import Client, ResumingUser
from tests.streaming.remotecommand.test_resumable_interleavings import Exactness
from twisted_exec.console.shared_console import SharedConsole
from twisted_exec.iri.request_cache import Grant, RequestCache
from twisted_exec.program.audit_file import JSONLinesAudit
from twisted_exec.program.session_limits import SessionLimits
from twisted_exec.runtimes.serving.options import Listening
from twisted_exec.runtimes.serving.stream_server import StreamRoutes, StreamServer
from twisted_exec.streaming.http.site import Site
from twisted_exec.streaming.http.upgrade_client import UpgradeRequest
from twisted_exec.streaming.interfaces import Break, IAttachment, IBreakable, Role, TerminalSize
from twisted_exec.streaming.subject import Subject
from twisted_exec.wire.channel import V4

SECRET = b"s" * 32


class _Transport(LineTransport):
    def write(self, data: bytes) -> None:
        self._console.items.append(data)  # type: ignore[attr-defined]


@implementer(IBreakable)
class _Line(MemoryConsole):
    """A line that records bytes and BREAKs in their order."""

    def __init__(self) -> None:
        super().__init__()
        self.items: list[Any] = []

    def connect(self, factory: Any) -> Any:
        connecting = super().connect(factory)
        self.transport = self.line.transport = _Transport(self)
        return connecting

    def send_break(self, milliseconds: int) -> None:
        self.items.append(Break(milliseconds))


class RuntimeEnd:
    """A runtime with one machine, with the names of :class:`.ResumableConsole`."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.machine = _Line()
        self.printed = bytearray()
        self.refusals: list[Any] = []
        self.requests = 0
        self.shared = SharedConsole(self.machine, clock)
        self.shared.open()
        self.epoch = self.shared.journal.epoch
        self.journals = {self.epoch: self.printed}
        self._serve()

    def _serve(self) -> None:
        self.cache = RequestCache(self.clock, user_limit=1000)
        self.server = StreamServer(
            Listening("unix:/run/not-used"),
            self.attach,
            self.cache,
            JSONLinesAudit(io.StringIO()),
            self.clock,
            limits=SessionLimits(1000, 1000),
        )
        self.server.kept_sessions.start(SECRET)
        routes = StreamRoutes(self.server, self.cache, self.attach, self.server.kept_sessions)
        self.site = Site(routes, self.clock)

    def attach(self, grant: Grant) -> tuple[Subject, IAttachment]:
        return Subject("", namespace="lab", machine="x", uid="uid-x"), self.shared.viewer()

    def buildProtocol(self, address: Any) -> Protocol | None:
        return self.site.buildProtocol(address)

    def head(self) -> UpgradeRequest:
        """Return the next request, with a token of its own."""
        self.requests += 1
        token = self.cache.insert(Grant("m", "uid-x", "ann", f"s{self.requests}"))
        headers = [(b"X-Twisted-Exec-User", b"ann"), (b"X-Twisted-Exec-Machine-Uid", b"uid-x")]
        return UpgradeRequest(b"GET", f"/exec/{token}".encode(), b"localhost", headers)

    # As ResumableConsole

    @property
    def journal(self) -> bytearray:
        return self.printed

    @property
    def line(self) -> list[Any]:
        return self.machine.items

    @property
    def sizes(self) -> list[TerminalSize]:
        return self.machine.sizes

    @property
    def live(self) -> bool:
        return True  # sessions expire by themselves

    @property
    def sessions(self) -> list[Any]:
        return list(self.shared.viewers)

    def print(self, data: bytes) -> None:
        self.printed += data
        self.machine.says(data)

    def acknowledge(self) -> None:
        """The server does so by itself."""

    def forget(self, offset: int) -> None:
        """The journal does so by itself."""

    def restart(self, *, new_journal: bool = False) -> None:
        """Kill the runtime and start another one for the same machine, which has gone on."""
        if new_journal:
            return
        journal, machine = self.shared.journal, _Line()
        machine.items, machine.sizes = self.machine.items, self.machine.sizes
        self.machine = machine
        self.shared = SharedConsole(machine, self.clock, journal=journal)
        self.shared.open()
        self._serve()


class TimedUser(ResumingUser):
    """Records the time of the last outage."""

    lost_at = 0.0

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock = clock

    def outage(self, reason: str) -> None:
        super().outage(reason)
        self.lost_at = self.clock.seconds()


class RuntimeExactness(Exactness):
    """The same with a runtime; a user of version 4, who cannot end the input."""

    def connect(self, protocol: str) -> None:
        self.server = RuntimeEnd(self.clock)
        user = TimedUser(self.clock)
        self.end = Client(self.server, self.clock, user, protocol, self.server.head)

    @initialize()
    def start(self) -> None:  # type: ignore[override]
        super().start(V4)

    @rule(wish=st.sampled_from((Break(), Break(1000))))
    def wish(self, wish: Break | Role) -> None:
        super().wish(wish)  # no roles, which never reach the line

    @rule()
    def restart(self) -> None:  # type: ignore[override]
        for transport in self.end.network.transports:
            transport.abortConnection()
        self.server.restart()

    @rule(kibibytes=st.integers(1, 300))
    def flood(self, kibibytes: int) -> None:
        """Print so much that the journal may forget something."""
        self.server.print(bytes(range(256)) * 4 * kibibytes)

    @invariant()
    def sessions_are_over_only_when_they_expire(self) -> None:
        if hasattr(self, "user") and self.user.detached_with:
            (reason,) = self.user.detached_with
            assert "there is no such session to resume" in reason, reason
            assert self.clock.seconds() - self.user.lost_at >= 40, "too early"


class MachineTests(SynchronousTestCase):
    """The search."""

    def test_exactness(self) -> None:
        """Nothing is lost and nothing is repeated, whatever happens to the connections."""
        run_state_machine_as_test(  # type: ignore[no-untyped-call]
            RuntimeExactness,
            settings=settings(max_examples=40, stateful_step_count=50, deadline=None),
        )
