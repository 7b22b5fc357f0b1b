"""
A kubectl and a library with a whole chain, and the table of clients in the documentation.

:mod:`tests.interop.clients` runs every client.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase, TestCase

from tests import needs
from tests.clients import kubectl, matrix, scripts
from tests.clients.table import CANNOT, COLUMNS, WORKS, Row, read
from tests.tiers import PROGRAMS

REQUIRED = (
    *(f"kubectl 1.{minor}" for minor in (20, 27, 29, 30, 31, 33)),
    "Python ``kubernetes``",
    "Python ``kubernetes_asyncio``",
    "Python ``kr8s``",
    "Python ``lightkube``",
    "JavaScript ``@kubernetes/client-node``",
    "Rust ``kube``",
    "Java ``io.fabric8:kubernetes-client``",
    "WebSocket of a page",
)


class ClientsTests(TestCase):
    """The clients themselves."""

    starts = PROGRAMS
    skip = needs.kubectl()

    async def test_matrix(self) -> None:
        """The supported features of kubectl and of a library work, and the documentation lists the same ones."""
        clients = [(await kubectl.found())[-1], scripts.PythonClient()]
        rows, failures = await matrix.find(clients)
        self.assertEqual(failures, [], "\n\n".join(failures))
        told = read(matrix.PAGE.read_text(encoding="utf-8"))
        for row in rows:
            self.assertEqual(told[row.client], row.marks, f"write it again: {matrix.COMMAND}")


class PageTests(SynchronousTestCase):
    """The table as written in the documentation."""

    def test_rows(self) -> None:
        """The page has the required clients and a recent kubectl, without any failure."""
        told = read(matrix.PAGE.read_text(encoding="utf-8"))
        for client in REQUIRED:
            self.assertIn(client, told)
        newest = max(int(name.split(".")[1]) for name in told if name.startswith("kubectl 1."))
        self.assertGreater(newest, 33)
        for client, marks in told.items():
            self.assertLessEqual(set(marks.values()), {WORKS, CANNOT}, client)
            if client.startswith("kubectl"):
                self.assertEqual(set(marks.values()), {WORKS}, client)

    def test_read(self) -> None:
        """A written table reads back the same, with footnotes too; equal footnotes appear once."""
        marks = dict.fromkeys(COLUMNS, WORKS) | {"get": CANNOT, "watch": CANNOT}
        notes = {"get": "It cannot.", "watch": "It cannot.", "apply": "Otherwise."}
        rows = [Row("one", "1", marks, notes), Row("two", "2", dict.fromkeys(COLUMNS, WORKS))]
        text = matrix.page(rows, "2026-11-20")
        self.assertEqual(read(text), {row.client: row.marks for row in rows})
        self.assertEqual(text.count("It cannot."), 1)
