"""
Tests for ``docs/howto/racks.rst`` and the files that it shows.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.yaml_reader import parse_yaml
from twisted_exec.program.server_list import (
    COLUMNS,
    MAX_SERVERS,
    Server,
    format_csv,
    read_servers,
)
from twisted_exec.racks.metal import LABELS, row_of, trim_bmc, trim_server
from twisted_exec.runtimes import config

from . import pages

HOWTO = pages.DOCS / "howto"


class RacksPageTests(SynchronousTestCase):
    """The page shows lists that the runtime reads."""

    def setUp(self) -> None:
        self.page = pages.page("howto/racks")

    def test_lists(self) -> None:
        """Both files are the same list."""
        found = read_servers(str(HOWTO / "rack-7.csv"))
        self.assertEqual(found.servers[1], Server("default/web-2", "10.0.1.12"))
        self.assertEqual(found, read_servers(str(HOWTO / "rack-7.yaml")))

    def test_columns(self) -> None:
        """The table has each column; the page says the limit, and which labels are copied."""
        table = pages.table(self.page, "Columns of a list")
        self.assertEqual(pages.first_column(table), set(COLUMNS))
        self.assertIn(f"at most {MAX_SERVERS} servers", self.page)
        for label in LABELS:
            self.assertIn(f"``{label}``", pages.page("reference/annotations"))

    def test_class(self) -> None:
        """The class is one of the runtime, whose list may not be there yet."""
        (found,) = config.load(str(HOWTO / "racks-runtime.yaml"))
        self.assertEqual((found.name, found.quantity), ("server", MAX_SERVERS))

    def test_redfish(self) -> None:
        """The row of the shown Server is that of the shown list, in a network of the shown class."""
        text = (HOWTO / "rack-8-server.yaml").read_text()
        bmc, server = map(parse_yaml, text.split("---\n"))
        known = {bmc["metadata"]["name"]: trim_bmc(bmc)}
        row = row_of(trim_server(server), known.get, "default")
        self.assertEqual(format_csv([row]), (HOWTO / "rack-8.csv").read_bytes())
        (found,) = config.load(str(HOWTO / "rack-8-runtime.yaml"))
        self.assertEqual((found.name, found.quantity), ("metal", MAX_SERVERS))
