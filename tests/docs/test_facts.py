"""Tests that the owners in the table of a session's facts exist."""

from __future__ import annotations

import inspect
import re
from importlib import import_module

from twisted.trial.unittest import SynchronousTestCase

from tests.docs.pages import DOCS

_OWNER = re.compile(r"``([a-z_.]+)\.([A-Z]\w+)\.(\w+)``")


class FactsTests(SynchronousTestCase):
    def test_owners(self) -> None:
        """Each owner with its module is an attribute of that class, or of its instances."""
        page = (DOCS / "explanation" / "design.rst").read_text()
        table = page[page.index(".. facts\n") :].split("\n\n", 3)[1:3]
        owners = _OWNER.findall("\n".join(table))
        self.assertGreaterEqual(len(owners), 10)
        for module, class_name, attribute in owners:
            owner = getattr(import_module(f"twisted_exec.{module}"), class_name)
            source = "".join(inspect.getsource(each) for each in owner.__mro__[:-1])
            is_known = hasattr(owner, attribute) or re.search(
                rf"(self\.|^ +){attribute}\b", source, re.M
            )
            self.assertTrue(is_known, (class_name, attribute))
