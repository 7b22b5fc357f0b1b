"""
Tests for :mod:`twisted_exec.runtimes.state`.
"""

from __future__ import annotations

import os

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.runtimes.machine_storage import ID
from twisted_exec.runtimes.state import StateInUse, identity, lock


class StateDirectoryTests(SynchronousTestCase):
    """Tests for :func:`lock` and :func:`identity`."""

    def setUp(self) -> None:
        self.directory = self.mktemp()
        os.mkdir(self.directory)

    def path(self, name: str) -> str:
        return os.path.join(self.directory, name)

    def test_one(self) -> None:
        """Only one runtime at a time; a second one gets the place in the message."""
        held = lock(self.path("lock"))
        with self.assertRaises(StateInUse) as caught:
            lock(self.path("lock"))
        self.assertIn(self.directory, str(caught.exception))
        os.close(held)
        os.close(lock(self.path("lock")))

    def test_identity(self) -> None:
        """The id is stable; a damaged one is replaced."""
        first_id = identity(self.path("id"))
        self.assertTrue(ID.fullmatch(first_id))
        self.assertEqual(identity(self.path("id")), first_id)
        with open(self.path("id"), "w") as file:
            file.write("torn")
        self.assertNotEqual(identity(self.path("id")), "torn")
