"""
Tests for :mod:`twisted_exec.runtimes.qemu.idle_pause`.
"""

from __future__ import annotations

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.runtimes.qemu.idle_pause import IdlePause
from twisted_exec.runtimes.qemu.qmp import QMPError


class IdlePauseTests(SynchronousTestCase):
    """A silent machine is paused until it gets input."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.sent: list[str] = []

    def pause(self, seconds: float = 30) -> IdlePause:
        async def ask(command: str) -> None:
            self.sent.append(command)
            if len(self.sent) > 5:
                raise QMPError("QEMU has ended")

        return IdlePause(ask, self.clock, seconds)

    def test_silence(self) -> None:
        """Output and input put a pause off; input ends it."""
        idle = self.pause()
        self.clock.advance(100)  # the machine boots and has printed nothing yet
        idle.active()
        self.clock.advance(29)
        idle.active()
        self.clock.advance(29)
        self.assertEqual((self.sent, idle.is_paused), ([], False))
        self.clock.advance(1)
        self.assertEqual((self.sent, idle.is_paused), (["stop"], True))
        self.assertEqual(self.clock.getDelayedCalls(), [])
        idle.active()
        idle.active()
        self.assertEqual((self.sent, idle.is_paused), (["stop", "cont"], False))
        self.clock.advance(30)
        self.assertEqual(self.sent, ["stop", "cont", "stop"])

    def test_leave(self) -> None:
        """A program that ends pauses the machine at once, unless it is paused."""
        idle = self.pause()
        idle.active()
        self.assertIsNotNone(idle.leave())
        self.assertEqual((self.sent, self.clock.getDelayedCalls()), (["stop"], []))
        idle.active()
        self.assertIsNone(idle.leave())
        self.assertEqual(self.sent, ["stop"])

    def test_never(self) -> None:
        """Without the option a machine is never paused."""
        idle = self.pause(0)
        idle.active()
        self.assertIsNone(idle.leave())
        self.assertEqual((self.sent, self.clock.getDelayedCalls()), ([], []))
