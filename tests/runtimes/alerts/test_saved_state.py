"""
Tests for :mod:`twisted_exec.runtimes.alerts.saved_state`.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.program.disk_thread import AtOnce
from twisted_exec.runtimes.alerts.saved_state import SavedState, Unhealthy

WHY = Unhealthy("panic", "KernelPanic", "Kernel panic - not syncing", "0123456789abcdef", 3)


class SavedStateTests(SynchronousTestCase):
    """Tests for :class:`SavedState`."""

    def setUp(self) -> None:
        self.path = os.path.abspath(self.mktemp())

    def state(self) -> SavedState:
        return SavedState(self.path, AtOnce())

    def test_restart(self) -> None:
        """Reports and unhealthy machines are there after a restart, until they are forgotten."""
        state = self.state()
        state.report("uid-1", "panic", 7)
        state.set_unhealthy("uid-1", WHY)
        state.save()
        again = self.state()
        self.assertEqual((again.reported("uid-1", "panic"), again.unhealthy("uid-1")), (7, WHY))
        again.forget("uid-1")
        again.save()
        last = self.state()
        self.assertEqual((last.reported("uid-1", "panic"), last.unhealthy("uid-1")), (None, None))

    def test_newer(self) -> None:
        """What a newer release has added is ignored."""
        state = self.state()
        state.set_unhealthy("uid-1", WHY)
        state.save()
        path = Path(self.path)
        document = json.loads(path.read_text())
        document["unhealthy"]["uid-1"]["newer"] = 1
        path.write_text(json.dumps(document | {"newer": 1}))
        self.assertEqual(self.state().unhealthy("uid-1"), WHY)

    def test_damaged(self) -> None:
        """A file that cannot be read is ignored, and replaced."""
        for damage in (b"", b"[]", b'{"reports": 1, "unhealthy": {}}', b"\xff"):
            with open(self.path, "wb") as file:
                file.write(damage)
            state = self.state()
            self.assertIsNone(state.unhealthy("uid-1"))
            state.set_unhealthy("uid-1", WHY)
            state.save()
            self.assertEqual(self.state().unhealthy("uid-1"), WHY)
