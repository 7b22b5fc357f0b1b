"""
``docs/examples/test_with_pytest.py``, as its readers run it.

It has a process of its own: pytest-twisted keeps the reactor running between tests, and trial's
test cases start it themselves.
"""

from __future__ import annotations

import sys

from tests.flows.programs import start
from tests.tiers import PROGRAMS

from .test_examples import EXAMPLES, ExamplesCase


class WithPytestTests(ExamplesCase):
    """``test_with_pytest.py``"""

    starts = PROGRAMS

    async def test_fixture(self) -> None:
        """A pytest-twisted fixture starts an API server for each test and stops it."""
        program = start(
            [
                sys.executable,
                *("-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist"),
                *("-c", "/dev/null", "--rootdir", self.directory),
                str(EXAMPLES / "test_with_pytest.py"),
            ],
            cwd=self.directory,
            env={"PYTHONDONTWRITEBYTECODE": "1"},
        )
        self.addCleanup(program.stop)
        self.assertEqual(await program.ended, 0, program.output)
        self.assertIn(b"1 passed", program.output)
