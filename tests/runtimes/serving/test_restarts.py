"""
Sessions at a runtime that restarts: :mod:`twisted_exec.runtimes.serving.stream_server`, a process after the other.
"""

from __future__ import annotations

from itertools import product
from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.runtimes.processes import DRAIN_SECONDS, Runtime
from twisted_exec.streaming.interfaces import RESTARTING, SHUTTING_DOWN, Ending, Role, TerminalSize
from twisted_exec.streaming.remotecommand.carriers import OVER_SPDY
from twisted_exec.wire.channel import V4, V5


class RestartCase(SynchronousTestCase):
    """A runtime that restarts as planned, with its machine."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.runtime = Runtime(self.clock)

    def live(self) -> Any:
        """The sessions in the registry of the present process."""
        return self.runtime.process.server.sessions.live()


class OurClientTests(RestartCase):
    """Sessions that their clients resume."""

    def test_exact(self) -> None:
        """Output and input go on exactly, several times, and nothing is uncertain."""
        ours = self.runtime.ours()
        for number in range(5):
            self.runtime.print(b"before %d " % number)
            ours.client.write(b"a%d" % number)
            self.runtime.pass_seconds(1)
            ours.client.write(b"b%d" % number)
            self.runtime.restart()
            ours.client.write(b"c%d" % number)
            self.runtime.print(b"after %d " % number)
            self.runtime.pass_seconds(5)
        self.assertEqual(ours.user.received, bytes(self.runtime.printed))
        self.assertEqual(self.runtime.typed, b"".join(b"a%db%dc%d" % (n, n, n) for n in range(5)))
        self.assertEqual([uncertain for _, uncertain in ours.user.returns], [0] * 5)

    def test_at_any_byte(self) -> None:
        """It goes on exactly if the process stops in the middle of messages."""
        for turns in range(0, 90, 3):
            runtime = self.runtime = Runtime(self.clock)
            ours = runtime.ours()
            for number in range(2):
                runtime.print(b"some output %d, " % number)
                ours.client.write(b"some input %d, " % number)
                ours.client.resize(TerminalSize(100 + number, 30))
                for _ in range(turns):
                    ours.step(1)
                runtime.restart()
            runtime.print(b"last")
            runtime.pass_seconds(5)
            where = f"{turns} turns"
            self.assertEqual(ours.user.received, bytes(runtime.printed), where)
            self.assertEqual(runtime.typed, b"some input 0, some input 1, ", where)
            self.assertFalse(any(uncertain for _, uncertain in ours.user.returns), where)
            self.assertEqual(runtime.process.shared.size, TerminalSize(101, 30), where)

    def test_reason(self) -> None:
        """The user reads that the runtime restarts."""
        ours = self.runtime.ours()
        self.runtime.stop()
        (reason,) = ours.user.outages
        self.assertIn("exec-runtime is restarting", reason)

    def test_away(self) -> None:
        """The session of a user who is away waits in the next process; its last keys are uncertain."""
        ours = self.runtime.ours()
        ours.client.write(b"ls")
        self.runtime.pass_seconds(1)
        ours.link.state = "down"
        ours.cut()
        self.assertTrue(self.runtime.process.server.kept_sessions.waits_for("ann", "uid-x"))
        self.runtime.restart()
        ours.client.write(b"\r")
        ours.link.state = "up"
        self.runtime.pass_seconds(10)
        self.assertEqual(self.runtime.typed, b"ls\r")
        self.assertEqual(len(ours.user.returns), 1)

    def test_waits_as_after_a_loss(self) -> None:
        """A session that a hop ends because it restarts is away, and its client resumes it."""
        ours = self.runtime.ours()
        (session,) = self.live()
        session.end(Ending(RESTARTING, "exec-apiserver is restarting"))
        (viewer,) = self.runtime.process.shared.viewers
        self.assertTrue(viewer.is_away)
        ours.client.write(b"ls")
        self.runtime.pass_seconds(5)
        self.assertFalse(viewer.is_away)
        self.assertEqual(self.runtime.typed, b"ls")
        self.assertEqual([uncertain for _, uncertain in ours.user.returns], [0])

    def test_blocked(self) -> None:
        """A client that reads nothing delays neither the stop nor the others, and misses nothing."""
        blocked, healthy = self.runtime.ours("bob"), self.runtime.ours("ann")
        blocked.client.pause_output()
        for _ in range(3):
            self.runtime.print(bytes(64 << 10))
            self.runtime.pass_seconds(0.1)
        self.runtime.restart()
        self.runtime.print(b"last")
        self.runtime.pass_seconds(5)
        self.assertTrue(healthy.user.received.endswith(b"last"))
        blocked.client.resume_output()
        self.runtime.pass_seconds(40)
        self.assertEqual(blocked.user.received, bytes(self.runtime.printed))

    def test_reads_late(self) -> None:
        """A client that reads only after a moment is waited for, and knows that its keys arrived."""
        ours = self.runtime.ours()
        ours.client.pause_output()
        for _ in range(3):
            self.runtime.print(bytes(64 << 10))
            self.runtime.pass_seconds(0.1)
        ours.client.write(b"ls")
        self.runtime.pass_seconds(0.1)
        stopped = self.runtime.process.stop()
        self.runtime.pass_seconds(0.5)
        self.assertFalse(stopped.called)
        ours.client.resume_output()
        self.runtime.pass_seconds(0.5)
        self.assertTrue(stopped.called)
        self.runtime.kill()
        self.runtime.pass_seconds(10)
        self.assertEqual([uncertain for _, uncertain in ours.user.returns], [0])
        self.assertEqual(self.runtime.typed, b"ls")

    def test_half_open(self) -> None:
        """A connection that delivers nothing any more holds the stop up for its limit only."""
        dead, healthy = self.runtime.ours("bob"), self.runtime.ours("ann")
        dead.freeze()
        self.runtime.print(b"before ")
        began = self.clock.seconds()
        self.runtime.restart()
        self.assertLess(self.clock.seconds() - began, DRAIN_SECONDS + 0.1)
        self.runtime.frozen.clear()
        self.runtime.print(b"after")
        self.runtime.pass_seconds(60)
        for each in (dead, healthy):
            self.assertEqual(each.user.received, b"before after")

    def test_many(self) -> None:
        """All sessions of a user come back."""
        clients = [self.runtime.ours() for _ in range(20)]
        self.runtime.restart()
        self.runtime.pass_seconds(10)
        for each in clients:
            self.assertEqual((len(each.user.returns), each.user.detached_with), (1, []))
        self.assertEqual(len(self.live()), 20)

    def test_not_back(self) -> None:
        """A session that nobody resumes is over in the next process."""
        ours = self.runtime.ours()
        ours.link.state = "down"
        self.runtime.restart()
        self.runtime.pass_seconds(61)
        ours.link.state = "up"
        self.runtime.pass_seconds(60)
        (reason,) = ours.user.detached_with
        self.assertIn("no such session to resume", reason)
        self.assertEqual(self.runtime.process.shared.viewers, ())

    def test_used_key(self) -> None:
        """A key that was used before the restart is worth nothing once the session has gone on."""
        ours = self.runtime.ours()
        first = ours.client._keys[0]
        self.runtime.restart()
        self.runtime.pass_seconds(5)
        ours.client.write(b"x")
        self.runtime.pass_seconds(1)
        ours.client._keys = [first]
        ours.cut()
        self.runtime.pass_seconds(2)
        (reason,) = ours.user.detached_with
        self.assertIn("no such session to resume", reason)

    def test_writer(self) -> None:
        """The writer types on after the restart, also with an observer."""
        ann, bob = self.runtime.ours("ann"), self.runtime.ours("bob")
        self.runtime.restart()
        self.runtime.pass_seconds(10)
        roles = {each.user: each.role for each in self.runtime.process.shared.viewers}
        self.assertEqual(sorted(roles), ["ann", "bob"])
        self.assertEqual(list(roles.values()).count(Role.WRITER), 1)
        for each in (ann, bob):
            self.assertEqual(len(each.user.returns), 1)


class StockClientTests(RestartCase):
    """Sessions that nobody can resume."""

    def test_reason(self) -> None:
        """They end with the reason, behind all output, over each protocol, also through a hop of ours."""
        for protocol, is_foreign in product((V5, V4, OVER_SPDY), (False, True)):
            runtime = self.runtime = Runtime(self.clock)
            stock = runtime.stock(protocol=protocol, is_foreign=is_foreign)
            stock.stream.write(b"ls")
            runtime.pump()
            runtime.print(b"files")
            runtime.restart()
            runtime.pass_seconds(5)
            (ending,) = stock.endings
            self.assertEqual(ending.reason, SHUTTING_DOWN, protocol)
            self.assertIn("exec-runtime is restarting; try again", ending.message)
            self.assertEqual((stock.received, runtime.typed), (b"files", b"ls"))
            self.assertEqual(runtime.process.shared.viewers, ())
