"""What the benchmarks say of themselves and of what they measure."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from twisted.trial.unittest import SynchronousTestCase

from tests.benchmarks.__main__ import BENCHMARKS, arguments, usage
from tests.benchmarks.fairness.attacks import ROWS
from tests.benchmarks.fairness.bench import verdict
from tests.benchmarks.flames import LEAST_PERCENT, cleaned
from tests.benchmarks.interpreter import Build, build
from tests.benchmarks.syscalls import calls
from tests.docs import pages


class CommandTests(SynchronousTestCase):
    """The command line."""

    def test_help(self) -> None:
        """``--help`` has one line for each benchmark, which fits into a terminal."""
        lines = usage().splitlines()[2:]
        self.assertEqual([line.split()[0] for line in lines], [*BENCHMARKS])
        self.assertEqual([line for line in lines if len(line) > 100], [])

    def test_words(self) -> None:
        """The words behind a name belong to it."""
        self.assertEqual(
            arguments(["fairness", "yes-8", "spdy"]), [("fairness", ["yes-8"]), ("spdy", [])]
        )

    def test_names(self) -> None:
        """No benchmark has the name of a row of ``fairness``, which is a word behind that."""
        self.assertEqual(set(BENCHMARKS) & set(ROWS), set())

    def test_unknown(self) -> None:
        """The message for an unknown name lists those that there are."""
        error = self.assertRaises(SystemExit, arguments, ["fast"])
        self.assertIn("no such benchmark: fast; there are one-hop, ", str(error))


class InterpreterTests(SynchronousTestCase):
    """The interpreter's build."""

    def test_builds(self) -> None:
        """Debian's and python.org's builds count as optimized, a plain one and one for tests do not."""
        recorded = "-fprofile-use -fprofile-correction"
        cases = [
            # Debian 12, whose records of the profile are empty; the last -O counts.
            ("-DNDEBUG -g -O3 -Wall -O2", "'--enable-shared'", "", 0, Build("-O2", True, False)),
            ("-O3 -Wall", "'--enable-optimizations'", recorded, 0, Build("-O3", True, False)),
            ("-O3 -Wall", "'--enable-shared'", recorded, 0, Build("-O3", False, False)),
            ("-Og", "'--with-pydebug'", recorded, 1, Build("-Og", False, True)),
        ]
        for flags, options, profile, debug, expected in cases:
            variables = {
                "PY_CFLAGS": flags,
                "CONFIG_ARGS": options,
                "PGO_PROF_USE_FLAG": profile,
                "Py_DEBUG": debug,
            }
            self.assertEqual(build(variables), expected)
            self.assertEqual(expected.optimized, expected.profiled)

    def test_unknown(self) -> None:
        """An interpreter without records is not called optimized."""
        self.assertFalse(build({}).optimized)


class SystemCallTests(SynchronousTestCase):
    """The counts of ``strace -c``."""

    def test_calls(self) -> None:
        """Calls are counted by name, with and without errors; the total is no call."""
        table = """\
% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 60.12    0.000300           3       100         4 read
 39.88    0.000199           1        50           epoll_wait
------ ----------- ----------- --------- --------- ----------------
100.00    0.000499           3       150         4 total
"""
        self.assertEqual(calls(table), {"read": 100, "epoll_wait": 50})
        self.assertEqual(calls(""), {})


class FlameGraphTests(SynchronousTestCase):
    """The graphs of py-spy, as the documentation has them."""

    def frame(self, place: str, percent: float) -> str:
        """A frame as py-spy writes it, without text."""
        title = f"&lt;module&gt; ({place}:7) (9 samples, {percent:.2f}%)"
        return f'<g><title>{title}</title><rect x="0%" fg:w="9"/><text x="1%"></text></g>'

    def test_places(self) -> None:
        """Nothing says where the interpreter and the checkout are, or how py-spy was called."""
        places = {
            "twisted_exec/tls/turns.py": "twisted_exec/tls/turns.py",
            "/home/jane/venv/lib/python3.11/site-packages/h11/_util.py": "h11/_util.py",
            "/usr/lib/python3.11/threading.py": "threading.py",
            "/home/jane/checkout/tool.py": "tool.py",
        }
        for place, expected in places.items():
            graph = f'<text id="title" y="2">py-spy -o /home/jane/x</text>{self.frame(place, 90)}'
            graph = cleaned(graph, "keys & echoes")
            self.assertIn(
                f"<title>&lt;module&gt; ({expected}:7) (9 samples, 90.00%)</title>", graph
            )
            self.assertIn('<text id="title" y="2">keys &amp; echoes</text>', graph)
            self.assertNotIn("jane", graph)

    def test_documented(self) -> None:
        """The graphs of the documentation are small, and name files from their package on."""
        graphs = [*(pages.DOCS / "explanation/flames").rglob("*.svg")]
        self.assertNotEqual(graphs, [])
        for path in graphs:
            text = path.read_text()
            self.assertEqual(ElementTree.fromstring(text).tag, "{http://www.w3.org/2000/svg}svg")
            self.assertLess(len(text), 150_000, path)
            self.assertNotIn("(/", "".join(re.findall("<title>([^<]*)", text)), path)

    def test_text(self) -> None:
        """A frame shows as much of its name as it has room for."""
        for percent, expected in (
            (90, "&lt;module&gt; (a.py:7) (9 samples, 90.00%)"),
            (5, "&lt;modu.."),
            (1, ""),
        ):
            self.assertIn(
                f'<text x="1%">{expected}</text>', cleaned(self.frame("a.py", percent), "")
            )

    def test_narrow(self) -> None:
        """Frames that nobody could see are left out."""
        graph = self.frame("a.py", LEAST_PERCENT) + self.frame("b.py", LEAST_PERCENT - 0.01)
        self.assertEqual(cleaned(graph, "").count("<g>"), 1)


class FairnessTests(SynchronousTestCase):
    """The last lines of ``fairness``."""

    def test_verdict(self) -> None:
        """The line names the rows above the goal, or the largest ratio if there is none."""
        rows = {"nobody": 1.0, "yes-8": 2.04, "opens": 2.46}
        self.assertEqual(verdict("keys", 2.0, rows), "keys above 2.0x: yes-8 2.0x, opens 2.5x")
        self.assertEqual(
            verdict("keys", 3.0, rows), "keys above 3.0x: none of 3 rows, at most 2.5x"
        )
