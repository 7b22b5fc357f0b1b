"""
Tests for :mod:`twisted_exec.tls.fast.names`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

from twisted.internet.defer import Deferred, DeferredSemaphore, gatherResults
from twisted.trial.unittest import SynchronousTestCase, TestCase

from tests.flows import forks, programs
from tests.tiers import PROGRAMS
from twisted_exec.tls.fast.names import NAMES, PARTS

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "explanation" / "speed.rst"

PACKAGES = {
    "Twisted": ["twisted"],
    "pyOpenSSL": ["OpenSSL"],
    "cryptography": ["cryptography", "OpenSSL"],
}
"""Packages that use the names of a library."""

ELSEWHERE: dict[str, set[str]] = {}

STANDARD_LIBRARY = {
    "_ActionsContainer",
    "_AppendAction",
    "_Decompress",
    "_HelpAction",
    "_SubParsersAction",
    "_action_groups",
    "_actions",
    "_choices_actions",
    "_expand_help",
    "_format_action_invocation",
    "_get_formatter",
    "_group_actions",
}


def is_private(name: str) -> bool:
    """Return whether a name starts with one underscore."""
    return name.startswith("_") and not name.startswith("__") and name.strip("_") != ""


def definitions(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Yield the private functions, classes, variables and attributes of ``self`` that a module defines."""
    for node in nodes:
        match node:
            case (
                ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
                | ast.ClassDef(name=name)
            ):
                pass
            case ast.Name(id=name, ctx=ast.Store()):
                pass
            case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name, ctx=ast.Store()):
                pass
            case _:
                continue
        if is_private(name):
            yield name


def other_modules(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Yield the names under which a module imports what does not come from ``twisted_exec``."""
    for node in nodes:
        match node:
            case ast.Import(names=aliases):
                pass
            case ast.ImportFrom(module=module, names=aliases) if not (module or "").startswith(
                "twisted_exec"
            ):
                pass
            case _:
                continue
        for alias in aliases:
            if not alias.name.startswith("twisted_exec"):
                yield alias.asname or alias.name.partition(".")[0]


SCRIPT = Path(__file__).with_name("renamed.py")
OTHERS = [
    "asyncio",
    "attr",
    "hyperlink",
    "hypothesis.stateful",
    "prometheus_client",
    "typing_extensions",
    "unittest",
    "zope.interface",
]
"""Half of the imports of :mod:`tests.tls.fast.renamed`; they do not import the libraries."""


class MissingTests(TestCase):
    """Programs run without a name of a library, and say so."""

    starts = PROGRAMS

    def setUp(self) -> None:
        self.nursery = forks.Nursery(OTHERS, {"PYTHONPATH": str(ROOT)})
        self.addCleanup(self.nursery.close)

    async def opened_without(self, name: str, library: str) -> tuple[str, list[str]]:
        """Open consoles with a library that has another name; return errors, and the warnings of the fast parts."""
        words = [name, *PACKAGES[library]] if name else []
        program = programs.fork([str(SCRIPT), *words], self.nursery, cwd=str(ROOT))
        self.addCleanup(program.stop)
        code = await program.ended
        return program.output.decode() if code else "", program.stdout.decode().splitlines()

    async def test_each(self) -> None:
        """Without any one of the names consoles open over TLS, and one warning names it and the remedy."""
        without = sorted({(each.name, each.library) for each in NAMES})
        turns = DeferredSemaphore(2)
        results = await gatherResults(
            [
                turns.run(lambda each=each: Deferred.fromCoroutine(self.opened_without(*each)))
                for each in without
            ]
        )
        for (name, library), (errors, warnings) in zip(without, results, strict=True):
            with self.subTest(name):
                self.assertEqual(errors, "")
                self.assertEqual(len(warnings), 1, warnings)
                self.assertRegex(warnings[0], rf"^{library} [0-9.]+\S*: no \S+\.{name}\b")
                self.assertIn(f"install an older {library}, or a newer twisted-exec", warnings[0])

    async def test_none(self) -> None:
        """With all of them nothing is logged."""
        self.assertEqual(await self.opened_without("", ""), ("", []))


class ListTests(SynchronousTestCase):
    """The list is complete, and the page agrees."""

    def test_page(self) -> None:
        """The page has each name with its part, and what runs without each part."""
        section = PAGE.read_text().partition(".. _private-names:")[2].partition("\n.. _")[0]
        text = " ".join(section.split())
        for part, about in PARTS.items():
            self.assertIn(f"* - {part} - {about.otherwise} - {about.cost}", text)
        rows = {
            f"* - ``{each.owner}.{each.name}`` - {', '.join(each.parts)} - {each.reason} - {each.ticket} "
            for each in NAMES
        }
        for row in rows:
            self.assertIn(row, text)
        self.assertEqual(text.count("* - ``"), len(rows))

    def test_complete(self) -> None:
        """No module uses a private name of a library that is neither in the list nor has another reason."""
        trees = {
            path: list(ast.walk(ast.parse(path.read_text())))
            for path in sorted((ROOT / "twisted_exec").rglob("*.py"))
            if path.parent.name != "protos"
        }
        ours = {name for nodes in trees.values() for name in definitions(nodes)}
        listed = {each.name for each in NAMES}
        for path, nodes in trees.items():
            place = str(path.relative_to(ROOT / "twisted_exec"))
            used = {
                node.attr
                for node in nodes
                if isinstance(node, ast.Attribute) and is_private(node.attr)
            }
            used |= {name for name in other_modules(nodes) if is_private(name)}
            foreign = used - ours - STANDARD_LIBRARY - ELSEWHERE.get(place, set())
            if place.startswith("tls/fast/"):
                foreign -= listed
            self.assertEqual(foreign, set(), place)
