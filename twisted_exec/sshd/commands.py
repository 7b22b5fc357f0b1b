"""
The commands of the door beside those of a console: ``list``, ``log``, ``screen`` and ``power``.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NoReturn

from twisted_exec.api.logs import LogOptions
from twisted_exec.cli.commands.logs import add_line_options, log_options
from twisted_exec.cli.failures import InputError
from twisted_exec.cli.parser import CheckedParser
from twisted_exec.sshd.targets import Target, parse_namespace, shown

MOST_CHARACTERS = 4096
"""Of a command and its options; a command for the shell of a machine has its own limit."""

_MOST_MESSAGE = 300
_HELP_COLUMNS = 100

OTHERS = "; there are also list, log, screen and power on|off"
"""For the message about a command that does not exist."""


@dataclass(frozen=True)
class Listing:
    """Show the machines of a namespace; of all namespaces with ``None``."""

    where: Target | None


@dataclass(frozen=True)
class Log:
    """Show what a machine has printed."""

    options: LogOptions


@dataclass(frozen=True)
class Screen:
    """Show what a terminal would show of a machine's console."""


@dataclass(frozen=True)
class Power:
    """Switch a machine on or off."""

    state: str


@dataclass(frozen=True)
class Help:
    """Show a text."""

    text: str


Command = Listing | Log | Screen | Power | Help


def parse_command(text: str | None) -> Command | None:
    """
    Parse the command of a session.

    :param text: ``None`` without one.
    :return: ``None`` for a command that is one of a console, or does not exist.
    :raises ValueError: it is malformed; the message is for the user.
    """
    word, rest = _split(text)
    parse = _COMMANDS.get(word)
    if parse is None:
        return None
    if len(rest) > MOST_CHARACTERS:
        raise ValueError(f"{word}: its options have more than {MOST_CHARACTERS} characters")
    try:
        words = shlex.split(rest)
    except ValueError as problem:
        raise ValueError(f"{word}: {str(problem).lower()}") from None
    return parse(words)


def is_text(text: str | None) -> bool:
    """Return whether a command of a session is one of these, whether or not it is malformed."""
    return _split(text)[0] in _COMMANDS


def _split(text: str | None) -> tuple[str, str]:
    word, _, rest = (text or "").strip().partition(" ")
    return word, rest


def _list(words: Sequence[str]) -> Command:
    if len(words) > 1:
        raise ValueError("list has at most one argument: NAMESPACE or SPACE/NAMESPACE")
    return Listing(parse_namespace(words[0]) if words else None)


def _screen(words: Sequence[str]) -> Command:
    if words:
        raise ValueError("screen has no arguments: it shows the present screen")
    return Screen()


def _power(words: Sequence[str]) -> Command:
    if len(words) != 1 or words[0] not in ("on", "off"):
        raise ValueError("power has one argument: on or off")
    return Power(words[0].capitalize())


def _log(words: Sequence[str]) -> Command:
    columns = partial(argparse.HelpFormatter, width=_HELP_COLUMNS)
    parser = _Parser(prog="log", add_help=False, formatter_class=columns)
    parser.description = "Print what the machine's console printed."
    parser.add_argument("-h", "--help", action="store_true", help="show this text")
    add_line_options(parser)
    options = parser.parse_args([_word(each) for each in words])
    if options.help:
        return Help(parser.format_help())
    try:
        # Without a pseudo-terminal of ssh, too: the output is most often for the user's terminal all the same.
        return Log(log_options(options, is_terminal=True))
    except InputError as problem:
        raise ValueError(f"log: {problem}") from None


def _word(text: str) -> str:
    if not text.isprintable():
        raise ValueError(f'log: "{shown(text)}" has a control character')
    return text


_COMMANDS: dict[str, Callable[[Sequence[str]], Command]] = {
    "list": _list,
    "log": _log,
    "power": _power,
    "screen": _screen,
}


class _Parser(CheckedParser):
    """Raises errors, since the user is at another host."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(self.error_line(shown(message, _MOST_MESSAGE)))

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        raise ValueError(message or "")
