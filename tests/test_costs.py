"""What is said of the CPU seconds of tests."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase, TestCase

from . import costs, cpu_seconds
from .flows.programs import script, start

TESTS = Counter(
    {
        "tests.wire.test_channel.A.test_one": 1.5,
        "tests.wire.test_http.A.test_two": 0.5,
        "tests.flows.sessions.test_sessions.A.test_three": 9.0,
        "tests.test_ports.A.test_four": 1.0,
    }
)


class ReportTests(SynchronousTestCase):
    """The tables, and a run that cost too much."""

    def test_measured(self) -> None:
        """Each process that has run tests has left a file."""
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        temporary = Path(directory.name)
        for name, line in (("0", "tests.a.A.test_1 1.25\n"), ("1", "tests.a.A.test_2 2.5\n")):
            (temporary / name).mkdir()
            (temporary / name / "costs").write_text(line)
        (temporary / "costs").write_text("tests.b.A.test_3 0.125\n")
        self.assertEqual(
            costs.measured(temporary),
            {"tests.a.A.test_1": 1.25, "tests.a.A.test_2": 2.5, "tests.b.A.test_3": 0.125},
        )

    def test_report(self) -> None:
        """Packages and tests come dearest first, with the budget of each package."""
        lines = costs.report(TESTS, Counter({"wire": 3, "flows": 8})).splitlines()
        self.assertEqual(
            [line.split() for line in lines[1:4]],
            [["9.0", "8", "flows"], ["2.0", "3", "wire"], ["1.0", "-", "tests"]],
        )
        self.assertEqual(lines[4].split(), ["12.0", "11", "all", "of", "4", "tests"])
        self.assertEqual(
            lines[6].split(), ["9.0", "tests.flows.sessions.test_sessions.A.test_three"]
        )

    def test_excess(self) -> None:
        """Only a run over twice the sum fails, whatever a package costs; the message says what to do."""
        self.assertEqual(costs.excess(TESTS, Counter({"wire": 1, "flows": 5})), "")
        problem = costs.excess(TESTS, Counter({"wire": 1, "flows": 4}))
        self.assertIn("took 12 CPU seconds, more than 2 times the 5 of tests/budgets.txt", problem)
        self.assertIn("python -m tests.costs --write", problem)

    def test_every_package(self) -> None:
        """Each package of tests has a budget, and no other has."""
        packages = {each.parent.name for each in Path(__file__).parent.glob("*/__init__.py")}
        tested = {
            name for name in packages if list((Path(__file__).parent / name).rglob("test_*.py"))
        }
        self.assertEqual(set(costs.budgets(costs.BUDGETS.read_text())), tested | {"tests"})


class ProgramTests(TestCase):
    """Programs that a test starts."""

    async def test_forked(self) -> None:
        """The CPU time of a forked program counts for the test in which it ends, as a started one's does."""
        for fork in (True, False):
            before = cpu_seconds()
            program = start([script("kubectl-console"), "--help"], fork=fork)
            self.addCleanup(program.stop)
            self.assertEqual(await program.ended, 0, program.output)
            self.assertGreater(cpu_seconds() - before, 0.005)
