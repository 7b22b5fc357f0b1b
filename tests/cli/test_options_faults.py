"""
A fault of other systems' command lines (10), as the promise that ours keep at the user's end.
"""

from __future__ import annotations

import argparse
import ast
from collections.abc import Iterator
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec import cli
from twisted_exec.cli.commands import registry
from twisted_exec.cli.console.options import make_parser
from twisted_exec.cli.parser import CheckedParser

PACKAGE = Path(cli.__file__).parent


def destinations(parser: CheckedParser) -> Iterator[tuple[str, str]]:
    """Yield the program and destination of every option."""
    for action in parser.arguments:
        if action is parser.commands:
            for command in action.choices.values():
                yield from destinations(command)
        elif action.default != argparse.SUPPRESS:
            yield parser.prog, action.dest


def read() -> set[str]:
    """Return the options that any code of the package reads, by its syntax."""
    return {
        node.attr
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Load)
        and ast.unparse(node.value).endswith("options")
    }


class OptionTests(SynchronousTestCase):
    """``kubectl console``, and each command of ``twisted-exec``."""

    def test_10_options(self) -> None:
        """Every option of a command is read somewhere."""
        options = [
            option
            for parser in (make_parser(), registry.make_parser())
            for option in destinations(parser)
        ]
        self.assertGreater(len(options), 50)
        used = read()
        self.assertEqual([option for option in options if option[1] not in used], [])
