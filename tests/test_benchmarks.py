"""What the benchmarks say of themselves and of what they measure."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tests.benchmarks.__main__ import BENCHMARKS, arguments, usage
from tests.benchmarks.interpreter import Build, build
from tests.benchmarks.syscalls import calls


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
