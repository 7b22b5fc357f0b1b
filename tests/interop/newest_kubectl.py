"""The row of the newest kubectl in the table of clients."""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from tests import needs
from tests.clients import kubectl, matrix
from tests.clients.table import read


class NewestKubectlTests(TestCase):
    """A kubectl that was built from Go."""

    timeout = 300
    skip = needs.newest_kubectl()

    async def test_row(self) -> None:
        """Every column works, as the documentation has it."""
        (client,) = await kubectl.newest()
        rows, failures = await matrix.find([client])
        self.assertEqual(failures, [])
        told = read(matrix.PAGE.read_text(encoding="utf-8"))
        self.assertEqual(told.get(client.name), rows[0].marks, f"write it again: {matrix.COMMAND}")
