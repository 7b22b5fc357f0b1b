"""
``twisted-exec man``: manual pages, from the same texts as ``--help``.

Source of the format: man(7).
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from twisted.application.service import IServiceMaker
from twisted.plugin import getPlugins

from twisted_exec import __version__
from twisted_exec.cli.commands import registry
from twisted_exec.cli.console import options as console
from twisted_exec.cli.failures import crashed, failed
from twisted_exec.cli.parser import CheckedParser

_ENDLESS_COLUMNS = 100_000
_HEADING = re.compile(r"(\S.*):")
_OPTION = re.compile(r"\s+((?:-\w, )?--\S+)\s*(.*)")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")

Page = Callable[[], str]


def register(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``man``."""
    parser.description = (
        "Print a manual page, or write all of them. To read one: "
        "twisted-exec man kubectl-console | man -l -"
    )
    parser.add_argument(
        "page",
        metavar="PAGE",
        nargs="?",
        default="twisted-exec",
        help="such as kubectl-console or exec-apiserver (default: %(default)s)",
    )
    parser.add_argument(
        "--directory",
        metavar="DIR",
        help="write all pages into man1 and man8 of this directory, such as ~/.local/share/man",
    )
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    pages = _pages()
    if options.directory:
        try:
            for path in _write(pages, options.directory):
                print(path)
        except OSError as error:
            return failed("man", f"cannot write {error.filename}: {error.strerror}")
        return 0
    page = {name.rpartition(".")[0]: page for name, page in pages.items()}.get(options.page)
    if page is None:
        names = ", ".join(name.rpartition(".")[0] for name in pages)
        return failed("man", f'there is no page "{options.page}"; the pages are {names}')
    sys.stdout.write(page())
    return 0


def _write(pages: dict[str, Page], directory: str) -> Iterator[str]:
    for name, page in pages.items():
        try:
            text = page()
        except SystemExit as missing:
            program = name.rpartition(".")[0]
            print(f"twisted-exec man: no page for {program}: {missing}", file=sys.stderr)
            continue
        section = os.path.join(directory, f"man{name[-1]}")
        os.makedirs(section, exist_ok=True)
        path = os.path.join(section, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        yield path


def _pages() -> dict[str, Page]:
    pages: dict[str, Page] = {
        "twisted-exec.1": lambda: _command_page(registry.make_parser(_usable()), "twisted-exec"),
        "kubectl-console.1": lambda: _command_page(console.make_parser(), "kubectl-console"),
    }
    for maker in sorted(getPlugins(IServiceMaker), key=lambda maker: str(maker.tapname)):
        if maker.tapname.startswith("exec-"):
            pages[f"{maker.tapname}.8"] = partial(_program_page, maker)
    return pages


def _usable() -> list[str]:
    """Return the commands whose libraries are installed; report the others."""
    usable = []
    for command in registry.COMMANDS:
        try:
            registry.load(command)
        except ModuleNotFoundError as missing:
            crashed(f"man: no arguments of {command}", missing)
        else:
            usable.append(command)
    return usable


def _command_page(parser: CheckedParser, name: str) -> str:
    description = parser.description or ""
    lines = [*_head(name, 1, description), ".SH SYNOPSIS", f".B {_escaped(_usage(parser))}"]
    lines += [".SH DESCRIPTION", *_paragraphs(description), ".SH OPTIONS", *_arguments(parser)]
    lines += _commands(parser)
    if parser.epilog:
        lines += [".SH NOTES", *_paragraphs(parser.epilog)]
    return "".join(f"{line}\n" for line in lines)


def _commands(parser: CheckedParser) -> Iterator[str]:
    if parser.commands is None:
        return
    for command in parser.commands.choices.values():
        yield f".SH {_escaped(command.prog.upper())}"
        yield f".B {_escaped(_usage(command))}"
        yield ".PP"
        yield from _paragraphs(command.description or "")
        yield from _arguments(command)
        if command.epilog:
            yield ".PP"
            yield from _paragraphs(command.epilog)
        yield from _commands(command)


def _usage(parser: CheckedParser) -> str:
    usage = " ".join(parser.format_usage().split())
    return usage.removeprefix("usage: ")


def _arguments(parser: CheckedParser) -> Iterator[str]:
    groups: dict[str, list[argparse.Action]] = {"": []}
    for action, title in parser.arguments.items():
        if action.help != argparse.SUPPRESS and action is not parser.commands:
            groups.setdefault(title, []).append(action)
    groups[""].sort(key=lambda action: bool(action.option_strings))
    for title, actions in groups.items():
        if title:
            yield f".SS {_escaped(title)}"
        for action in actions:
            yield ".TP"
            yield f".B {_escaped(_invocation(action))}"
            yield _escaped(_help(parser, action)) if action.help else "\\&"


def _invocation(action: argparse.Action) -> str:
    default = action.dest.upper() if action.option_strings else action.dest
    if action.metavar is None and action.choices is not None:
        default = f"{{{','.join(map(str, action.choices))}}}"
    name = action.metavar or default
    if not action.option_strings:
        return str(name)
    if action.nargs == 0:
        return ", ".join(action.option_strings)
    count = action.nargs if isinstance(action.nargs, int) else 1
    value = " ".join(name if isinstance(name, tuple) else [name] * count)
    value = {"?": f"[{value}]", "*": f"[{value} ...]", "+": f"{value} [{value} ...]"}.get(
        str(action.nargs), value
    )
    return ", ".join(f"{option} {value}" for option in action.option_strings)


def _help(parser: CheckedParser, action: argparse.Action) -> str:
    values = {**vars(action), "prog": parser.prog}
    if action.choices is not None:
        values["choices"] = ", ".join(map(str, action.choices))
    return str(action.help) % values


def _program_page(maker: object) -> str:
    name, options = str(getattr(maker, "tapname", "")), getattr(maker, "options", None)
    assert options is not None
    instance = options()
    text, _, description = instance.getUsage(_ENDLESS_COLUMNS).rpartition("\n\n")
    lines = [*_head(name, 8, description), ".SH SYNOPSIS"]
    synopsis = getattr(instance, "synopsis", "[options]")
    lines += [f".B {_escaped(f'twistd [twistd options] {name} {synopsis}')}"]
    lines += [".SH DESCRIPTION", *_paragraphs(description), ".SH OPTIONS"]
    for line in text.splitlines():
        if option := _OPTION.fullmatch(line):
            lines += [".TP", f".B {_escaped(option[1])}", _escaped(option[2])]
        elif heading := _HEADING.fullmatch(line):
            lines.append(f".SS {_escaped(heading[1])}")
        elif line.strip():
            lines.append(_escaped(line.strip()))
    return "".join(f"{line}\n" for line in lines)


def _head(name: str, section: int, description: str) -> list[str]:
    summary = " ".join(description.split()).partition(". ")[0].rstrip(".")
    title = f'.TH {name.upper()} {section} "" "twisted-exec {__version__}"'
    return [title.replace("-", "\\-"), ".SH NAME", f"{_escaped(name)} \\- {_escaped(summary)}"]


def _paragraphs(text: str) -> Iterable[str]:
    blocks = [" ".join(block.split()) for block in text.split("\n\n")]
    escaped = [_escaped(block) for block in blocks if block]
    return [line for block in escaped for line in (block, ".PP")][:-1]


def _escaped(text: str) -> str:
    """Return a text on one line that roff prints unchanged."""
    plain = _COLOUR.sub("", text)  # of argparse, from Python 3.14 on
    line = " ".join(plain.split()).replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{line}" if line.startswith((".", "'")) else line
