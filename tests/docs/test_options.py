"""
Tests for ``docs/reference/options.rst``.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from twisted.python import usage
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.apiserver import tap as apiserver
from twisted_exec.cli import console, main
from twisted_exec.nodeserver import tap as nodeserver
from twisted_exec.poollet import tap as poollet
from twisted_exec.runtimes import tap as runtimes
from twisted_exec.runtimes.machinebroker import tap as machinebroker
from twisted_exec.spacemanager import tap as spacemanager
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
}

Told = dict[str, str | None]


def of_tap(options: usage.Options) -> Told:
    """The options of a twistd plugin, but those that every program has, with their defaults."""
    found: Told = {}
    defaults = options.defaults
    for option in options.longOpt:
        name = option.removesuffix("=")
        if name in ("help", "version"):
            continue
        default = defaults.get(name) if option.endswith("=") else None
        found[f"--{name}"] = None if default in (None, "") else str(default)
        found |= {
            f"-{short}": found[f"--{name}"]
            for short, long in options.synonyms.items()
            if len(short) == 1 and long == name
        }
    return found


def of_parser(parser: argparse.ArgumentParser) -> Iterator[tuple[str, Told]]:
    """Each command of a parser, with its options and their defaults."""
    found: Told = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from of_parser(command)
        elif not isinstance(action, argparse._HelpAction):
            told = str(action.default) if action.default else None
            for form in action.option_strings or [str(action.metavar)]:
                found[form] = told
    if found:
        yield parser.prog, found


def known() -> dict[str, Told]:
    """All programs, with what they take."""
    programs = {name: of_tap(options()) for name, options in TAPS.items()}
    for parser in (console.make_parser(), main.make_parser()):
        programs |= dict(of_parser(parser))
    return programs


class OptionsPageTests(SynchronousTestCase):
    """The page names the options that exist, and no others."""

    def setUp(self) -> None:
        self.told = pages.options(pages.page("reference/options"))

    def test_programs(self) -> None:
        """Every program, and every command of one, has its part."""
        self.assertEqual(sorted(self.told), sorted(known()))

    def test_options(self) -> None:
        """Every option of every program is there, and none that a program does not take."""
        for program, options in known().items():
            self.assertEqual(sorted(self.told[program]), sorted(options), program)

    def test_defaults(self) -> None:
        """A default is told as it is, and where there is none, none is told."""
        for program, options in known().items():
            for name, default in options.items():
                self.assertEqual(self.told[program].get(name), default, f"{program} {name}")
