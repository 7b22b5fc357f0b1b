"""
Tests for :mod:`twisted_exec.api.obstacles`.
"""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.obstacles import Obstacle, because, obstacles_of
from twisted_exec.api.status import APIError, Conflict, NotFound, from_status


class ObstacleTests(SynchronousTestCase):
    """Reasons for which a console does not open."""

    def test_passed_on(self) -> None:
        """A client reads the obstacle from the Status, beside the other details."""
        error = because(Obstacle.NOT_IN_POOL, NotFound("machines", "vm"))
        self.assertIsInstance(error, NotFound)
        read = from_status(error.to_status())
        self.assertEqual(obstacles_of(read), (Obstacle.NOT_IN_POOL,))
        self.assertEqual(read.details["name"], "vm")
        self.assertEqual(
            read.details["causes"], [{"reason": "NotInPool", "message": error.message}]
        )

    def test_others(self) -> None:
        """Other causes, and causes of another form, are no obstacles."""
        self.assertEqual(obstacles_of(Conflict("no")), ())
        causes: tuple[Any, ...] = ("x", ["x"], [{"reason": []}], [{"reason": "Decided"}], [{}])
        for each in causes:
            self.assertEqual(obstacles_of(APIError("no", details={"causes": each})), (), each)
