"""
Generate the table of ``docs/reference/line-drivers.rst``: ``python -m tests.docs.line_drivers``.

What the classes of the example files show comes from the code; the rest counts because a test shows it, which the
table names. A driver without a test for a column has no entry there, whatever its code may do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from twisted.internet.task import Clock

from twisted_exec.runtimes import config
from twisted_exec.runtimes.interfaces import IShutdown, MachineFacts
from twisted_exec.runtimes.lines.driver import LineDriver
from twisted_exec.runtimes.lines.shared_line import SharedLine
from twisted_exec.runtimes.processes import ProcessTable
from twisted_exec.streaming.interfaces import IBreakable

from . import pages

PAGE = pages.DOCS / "reference" / "line-drivers-table.inc"

EXAMPLES = {
    "howto/console-servers/runtime.yaml": "howto/console-servers",
    "howto/libvirt.yaml": "reference/configuration",
}
"""Files with a class of each line driver, and the page that shows the file."""

NO = "\\-"

_SHARED = "runtimes.lines.test_shared_line"
_GAP = f"{_SHARED}.LostTests.test_gap"

TESTS: Mapping[str, Mapping[str, str]] = {
    "command": {
        "reason": "runtimes.lines.test_command.DriverTests.test_ended_at_once",
        "reconnect": "runtimes.lines.test_command.DriverTests.test_ended",
        "gap": _GAP,
        "break": "runtimes.lines.test_command.DriverTests.test_break",
        "size": "runtimes.lines.test_command.DriverTests.test_size",
        "peer": "flows.sessions.test_console_servers.ConsoleServerTests.test_consoles",
        "fault": "runtimes.lines.test_command.DriverTests.test_ended",
    },
    "ipmi": {
        "reason": "runtimes.lines.test_ipmi.LineTests.test_wrong_password",
        "reconnect": "runtimes.lines.test_ipmi.LineTests.test_restarted",
        "gap": _GAP,
        "break": "runtimes.lines.test_ipmi.LineTests.test_break",
        "power": "runtimes.lines.test_ipmi.PowerTests.test_off",
        "exclusive": "runtimes.lines.test_ipmi.LineTests.test_forced",
        "peer": "runtimes.lines.test_ipmi.LineTests.test_restarted",
        "fault": "runtimes.lines.test_ipmi.PowerTests.test_no_bmc",
    },
    "libvirt": {
        "reason": "runtimes.lines.test_libvirt.DomainTests.test_shuts_down",
        "reconnect": "runtimes.lines.test_libvirt.DomainTests.test_lost",
        "gap": _GAP,
        "power": "runtimes.lines.test_libvirt.DomainTests.test_life",
        "peer": "runtimes.lines.test_libvirt.DomainTests.test_life",
        "fault": "runtimes.lines.test_libvirt.DomainTests.test_lost",
    },
    "redfish": {
        "reason": "runtimes.lines.redfish.test_driver.LineTests.test_condition",
        "reconnect": "runtimes.lines.redfish.test_driver.LineTests.test_lost",
        "gap": _GAP,
        "break": "runtimes.lines.redfish.test_transports.ContractTests.test_break",
        "power": "runtimes.lines.redfish.test_driver.PowerTests.test_on_and_off",
        "exclusive": "runtimes.lines.redfish.test_driver.ExclusiveTests.test_two_runtimes",
        "peer": "runtimes.lines.redfish.test_transports.ContractTests.test_break",
        "fault": "runtimes.lines.redfish.test_driver.FaultTests.test_each",
    },
    "serial": {
        "reason": "runtimes.lines.test_serial.DriverTests.test_not_plugged_in",
        "reconnect": "runtimes.lines.test_serial.DriverTests.test_unplugged",
        "gap": _GAP,
        "break": "runtimes.lines.test_serial_port.PortTests.test_break",
        "exclusive": "runtimes.lines.test_serial_port.ExclusiveTests.test_twice",
        "fault": "runtimes.lines.test_serial.DriverTests.test_unplugged",
    },
    "socket": {
        "reason": "flows.sessions.test_console_servers.ConsoleServerTests.test_consoles",
        "reconnect": "runtimes.lines.test_socket.Ser2netTests.test_restarted",
        "gap": _GAP,
        "break": "runtimes.lines.test_socket.Ser2netTests.test_settings_and_break",
        "peer": "runtimes.lines.test_socket.Ser2netTests.test_restarted",
        "fault": "runtimes.lines.test_socket.Ser2netTests.test_restarted",
    },
    "ssh": {
        "reason": "runtimes.lines.test_ssh.ServerTests.test_other_host_key",
        "reconnect": "runtimes.lines.test_ssh.ServerTests.test_lost",
        "gap": _GAP,
        "break": "runtimes.lines.test_ssh.ServerTests.test_break",
        "size": "runtimes.lines.test_ssh.ServerTests.test_size",
        "peer": "runtimes.lines.test_ssh.ServerTests.test_lost",
        "fault": "runtimes.lines.test_ssh.ServerTests.test_lost",
    },
}
"""For each driver the test that shows a column, such as ``runtimes.lines.test_ssh.ServerTests.test_lost``."""

PEERS = {
    "command": "conserver",
    "ipmi": "``ipmitool`` and OpenIPMI's ``ipmi_sim``",
    "libvirt": "libvirt and QEMU",
    "redfish": "OpenSSH",
    "socket": "ser2net",
    "ssh": "OpenSSH",
}
"""The foreign programs in the tests of the column "peer"."""


@dataclass(frozen=True)
class Example:
    """
    A line driver with the runs of all lines of its example.

    :param page: shows the example.
    """

    name: str
    driver: LineDriver[Any]
    runs: tuple[SharedLine, ...]
    page: str

    def provides(self, interface: Any) -> bool:
        """Return whether a run of a line provides an interface."""
        return any(interface.providedBy(run) for run in self.runs)


@dataclass(frozen=True)
class Column:
    """
    A column of the table.

    :param has: what the code says: the text of the cell, or an empty one.
    """

    key: str
    title: str
    has: Callable[[Example], str]


def _yes(condition: bool) -> str:
    return "yes" if condition else ""


def _shared(example: Example) -> str:
    return _yes(all(isinstance(run, SharedLine) for run in example.runs))


COLUMNS = (
    Column("reason", "``doctor`` says why", lambda each: "yes"),
    Column("reconnect", "opened again after a loss", _shared),
    Column("gap", "loss is a gap in the journal", _shared),
    Column("break", "BREAK", lambda each: _yes(each.provides(IBreakable))),
    Column("power", "``spec.power``", lambda each: _yes(each.provides(IShutdown))),
    Column(
        "size", "size of the terminal", lambda each: _yes(each.name not in config._WITHOUT_SIZE)
    ),
    Column("exclusive", "other programs", lambda each: each.driver.exclusive),
    Column("peer", "tested with", lambda each: PEERS.get(each.name, "")),
    Column("fault", "fault at the far end", lambda each: "yes"),
)
"""The columns that tests show; the last one, the page, needs none."""


def _facts(name: str) -> MachineFacts:
    namespace, _, machine = name.rpartition("/")
    return MachineFacts(
        id=name,
        label=name,
        hostname="",
        directory="",
        marker=("", ""),
        started=lambda leader: None,
        event=lambda *arguments: None,
        namespace=namespace,
        name=machine,
    )


def examples() -> Iterator[Example]:
    """Yield each line driver of the example files, as the runtime builds it."""
    clock = Clock()
    for path, page in EXAMPLES.items():
        for each in config.load(str(pages.DOCS / path)):
            driver: Any = each.build(clock, ProcessTable(clock, "X")).driver
            runs = tuple(driver.run(_facts(name)) for name in driver.lines.names)
            yield Example(driver.name, driver, runs, page)


def cell(example: Example, column: Column) -> str:
    """Return what the code says if a test shows it; a dash otherwise."""
    shown = column.key in TESTS.get(example.name, {})
    return (column.has(example) if shown else "") or NO


def table() -> str:
    """Return the two tables as reStructuredText: what the drivers can do, and which tests show it."""
    drivers = sorted(examples(), key=lambda each: each.name)
    head = ["", *(f"``{each.name}``" for each in drivers)]
    rows = [[column.title, *(cell(each, column) for each in drivers)] for column in COLUMNS]
    rows.append(["page", *(f":doc:`/{each.page}`" for each in drivers)])
    shown = [
        [f"``{each.name}``", column.title, f"``tests.{TESTS[each.name][column.key]}``"]
        for each in drivers
        for column in COLUMNS
        if cell(each, column) != NO
    ]
    return "\n".join(
        [
            *_rows("", [head, *rows], "   :stub-columns: 1"),
            "",
            *_rows(" Tests that show it", [["driver", "column", "test"], *shown]),
            "",
        ]
    )


def _rows(title: str, rows: list[list[str]], *options: str) -> Iterator[str]:
    yield from (f".. list-table::{title}", "   :header-rows: 1", *options, "")
    for row in rows:
        for index, text in enumerate(row):
            yield f"   {'*' if not index else ' '} - {text}".rstrip()


if __name__ == "__main__":
    PAGE.write_text(table(), encoding="utf-8")
