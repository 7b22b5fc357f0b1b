"""
The commands of ``twisted-exec``, each in the module of its name, which is imported when the command is used.

So a command may import what it needs, and the others start without it.  The help and the completed options of
a command take as long as its imports: a second module per command, with its options alone, would
save some tenths of a second there, and part each command in two.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from importlib import import_module
from typing import Any, NoReturn

from twisted_exec import build
from twisted_exec.cli.messages import for_stderr
from twisted_exec.cli.parser import CheckedParser, VersionAction, nearest

COMMANDS: Mapping[str, str] = {
    "pki": "make certificates",
    "iri": "call a machine runtime directly, without an API server",
    "token": "create bootstrap tokens for new poollets",
    "request": "approve requests of users for consoles",
    "space": "use the API server of a Space by the Space's name",
    "backup": "copy the SQLite store of an API server, which may run meanwhile",
    "restore": "replace the store of a stopped API server by a backup",
    "logs": "print what a machine's console printed",
    "screen": "print the screen of a machine's console",
    "audit": "answer questions from audit files",
    "recording": "list, export, verify and play recordings of consoles",
    "web": "open the web console in your browser",
    "mcp": "serve tools for an agent on a pipe, by the Model Context Protocol",
    "ssh": "serve ssh NAME.console on a pipe, as the configuration of ssh says",
    "doctor": "find out why a console does not open",
    "completion": "print a completion script for a shell",
    "man": "print or write manual pages",
}
"""What the help says about each command, in its order."""

_EPILOG = """\
Exit code: 0 after success, and 1 after an error, with one line about it on stderr. A few commands
have more codes; their --help lists them. Ctrl-C ends a command with 130.
"""

_UNKNOWN = re.compile(
    r"""argument COMMAND: invalid choice: ['"](?P<word>.*)['"] \(choose from (?P<there>.*)\)"""
)
"""argparse's message about a command that does not exist."""


class CommandParser(CheckedParser):
    """
    Reports a mistake in one line.

    :cvar error_code: the exit code after it.
    """

    error_code = 1

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Refuse unknown arguments in the command's own parser."""
        options, unknown = super().parse_known_args(args, namespace)
        if unknown:
            from twisted_exec.cli.machine_options import kind_and_name  # only after a mistake

            meant = kind_and_name(options, unknown)
            self.error(f"unrecognized arguments: {' '.join(unknown)}{meant}")
        return options, unknown

    def error(self, message: str) -> NoReturn:
        if unknown := _UNKNOWN.fullmatch(message):
            message = self._no_command(unknown["word"], re.findall(r"[\w-]+", unknown["there"]))
        self.exit(self.error_code, f"{for_stderr(self.error_line(message))}\n")

    def _no_command(self, word: str, there: Sequence[str]) -> str:
        near = nearest(word, [*there, "console"])
        hint = f"; did you mean {near}?" if near else f"; there are {', '.join(there)}"
        if near == "console":
            hint = "; kubectl console NAME opens a console"
        return f'there is no command "{word}"{hint}'


def load(command: str) -> Any:
    """
    Import the module of a command and return it.

    :raises ModuleNotFoundError: the installation lacks a library that the command needs.
    """
    return import_module(f"twisted_exec.cli.commands.{command}")


def command_of(arguments: Sequence[str]) -> str:
    """Return the command in the arguments of ``twisted-exec``, or an empty string."""
    word = next((each for each in arguments if not each.startswith("-")), "")
    return word if word in COMMANDS else ""


def make_parser(loaded: Collection[str] = tuple(COMMANDS)) -> CheckedParser:
    """
    Return the parser of the command line.

    :param loaded: the commands whose arguments it knows; the others are only in its help.
    """
    parser = CommandParser(
        prog="twisted-exec",
        description="Tools for users and operators. kubectl console NAME opens a console.",
        epilog=_EPILOG,
    )
    parser.add_argument("--version", action=VersionAction, version=build())
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for command, summary in COMMANDS.items():
        added = commands.add_parser(command, help=summary)
        if command in loaded:
            load(command).register(added)
    return parser
