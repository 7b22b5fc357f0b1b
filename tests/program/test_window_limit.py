"""Tests for :mod:`twisted_exec.program.window_limit`."""

from __future__ import annotations

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.program.window_limit import WindowLimit


class WindowLimitTests(SynchronousTestCase):
    """Three times within 10 seconds, for two keys at most."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.limit = WindowLimit[str](self.clock.seconds, window_seconds=10, most_keys=2)

    def allowed(self, key: str = "ada", times: int = 5) -> int:
        return sum(self.limit.allow(key, 3) for _ in range(times))

    def test_window(self) -> None:
        """The window begins with the first time, and refusals do not extend it."""
        self.assertEqual(self.allowed(times=1), 1)
        self.clock.advance(9)
        self.assertEqual(self.allowed(), 2)
        self.clock.advance(1)
        self.assertEqual(self.allowed(), 3)

    def test_keys(self) -> None:
        """Each key has a window of its own."""
        self.assertEqual((self.allowed("ada"), self.allowed("bob")), (3, 3))

    def test_rest(self) -> None:
        """The rest of the window is known, also before there is one."""
        self.assertEqual(self.limit.rest_seconds("ada"), 0)
        self.allowed()
        self.clock.advance(4)
        self.allowed()
        self.assertEqual(self.limit.rest_seconds("ada"), 6)
        self.clock.advance(10)
        self.assertEqual(self.limit.rest_seconds("ada"), 0)

    def test_forgotten(self) -> None:
        """Beyond the number of keys, the oldest window is forgotten."""
        for key in ("ada", "bob", "eve"):
            self.assertEqual(self.allowed(key), 3)
            self.clock.advance(1)
        self.assertEqual((self.allowed("eve"), self.allowed("ada")), (0, 3))
