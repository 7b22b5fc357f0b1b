"""
Tests for :mod:`twisted_exec.standalone.part_settings`.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.dialects import IRONCORE
from twisted_exec.standalone.certificates import prepare
from twisted_exec.standalone.part_settings import (
    apiserver_settings,
    poollet_settings,
    runtime_settings,
)
from twisted_exec.standalone.settings import Settings


class DrainTests(SynchronousTestCase):
    """How long each part waits for last messages when the program stops."""

    def drains(self, seconds: float) -> list[float]:
        """Return the limits of API server, poollet and runtime."""
        directory = self.mktemp()
        made = prepare(os.path.join(directory, "pki"), datetime.now(UTC), IRONCORE)
        settings = Settings(directory, drain_seconds=seconds)
        parts = (
            apiserver_settings(settings, made, ""),
            poollet_settings(settings, made),
            runtime_settings(settings, directory, directory, made),
        )
        return [part.drain_seconds for part in parts]

    def test_once(self) -> None:
        """The API server waits for clients that read nothing, and the parts behind it hardly wait again."""
        first, *behind = self.drains(1.5)
        self.assertEqual(first, 1.5)
        self.assertLess(sum(behind), 1.0)

    def test_shorter(self) -> None:
        """No part waits longer than the program may."""
        self.assertEqual(self.drains(0.1), [0.1] * 3)
