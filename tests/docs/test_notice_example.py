"""
The example of a notice in ``docs/howto/change-what-users-read.rst``, as a reader enters it.
"""

from __future__ import annotations

import re
from textwrap import dedent, indent
from types import ModuleType
from unittest import TestResult, defaultTestLoader

from twisted.trial.unittest import SynchronousTestCase

from tests.docs.pages import page
from twisted_exec.console import shared_console, viewers

_BLOCK = re.compile(r"^\.\. code-block:: python\n\n((?:   .*\n|\n)+)", re.MULTILINE)


class NoticeExampleTests(SynchronousTestCase):
    """The section "Add a notice"."""

    def test_example(self) -> None:
        """With the method and its call in ``Viewers``, the test of the page passes."""
        section = page("howto/change-what-users-read").partition("\nAdd a notice\n")[2]
        method, call, test = (dedent(each) for each in _BLOCK.findall(section)[:3])
        with open(viewers.__file__) as file:
            source = file.read()
        called = indent(call.strip("\n"), " " * 12)
        present = re.sub(r".*_tell_company.*\n", "", called)
        self.assertEqual(source.count(present), 1, present)
        join = "    def join("
        changed = source.replace(present, called).replace(join, indent(method, " " * 4) + join)
        module = ModuleType(viewers.__name__)
        exec(compile(changed, viewers.__file__, "exec"), module.__dict__)
        self.patch(shared_console, "Viewers", module.Viewers)
        written = ModuleType("tests.console.test_company")
        exec(test, written.__dict__)
        result = TestResult()
        defaultTestLoader.loadTestsFromTestCase(written.CompanyTests).run(result)
        self.assertEqual((result.testsRun, result.errors, result.failures), (3, [], []))
