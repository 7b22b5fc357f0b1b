"""The argument parser of the commands."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any


class CheckedParser(argparse.ArgumentParser):
    """
    Fails if its help cannot be written, which newer versions of Python ignore, and publishes its
    arguments.

    :ivar arguments: in the order of their definition, with the titles of their groups.
    :ivar repeatable: arguments that may be given several times.
    :ivar commands: the argument that selects a command, if there are commands.
    :ivar summary: what the list of commands says about this one.
    :cvar other_names: names that users try, and the options that exist, without hyphens.
    """

    commands: Any = None
    summary = ""
    other_names: Mapping[str, str] = {}

    def __init__(self, *words: Any, **options: Any) -> None:
        self.arguments: dict[argparse.Action, str] = {}
        self.repeatable: set[argparse.Action] = set()
        super().__init__(*words, **options)

    def add_argument(self, *words: Any, **options: Any) -> argparse.Action:
        action = super().add_argument(*words, **options)
        return self._published("", action, options)

    def add_argument_group(self, *words: Any, **options: Any) -> Any:
        group = super().add_argument_group(*words, **options)
        return self._publishing(str(group.title), group)

    def add_mutually_exclusive_group(self, **options: Any) -> Any:
        return self._publishing("", super().add_mutually_exclusive_group(**options))

    def add_subparsers(self, **options: Any) -> Any:
        commands = self.commands = super().add_subparsers(**options)
        add_parser = commands.add_parser

        def add_command(name: str, **options: Any) -> CheckedParser:
            command: CheckedParser = add_parser(name, **options)
            command.summary = options.get("help") or ""
            return command

        commands.add_parser = add_command  # type: ignore[method-assign]
        self.arguments[commands] = ""
        return commands

    def _publishing(self, title: str, group: Any) -> Any:
        add_argument = group.add_argument

        def add_published(*words: Any, **options: Any) -> argparse.Action:
            return self._published(title, add_argument(*words, **options), options)

        group.add_argument = add_published
        return group

    def _published(
        self, title: str, action: argparse.Action, options: Mapping[str, Any]
    ) -> argparse.Action:
        self.arguments[action] = title
        if options.get("action") in ("append", "extend"):
            self.repeatable.add(action)
        return action

    def print_help(self, file: Any = None) -> None:
        stream = file or sys.stdout
        stream.write(self.format_help())
        stream.flush()

    def error_line(self, message: str) -> str:
        """
        Return the line of an error: with the option that the user may have meant, if it is about an unknown
        option, and with what a missing option is.
        """
        if re.search(": (invalid choice:|ignored explicit argument) ", message):  # argparse's own
            message = message.replace("'", '"')
        missing = re.fullmatch("the following arguments are required: (--[a-z-]+)", message)
        if missing:
            actions = (each for each in self.arguments if missing[1] in each.option_strings)
            message += "".join(f" ({each.help})" for each in actions if each.help)
        unknown = re.match("unrecognized arguments: --([a-z-]+)", message)
        near = ""
        if unknown:
            near = self.other_names.get(unknown[1]) or nearest(
                unknown[1], re.findall("--([a-z-]+)", self.format_help()), 0.75
            )
        message = f"{message}; did you mean --{near}?" if near else message
        return f"{self.prog}: {message}{' See' if message.endswith('?') else '; see'} {self.prog} --help"


class VersionAction(argparse.Action):
    """Prints a version, and fails if it cannot be written."""

    def __init__(self, option_strings: Sequence[str], dest: str, version: str) -> None:
        self._version = version
        super().__init__(
            option_strings,
            argparse.SUPPRESS,
            nargs=0,
            default=argparse.SUPPRESS,
            help="show program's version number and exit",
        )

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        sys.stdout.write(f"{parser.prog} {self._version}\n")
        sys.stdout.flush()
        parser.exit()


def nearest(word: str, names: list[str], likeness: float = 0.6) -> str:
    """Return the name that is most like a word; empty if none is."""
    import difflib  # only after a mistake

    return next(iter(difflib.get_close_matches(word, names, 1, likeness)), "")
