"""
Tests for the names that applications can rely on: ``docs/reference/names.rst``.

``tests/stable_names.txt`` has the names that the last release promised.  A release adds its new ones; a name leaves
the list one release after it has become deprecated.
"""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from types import ModuleType

from twisted.trial.unittest import SynchronousTestCase

ROOT = Path(__file__).parents[1]
PROMISED = Path(__file__).with_name("stable_names.txt")
PAGE = ROOT / "docs" / "reference" / "names.rst"
MODULES = ("clients", "interfaces", "machines", "services", "stores")
_ROW = re.compile(
    r"^   \* - ``twisted_exec\.(\w+)``:(?:.|\n)*?\n     - ((?:.+\n)(?:       .+\n)*)", re.M
)


def promised() -> list[tuple[str, str]]:
    """Return the module and the name of each line."""
    lines = [each for each in PROMISED.read_text().splitlines() if not each.startswith("#")]
    return [(module, name) for module, _, name in (each.partition(".") for each in lines)]


def names_in(text: str) -> set[str]:
    """Return the names in a part of the page."""
    return set(re.findall(r"``(\w+)``", text))


def module_of(name: str) -> ModuleType:
    return import_module(f"twisted_exec.{name}")


class StableNamesTests(SynchronousTestCase):
    """Promises are kept, and the page makes the same ones."""

    def setUp(self) -> None:
        self.page = PAGE.read_text()
        self.stable = {module: names_in(names) for module, names in _ROW.findall(self.page)}

    def test_kept(self) -> None:
        """Each name that the last release promised can be imported, and the page still has it."""
        self.assertGreater(len(promised()), 100)
        for module, name in promised():
            self.assertTrue(hasattr(module_of(module), name), f"{module}.{name}")
            self.assertIn(name, self.stable[module])

    def test_page(self) -> None:
        """The page has exactly the names of each module; those of the interfaces are in two lists."""
        self.assertEqual(set(self.stable), set(MODULES))
        provisional = names_in(
            self.page.partition("may change them")[2].partition("The same holds")[0]
        )
        self.assertEqual(self.stable["interfaces"] & provisional, set())
        for module, names in self.stable.items():
            expected = names | provisional if module == "interfaces" else names
            self.assertEqual(expected, set(module_of(module).__all__), module)

    def test_annotated(self) -> None:
        """Each name has documentation, unless it is a plain value."""
        for module, name in promised():
            value = getattr(module_of(module), name)
            if isinstance(value, type) or callable(value):
                self.assertTrue(value.__doc__, f"{module}.{name}")
