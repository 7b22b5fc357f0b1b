"""Tests for :mod:`twisted_exec.cli.fleet.screens`."""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.cli.fleet.screens import CONCURRENT, FleetScreens
from twisted_exec.cli.fleet.tile_drawing import ScreenText


def screen(offset: int) -> ScreenText:
    return ScreenText(("0123456789abcdef", offset), ["text"], 0, 0, True)


class ScreensTests(SynchronousTestCase):
    """Looking at machines."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.asked: list[int] = []
        self.answers: dict[int, Deferred[ScreenText]] = {}
        self.cancelled: list[int] = []
        self.changed: list[int] = []
        self.screens = FleetScreens(self.fetch, self.clock, self.changed.append)

    def fetch(self, index: int) -> Deferred[ScreenText]:
        self.asked.append(index)
        self.answers[index] = answer = Deferred(lambda _: self.cancelled.append(index))
        return answer

    def looks(self) -> list[int]:
        asked, self.asked = self.asked, []
        return asked

    def test_shown_only(self) -> None:
        """Only shown machines are looked at; a look that is under way is cancelled with its page."""
        self.screens.show([0, 1])
        self.answers[0].callback(screen(1))
        self.screens.show([2])
        self.clock.advance(60)
        self.assertEqual((self.looks(), self.cancelled), ([0, 1, 2], [1]))
        self.screens.close()
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_clusters(self) -> None:
        """Screens of a cluster that is silent hold up none of another one."""
        screens = FleetScreens(
            self.fetch, self.clock, self.changed.append, lambda index: "ab"[index >= CONCURRENT + 2]
        )
        screens.show(range(CONCURRENT + 3))
        self.assertEqual(self.looks(), [*range(CONCURRENT), CONCURRENT + 2])

    def test_pace(self) -> None:
        """A screen that changes is looked at each second, a quiet one less often, down to 4 s."""
        self.screens.show([0])
        waits = []
        for offset in (1, 2, 2, 2, 2, 3):
            self.answers[0].callback(screen(offset))
            self.looks()
            waits.append(0)
            while not self.asked:
                self.clock.advance(1)
                waits[-1] += 1
        self.assertEqual(waits, [1, 1, 2, 4, 4, 1])
        self.assertEqual(self.changed, [0, 0, 0])

    def test_echo(self) -> None:
        """A machine that printed something to a user who types is looked at soon."""
        self.screens.show([0])
        self.screens.printed(0)
        self.screens.printed(1)
        self.answers[0].callback(screen(1))
        self.looks()
        self.clock.advance(0.1)
        self.assertEqual(self.looks(), [0])
        self.answers[0].callback(screen(1))
        self.screens.printed(0)
        self.screens.printed(0)
        self.clock.advance(0.1)
        self.assertEqual(self.looks(), [0])

    def test_failed(self) -> None:
        """A machine whose screen cannot be read is tried again; the last screen stays."""
        self.screens.show([0])
        self.answers[0].callback(screen(1))
        self.clock.advance(1)
        self.answers[0].errback(ServiceUnavailable("starting\x1b", retry_after_seconds=1))
        self.assertEqual(self.screens.screen(0), (screen(1), "starting?"))
        self.assertEqual(self.screens.failed, 1)
        self.clock.advance(5)
        self.answers[0].callback(screen(1))
        self.assertEqual((self.screens.screen(0), self.screens.failed), ((screen(1), ""), 0))
        self.assertEqual(self.changed, [0, 0, 0])

    def test_bounded(self) -> None:
        """Not all machines of a large page are asked for at once."""
        self.screens.show(range(30))
        self.assertEqual(len(self.asked), CONCURRENT)
        self.answers[0].callback(screen(1))
        self.assertEqual(len(self.asked), CONCURRENT + 1)
        self.screens.close()
