"""
Tests for ``docs/reference/annotations.rst``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

import twisted_exec
from twisted_exec.api.dialects import DIALECTS, IRONCORE, Dialect
from twisted_exec.poollet.machines.config import MachineConfig
from twisted_exec.runtimes.machinebroker.objects import BrokerPlace

from . import pages

PACKAGE = Path(twisted_exec.__file__).parent

# A domain with a dot, or Kosmos's, which has none; the name may be missing in a prefix.
_KEY = re.compile(r"(?:(?:[a-z0-9][a-z0-9-]*\.)+[a-z][a-z0-9-]*|kosmos-io)/[A-Za-z0-9._-]*")
_API_VERSION = re.compile(r".*/(v\d+((alpha|beta)\d+)?)?")
_CANDIDATE = re.compile(rf"[\"']{_KEY.pattern}|{{PREFIX}}")
_LITERAL = re.compile(r"``([^`]+)``")


def keys(source: str, prefixes: dict[str, str]) -> set[str]:
    """
    Return the texts of a module that have the form of a key.

    :param prefixes: constants with which a format string may begin, by name.
    """
    tree = ast.parse(source)
    docstrings = {id(each.value) for each in ast.walk(tree) if isinstance(each, ast.Expr)}
    texts = set()
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)) if id(node) not in docstrings:
                texts.add(text)
            case ast.JoinedStr(
                values=[
                    ast.FormattedValue(value=ast.Name(id=name)),
                    ast.Constant(value=str(text)),
                ]
            ) if name in prefixes:
                texts.add(prefixes[name] + text)
    return {each for each in texts if _KEY.fullmatch(each) and not _API_VERSION.fullmatch(each)}


@cache
def keys_of_code() -> frozenset[str]:
    """Return the keys in all modules; those of dialects are put together at run time."""
    from twisted_exec.nodeserver.ownership import PREFIX

    found: set[str] = set()
    for path in PACKAGE.rglob("*.py"):
        prefixes = {"PREFIX": PREFIX} if "nodeserver" in path.parts else {}
        source = path.read_text(encoding="utf-8")
        if _CANDIDATE.search(source):  # parsing all modules takes seconds
            found |= keys(source, prefixes)
    return frozenset(found)


def keys_of_dialect(dialect: Dialect) -> Iterator[str]:
    """Yield the keys that a poollet and a broker use with a dialect."""
    config: Any = SimpleNamespace(dialect=dialect)
    places = [
        (Dialect, dialect),
        (MachineConfig, config),
        (BrokerPlace, BrokerPlace(dialect, "default")),
    ]
    for kind, instance in places:
        for name, member in vars(kind).items():
            if isinstance(member, property) and name.endswith(("_label", "_annotation")):
                assert member.fget is not None
                yield member.fget(instance)


class AnnotationsPageTests(SynchronousTestCase):
    """The page names every key, and no others."""

    def setUp(self) -> None:
        self.page = pages.page("reference/annotations")
        self.named = {
            match[0]
            for literal in _LITERAL.findall(self.page)
            if (match := _KEY.match(literal)) and literal[match.end() :][:1] in ("", ":", "=")
        }

    def test_pattern(self) -> None:
        """Constants and format strings are found; docstrings and API versions are not."""
        source = (
            '"a.example/doc"\nA = "a.example/x"\nB = f"{P}y"\nC = "a.example/v1beta1"\nD = "a/b"\n'
        )
        self.assertEqual(keys(source, {"P": "p.example/"}), {"a.example/x", "p.example/y"})

    def test_code(self) -> None:
        """Each key in the code is on the page."""
        self.assertEqual(sorted(keys_of_code() - self.named), [])

    def test_dialects(self) -> None:
        """Each key of ironcore's dialect is on the page, and the prefix and nouns of the others."""
        self.assertEqual(sorted(set(keys_of_dialect(IRONCORE)) - self.named), [])
        for dialect in DIALECTS:
            for text in (
                dialect.runtime_prefix,
                dialect.downward_prefix,
                dialect.runtime_generation_annotation.partition("/")[2],
            ):
                self.assertIn(text, self.page)

    def test_page(self) -> None:
        """Each key in a first column is in the code."""
        rows = pages.first_column(self.page)
        listed = {each for each in rows if _KEY.fullmatch(each) and each in self.named}
        # The rest of these is the user's: the name of a role, or of an option.
        listed -= {each for each in listed if each.endswith(("/ROLE", "/NAME"))}
        known = keys_of_code().union(*map(keys_of_dialect, DIALECTS))
        known |= {"machinebroker.ironcore.dev/lease"}  # put together where it is used
        self.assertEqual(sorted(listed - known), [])
