"""
Tests for ``docs/reference/line-drivers.rst``.
"""

from __future__ import annotations

from twisted.python.reflect import namedAny
from twisted.trial.unittest import SynchronousTestCase

from twisted.plugins import twisted_exec_drivers as plugins
from twisted_exec.runtimes.drivers import DriverMaker

from . import line_drivers, pages

WITHOUT_LINES = {"pty", "qemu"}
"""Drivers that run machines themselves."""


class LineDriversPageTests(SynchronousTestCase):
    """The page claims of the drivers what their code does and tests show."""

    def setUp(self) -> None:
        self.examples = {each.name: each for each in line_drivers.examples()}

    def test_current(self) -> None:
        """The table is up to date."""
        written = line_drivers.PAGE.read_text(encoding="utf-8")
        self.assertEqual(written, line_drivers.table(), "run: python -m tests.docs.line_drivers")

    def test_included(self) -> None:
        """The page includes the table."""
        self.assertIn(line_drivers.PAGE.name, pages.page("reference/line-drivers"))

    def test_drivers(self) -> None:
        """Every built-in driver of existing lines has an example, and a column of the table."""
        built_in = {each.name for each in vars(plugins).values() if isinstance(each, DriverMaker)}
        self.assertEqual(set(self.examples), built_in - WITHOUT_LINES)
        self.assertEqual(set(line_drivers.TESTS), set(self.examples))
        for example in self.examples.values():
            self.assertTrue(example.runs, example.name)

    def test_tests(self) -> None:
        """Each test that the table names exists."""
        for name, tests in line_drivers.TESTS.items():
            for column, test in tests.items():
                # Imported, because a class may have it from a contract.
                self.assertTrue(callable(namedAny(f"tests.{test}")), f"{name}: {column}")

    def test_claims(self) -> None:
        """No test shows what the code does not do; each column has a test for a driver."""
        keys = {column.key for column in line_drivers.COLUMNS}
        shown = {key for tests in line_drivers.TESTS.values() for key in tests}
        self.assertEqual(shown, keys)
        for name, tests in line_drivers.TESTS.items():
            for column in line_drivers.COLUMNS:
                if column.key in tests:
                    self.assertTrue(column.has(self.examples[name]), f"{name}: {column.key}")

    def test_abilities(self) -> None:
        """What the code of a driver can do has a test: BREAK, power, size, exclusive use, a peer."""
        for name, example in self.examples.items():
            for column in line_drivers.COLUMNS:
                if column.key in ("break", "power", "size", "exclusive", "peer"):
                    has = bool(column.has(example))
                    self.assertEqual(column.key in line_drivers.TESTS[name], has, column.key)

    def test_pages(self) -> None:
        """The page of a driver shows the example; the reference has a section with its keys."""
        configuration = pages.page("reference/configuration")
        for path, page in line_drivers.EXAMPLES.items():
            self.assertIn(path.rpartition("/")[2], pages.page(page))
        for name in self.examples:
            self.assertIn(f".. list-table:: Keys of driver {name}\n", configuration)
