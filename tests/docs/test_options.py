"""
Tests for ``docs/reference/options.rst`` and the pages in ``docs/reference/options``.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator

from twisted.python import usage
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.apiserver import tap as apiserver
from twisted_exec.cli.commands import registry
from twisted_exec.cli.console import options as console
from twisted_exec.cli.parser import CheckedParser
from twisted_exec.mcp import tap as mcp
from twisted_exec.nodeserver import tap as nodeserver
from twisted_exec.poollet import tap as poollet
from twisted_exec.racks import tap as racks
from twisted_exec.runtimes import tap as runtimes
from twisted_exec.runtimes.machinebroker import tap as machinebroker
from twisted_exec.spacemanager import tap as spacemanager
from twisted_exec.sshd import tap as sshd
from twisted_exec.standalone import tap as standalone

from . import pages

TAPS = {
    "exec-standalone": standalone.Options,
    "exec-apiserver": apiserver.Options,
    "exec-poollet": poollet.Options,
    "exec-runtime": runtimes.Options,
    "exec-broker": machinebroker.Options,
    "exec-nodeserver": nodeserver.Options,
    "exec-spacemanager": spacemanager.Options,
    "exec-racks": racks.Options,
    "exec-sshd": sshd.Options,
    "exec-mcp": mcp.Options,
}

Defaults = dict[str, str | None]


def of_tap(options: usage.Options) -> Defaults:
    """Return the options of a twistd plugin with their defaults, without ``--help`` and ``--version``."""
    result: Defaults = {}
    defaults = options.defaults
    for option in options.longOpt:
        name = option.removesuffix("=")
        if name in ("help", "version"):
            continue
        default = defaults.get(name) if option.endswith("=") else None
        result[f"--{name}"] = None if default in (None, "") else str(default)
        result |= {
            f"-{short}": result[f"--{name}"]
            for short, long in options.synonyms.items()
            if len(short) == 1 and long == name
        }
    return result


def of_parser(parser: CheckedParser) -> Iterator[tuple[str, Defaults]]:
    """Yield each command of a parser with its options and their defaults."""
    options: Defaults = {}
    for action in parser.arguments:
        if action is parser.commands:
            for command in action.choices.values():
                yield from of_parser(command)
        elif not {"--help", "--help-all"}.intersection(action.option_strings):
            has_default = action.default and action.default != argparse.SUPPRESS
            default = str(action.default) if has_default else None
            for form in action.option_strings or [str(action.metavar)]:
                options[form] = default
    if options:
        yield parser.prog, options


def programs() -> dict[str, Defaults]:
    """Return the options of all programs."""
    result = {name: of_tap(options()) for name, options in TAPS.items()}
    for parser in (console.make_parser(), registry.make_parser()):
        result |= dict(of_parser(parser))
    return result


class OptionsPagesTests(SynchronousTestCase):
    """The pages document exactly the options that exist."""

    def setUp(self) -> None:
        self.pages = [name for name in pages.names() if name.startswith("reference/options/")]
        self.documented = pages.options("\n".join(map(pages.page, self.pages)))

    def test_overview(self) -> None:
        """The overview has all pages, each of which begins with the name of its program."""
        overview = pages.page("reference/options")
        listed = re.findall(r"^\.\. options-of:: (.+)$", overview, re.MULTILINE)
        self.assertEqual(sorted(f"reference/{name}" for name in listed), self.pages)
        for name in self.pages:
            title = pages.page(name).partition("\n")[0]
            self.assertEqual(title.replace(" ", "-"), name.rpartition("/")[2])
            self.assertIn(title, programs())

    def test_programs(self) -> None:
        """Every program and every command has a section."""
        self.assertEqual(sorted(self.documented), sorted(programs()))

    def test_options(self) -> None:
        """The pages list every option of every program, and no others."""
        for program, options in programs().items():
            self.assertEqual(sorted(self.documented[program]), sorted(options), program)

    def test_defaults(self) -> None:
        """The pages give the right default, and none where an option has none."""
        for program, options in programs().items():
            for name, default in options.items():
                remedy = "document this default; for an object, give the ProgramOption default=None"
                documented = self.documented[program].get(name)
                self.assertEqual(documented, default, f"{program} {name}: {remedy}")
