"""
Tests for :mod:`twisted_exec.kube.leases`.
"""

from __future__ import annotations

from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import fail
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from twisted_exec.kube.election import ILeader
from twisted_exec.kube.leases import LeaderServices


class Part(Service):
    """A service that only the leader runs."""

    made: list[Part] = []

    def __init__(self) -> None:
        self.made.append(self)


class Broken(Part):
    """A service whose start fails."""

    def startService(self) -> None:
        raise ZeroDivisionError("start")


class Stubborn(Part):
    """A service whose stop fails."""

    def stopService(self) -> Any:
        super().stopService()
        return fail(ZeroDivisionError("stop"))


class LeadingTests(SynchronousTestCase):
    """Services of consecutive terms."""

    def setUp(self) -> None:
        self.patch(Part, "made", [])

    def test_alone(self) -> None:
        """The services run as long as their parent."""
        leading = LeaderServices(lambda: [Part(), Part()])
        self.assertTrue(verifyObject(ILeader, leading))
        leading.startService()
        self.assertEqual([each.running for each in Part.made], [1, 1])
        self.assertEqual(leading.services, Part.made)
        self.successResultOf(leading.stopService())
        self.assertEqual([each.running for each in Part.made], [0, 0])

    def test_made_anew(self) -> None:
        """Each term gets new services, without state of the last one."""
        leading = LeaderServices(lambda: [Part()])
        leading.elected()
        self.successResultOf(leading.deposed())
        leading.elected()
        self.assertEqual([each.running for each in Part.made], [0, 1])

    def test_faults(self) -> None:
        """A service that fails to start or stop does not affect the others."""
        leading = LeaderServices(lambda: [Broken(), Stubborn(), Part()])
        leading.elected()
        self.assertEqual([bool(each.running) for each in Part.made], [False, True, True])
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.successResultOf(leading.deposed())
        self.assertEqual([bool(each.running) for each in Part.made], [False, False, False])
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
