"""Tests for ``docs/howto/bare-metal.rst``."""

from __future__ import annotations

import re
import textwrap

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.program.config_file import Reader
from twisted_exec.runtimes.lines.redfish.bmc import IN_USE
from twisted_exec.runtimes.lines.redfish.claim import BMC_FAILED
from twisted_exec.runtimes.lines.redfish.endpoint import NO_CONSOLE, NO_HOST_KEY, NO_PROGRAM
from twisted_exec.runtimes.lines.redfish.entry import REFUSED, TAKEN
from twisted_exec.runtimes.lines.redfish.quirks import load
from twisted_exec.runtimes.lines.redfish.sessions import LOGIN_REFUSED, NO_PASSWORD, SESSION_LIMIT
from twisted_exec.streaming.interfaces import LINE_LOST

from . import pages

# Of conditions; those of the programs and files that a way to the console needs are among them.
REASONS = {
    *(BMC_FAILED, NO_CONSOLE, NO_HOST_KEY, NO_PROGRAM, IN_USE, TAKEN, REFUSED, LINE_LOST),
    *(SESSION_LIMIT, LOGIN_REFUSED, NO_PASSWORD),
}


class ReasonTests(SynchronousTestCase):
    """The section on consoles that do not open."""

    def test_rows(self) -> None:
        """The table says what to do for each reason."""
        section = pages.section(pages.page("howto/bare-metal"), "7. If it does not open")
        self.assertEqual(REASONS - pages.first_column(section), set())


class QuirksTests(SynchronousTestCase):
    """The section on quirks."""

    def setUp(self) -> None:
        self.page = pages.section(pages.page("howto/bare-metal"), "Quirks")

    def load_example(self) -> str:
        """Load the rows of the page, and return the name of the first."""
        found = re.search(r"^   quirks:\n(?:   .*\n)+", self.page, re.MULTILINE)
        assert found is not None
        path = self.mktemp()
        with open(path, "w") as file:
            file.write(textwrap.dedent(found[0]))
        return load(path)[0].name

    def test_keys(self) -> None:
        """The table has exactly the keys that a row and its parts may have."""
        read: set[str] = set()
        original = Reader.done

        def done(reader: Reader) -> None:
            read.update(reader.keys)
            original(reader)

        self.patch(Reader, "done", done)
        self.load_example()
        keys = pages.first_column(pages.table(self.page, "Keys of a row"))
        parts = {"from", "before", "commands", "release"}
        self.assertEqual(keys | parts, read - {"quirks"})
        for part in parts:
            self.assertIn(f"``{part}``", self.page)

    def test_example(self) -> None:
        """The example is a row."""
        self.assertEqual(self.load_example(), "our iDRACs")
