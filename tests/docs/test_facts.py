"""Tests that the owners in the table of a session's facts exist."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from importlib import import_module
from typing import Any

from twisted.trial.unittest import SynchronousTestCase
from zope.interface.interface import InterfaceClass

from tests.docs.pages import DOCS

_OWNER = re.compile(r"``([a-z_.]+)\.([A-Z]\w+)\.(\w+)``")


def _attributes(owner: Any) -> set[str]:
    """Return the names of a class's attributes, and of those that its methods set."""
    if isinstance(owner, InterfaceClass):
        return set(owner.names(all=True))
    names = set(dir(owner))
    for each in owner.__mro__[:-1]:
        names |= inspect.get_annotations(each).keys()
        for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(each)))):
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.ctx, ast.Store)
                and isinstance(node.value, ast.Name)
                and node.value.id == "self"
            ):
                names.add(node.attr)
    return names


class FactsTests(SynchronousTestCase):
    def test_owners(self) -> None:
        """Each owner with its module is an attribute of that class, or of its instances."""
        page = (DOCS / "explanation" / "design.rst").read_text()
        table = page[page.index(".. facts\n") :].split("\n\n", 3)[1:3]
        owners = _OWNER.findall("\n".join(table))
        self.assertGreaterEqual(len(owners), 10)
        for module, class_name, attribute in owners:
            owner = getattr(import_module(f"twisted_exec.{module}"), class_name)
            self.assertIn(attribute, _attributes(owner), class_name)
