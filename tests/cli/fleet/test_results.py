"""Tests for :mod:`twisted_exec.cli.fleet.results`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.cli.fleet.results import Result, report

EQUAL = """\
3 machines, exit code 0: a b d
  | Linux
  | 6.1

1 machine, exit code 0: c
  | Linux
  | 5.10

CODE  MACHINES  NAMES
0     4         a, b, c, d
"""

FAILED = """\
2 machines, exit code 122: a b
  | [kubectl console: machine "a" is at a login prompt]

1 machine, exit code 3: c
  | x

CODE  MACHINES  NAMES
3     1         c
122   2         a, b
"""


def result(label: str, output: bytes = b"", code: int = 0, problem: str = "") -> Result:
    return Result(label, code, output, digest=output, problem=problem)


class ReportTests(SynchronousTestCase):
    """Tests for :func:`report`."""

    def test_equal(self) -> None:
        """Equal outputs are printed once, with all machines that printed them."""
        results = [result(each, b"Linux\n6.1\n") for each in "ab"]
        results += [result("c", b"Linux\n5.10\n"), result("d", b"Linux\n6.1\n")]
        self.assertEqual(report(results).decode(), EQUAL)

    def test_failed(self) -> None:
        """Problems that differ by the machine's name only are equal; other exit codes are not."""
        results = [
            result(each, code=122, problem=f'machine "{each}" is at a login prompt')
            for each in "ab"
        ]
        results.append(result("c", b"x", code=3))
        self.assertEqual(report(results).decode(), FAILED)

    def test_differ_behind_the_limit(self) -> None:
        """Outputs that differ only in the part that is not kept are not equal; its size is named."""
        results = [Result(each, 0, b"x\n", 1000, digest=each.encode()) for each in "ab"]
        text = report(results).decode()
        self.assertEqual(text.count("1 machine, exit code 0: "), 2)
        self.assertIn("  | x\n  | [kubectl console: 1000 more bytes]\n", text)

    def test_many(self) -> None:
        """The names of a group are all listed, on lines that are not too long."""
        text = report([result(f"web-{number:03}") for number in range(500)]).decode()
        self.assertLess(max(map(len, text.splitlines())), 101)
        for number in range(500):
            self.assertIn(f"web-{number:03}", text)
        self.assertTrue(text.endswith("and 494 more\n"))

    def test_hostile(self) -> None:
        """An output cannot change the terminal."""
        self.assertIn(b"  | red\n", report([result("a", b"\x1b[31mred\x1b[2J\n")]))
        self.assertIn("| \ufffd".encode(), report([result("a", b"\xff\n")], for_terminal=True))
