"""
Tests for :mod:`twisted_exec.spacemanager.spaces.probe_schedule`.
"""

from __future__ import annotations

import random
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock, deferLater
from twisted.trial.unittest import SynchronousTestCase

from tests.retained import entries
from twisted_exec.spacemanager.spaces.observation import ProbeResult
from twisted_exec.spacemanager.spaces.probe_schedule import PROBE_SECONDS, ProbeSchedule
from twisted_exec.spacemanager.spaces.verdicts import ANSWERS, VALID

KEY, CONTENTS = ("spaceprovider-default", "that"), {"External": b"kubeconfig"}


class ProbesTests(SynchronousTestCase):
    """Tests for :class:`ProbeSchedule`."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.probed: list[Any] = []
        self.changed: list[Any] = []
        chance = random.Random(1)
        self.probes = ProbeSchedule(self.probe, self.clock, self.changed.append, chance)

    async def probe(self, contents: Any, what: str) -> ProbeResult:
        self.probed.append(contents)
        await deferLater(self.clock, 0)
        return ProbeResult("digest", VALID, ANSWERS, "v1")

    def look(self, *, was_well: bool, is_away: bool = False) -> ProbeResult | None:
        told = {"was_well": was_well, "is_away": is_away}
        return self.probes.look(KEY, CONTENTS, "it", "default", **told)

    def test_new(self) -> None:
        """New ones are probed at once, and the Space is told of."""
        self.assertIsNone(self.look(was_well=False))
        self.clock.advance(0)
        self.assertEqual((self.probed, self.changed), ([CONTENTS], [KEY]))
        found = self.look(was_well=False)
        assert found is not None
        self.assertTrue(found.lives)

    def test_no_hurry(self) -> None:
        """Those that were well for the manager before us wait for their turn in the usual time."""
        self.look(was_well=True)
        self.look(was_well=True)
        self.clock.advance(0)
        self.assertEqual(self.probed, [])
        self.clock.advance(PROBE_SECONDS)
        self.assertEqual(self.probed, [CONTENTS])

    def test_replaced_while_well(self) -> None:
        """Another kubeconfig of a healthy Space is probed at once."""
        self.look(was_well=True)
        self.clock.advance(PROBE_SECONDS)
        other = {"External": b"another kubeconfig"}
        self.assertIsNone(self.probes.look(KEY, other, "it", "default", was_well=True))
        self.clock.advance(0)
        self.assertEqual(self.probed, [CONTENTS, other])

    def test_well_no_more(self) -> None:
        """
        When its space is not well any more, before that time has come, it is probed at once: a
        manager that is started with its spaces finds them Ready, then still starting, and has to
        find them Ready again.
        """
        self.look(was_well=True)
        self.look(was_well=False)
        self.clock.advance(0)
        self.assertEqual((self.probed, self.changed), ([CONTENTS], [KEY]))
        self.look(was_well=False)
        self.clock.advance(0)
        self.assertEqual(self.probed, [CONTENTS])

    def test_again_while_running(self) -> None:
        """A probe that is under way may be too early to notice, so another one follows it."""
        running: list[Deferred[ProbeResult]] = []

        async def probe(contents: Any, what: str) -> ProbeResult:
            running.append(Deferred())
            return await running[-1]

        probes = ProbeSchedule(probe, self.clock, self.changed.append, random.Random(1))
        probes.look(KEY, CONTENTS, "it", "default")
        self.clock.advance(0)
        probes.again(KEY)
        running[0].callback(ProbeResult("digest", VALID, ANSWERS, "v1"))
        self.clock.advance(0)
        self.assertEqual(len(running), 2)
        running[1].callback(ProbeResult("digest", VALID, ANSWERS, "v1"))
        self.clock.advance(0)
        self.assertEqual(len(running), 2)
        self.assertTrue(self.successResultOf(probes.stop()) is not None)

    def test_away_and_back(self) -> None:
        """What was found before a space could not be used for a while says nothing of it afterwards."""
        self.look(was_well=False)
        self.clock.advance(0)
        for _ in range(3):
            self.assertIsNotNone(self.look(was_well=False, is_away=True))
            self.clock.advance(1)
        self.assertEqual(len(self.probed), 1)
        self.assertIsNone(self.look(was_well=False))
        self.assertIsNone(self.look(was_well=False))
        self.clock.advance(0)
        self.assertEqual((len(self.probed), self.changed), (2, [KEY, KEY]))
        self.assertIsNotNone(self.look(was_well=False))

    def test_turns_are_given_back(self) -> None:
        """Providers and namespaces that come and go leave nothing."""
        sizes = []
        for number in range(4):
            key = ("spaces", f"s{number}")
            self.probes.look(key, CONTENTS, "it", f"/namespace-{number}", was_well=False)
            self.clock.advance(0)
            self.probes.forget(key)
            sizes.append(entries(self.probes, beside=[self.probed, self.changed]))
        self.assertEqual(len(set(sizes)), 1)
