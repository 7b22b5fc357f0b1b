"""
Tests for ``twisted-exec logs`` against a real server.
"""

from __future__ import annotations

import io
import re
import sys
import time
from contextlib import redirect_stderr
from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from tests.cli.typed import typed
from tests.kube.console_cases import ConsolesCase
from tests.kube.test_downloads import Logs
from twisted_exec.api import patterns
from twisted_exec.api.logs import LogOptions
from twisted_exec.api.status import NotFound, ServiceUnavailable
from twisted_exec.api.times import NANOSECONDS, nanoseconds
from twisted_exec.cli.commands import logs as logs_command
from twisted_exec.cli.commands.logs import log_options
from twisted_exec.cli.commands.registry import make_parser
from twisted_exec.cli.failures import InputError

NOON = "2026-11-20T12:00:00Z"


class LogsTests(ConsolesCase):
    """``twisted-exec logs vm``."""

    def setUp(self) -> Any:
        serving = super().setUp()
        self.logs = self.site.resource = Logs()
        self.logs.journal.append(b"boot\r\n\x1b[31mKernel panic\x1b[m\r\n=> ")
        return serving

    async def typed(self, *words: str) -> tuple[int, str, str]:
        """Exit code, output and errors."""
        return await typed(self, "logs", "--kubeconfig", self.kubeconfig(), "vm", *words)

    async def test_log(self) -> None:
        """The log is printed as it is; options select and format it."""
        whole = "boot\r\n\x1b[31mKernel panic\x1b[m\r\n=> "
        self.assertEqual(await self.typed(), (0, whole, ""))
        self.assertEqual(await self.typed("--tail", "1"), (0, "=> ", ""))
        self.assertEqual(await self.typed("--plain"), (0, "boot\nKernel panic\n=> ", ""))
        self.assertEqual(await self.typed("--since", "30d"), (0, whole, ""))

    async def test_other_times(self) -> None:
        """For a range of time without lines the user reads which times there are."""
        day = time.strftime("%Y-%m-%dT", time.gmtime())
        for words in (("--between", "2d", "1d12h"), ("--since", "2999-01-01")):
            code, out, told = await self.typed(*words)
            self.assertEqual((code, out), (0, ""))
            self.assertIn("logs: nothing was printed in this time; there are lines from ", told)
            self.assertEqual(told.count(day), 2, told)
        self.assertEqual((await self.typed("--since", "2999-01-01", "--grep", "x"))[0], 1)

    async def test_future(self) -> None:
        """A time that is still to come is named: with --follow, nothing else would be said."""
        future, later = "2999-01-01T00:00:00Z", "2999-01-02T00:00:00Z"
        for words in (("--since", future), ("--between", future, later)):
            code, _, told = await self.typed(*words)
            line = f"twisted-exec logs: the time of {words[0]} is in the future: {future}\n"
            self.assertEqual((code, told.startswith(line)), (0, True), told)
        self.assertNotIn("future", (await self.typed("--since", "1h"))[2])
        self.assertEqual(await self.typed("--since", "2999-01-01", "--tail", "0"), (0, "", ""))

    async def test_grep(self) -> None:
        """Exit code 1 says that no line matched, as with grep."""
        self.assertEqual(await self.typed("--plain", "--grep", "pan.c"), (0, "Kernel panic\n", ""))
        self.assertEqual(await self.typed("--grep", "oops"), (1, "", ""))

    async def test_last_matches(self) -> None:
        """--tail counts the lines that match; those that follow come behind them."""
        self.logs.journal.append(b"panic 2\r\nok\r\npanic 3\r\nok\r\nok\r\npa")
        for words, out in (
            (("--tail", "2"), "=> panic 2\r\npanic 3\r\n"),
            (("--tail", "9", "--plain"), "Kernel panic\n=> panic 2\npanic 3\n"),
            (("--tail", "0"), ""),
        ):
            self.assertEqual(
                await self.typed("--grep", "panic", *words), (0 if out else 1, out, "")
            )
        self.logs.journal.append(b"nic 4\r\n")
        self.assertEqual(await self.typed("--tail", "1", "--grep", "panic"), (0, "panic 4\r\n", ""))

    async def test_last_matches_followed(self) -> None:
        """Behind the last matches --follow prints each new one, also of a line that had begun; no byte is searched twice."""
        self.logs.journal.append(b"panic 2\r\npa")
        words = ("--tail", "1", "--grep", "panic", "--follow", "--timestamps")
        reading = Deferred.fromCoroutine(self.typed(*words))
        printed: Any = sys.stdout
        while not printed.buffer.getvalue() or len(self.logs.queries) < 2:
            await self._settle()
        while not self.logs.sessions.live():
            await self._settle()
        self.logs.journal.append(b"nic 3\r\nok\r\npanic 4\r\n")
        self.logs.journal.close()
        code, out, _ = await reading
        self.assertEqual(
            re.sub("(?m)^[0-9].{29} ", "", out), "=> panic 2\r\npanic 3\r\npanic 4\r\n"
        )
        self.assertEqual(code, 0)
        self.assertEqual([b"tailLines" in each for each in self.logs.queries], [False, False])

    async def test_bad_pattern(self) -> None:
        """A pattern that is not valid is refused with its position."""
        code, _, told = await self.typed("--grep", "a(b")
        self.assertEqual(
            (code, told), (2, "twisted-exec logs: --grep: character 2: missing ): a(b\n")
        )
        self.assertEqual(self.logs.queries, [])

    async def test_without_re2(self) -> None:
        """Without google-re2 the message has the remedy; literal text works."""
        self.patch(patterns, "SUPPORTED", False)
        code, _, told = await self.typed("--grep", "a.b")
        self.assertEqual(code, 2)
        self.assertIn("pip install google-re2", told)
        self.assertEqual(await self.typed("--tail", "1", "--grep", "=>"), (0, "=> \n", ""))

    async def test_deleted(self) -> None:
        """--deleted reads the console of the machine of that name that was deleted last."""
        code, _, told = await self.typed("--deleted")
        self.assertEqual(code, 1)
        self.assertIn('there is no console of a deleted machine "vm"', told)
        for name, day in (("vm-2", "02"), ("vm-3", "03"), ("vm-1", "01")):
            time = f"2026-11-{day}T00:00:00Z"
            self.logs.deleted.append(
                {"metadata": {"name": name}, "spec": {"machine": "vm", "deletionTime": time}}
            )
        self.assertEqual(await self.typed("--deleted", "--tail", "1"), (0, "=> ", ""))
        self.assertEqual(self.logs.read_deleted, ["vm-3"])
        code, _, told = await self.typed("--deleted", "--follow")
        self.assertEqual(
            (code, told),
            (1, "twisted-exec logs: a deleted machine prints nothing more: omit --follow\n"),
        )

    async def test_not_found(self) -> None:
        """The refusal names the option for deleted machines."""
        self.logs.problem = NotFound("machines", "vm", "compute.ironcore.dev")
        code, _, told = await self.typed()
        self.assertEqual(code, 1)
        self.assertTrue(told.endswith("; if the machine was deleted, add --deleted\n"), told)
        self.assertEqual((await self.typed("--grep", "x"))[0], 2, "as with grep")

    async def test_pool_not_found(self) -> None:
        """The refusal about a machine's pool says nothing about deleted machines."""
        self.logs.problem = NotFound("machinepools", "gone", "compute.ironcore.dev")
        code, _, told = await self.typed()
        self.assertEqual((code, '"gone" not found' in told), (1, True), told)
        self.assertNotIn("--deleted", told)

    async def test_no_previous_boot(self) -> None:
        """The refusal of the server is one line."""
        self.assertEqual(
            await self.typed("--previous"),
            (
                1,
                "",
                'twisted-exec logs: the log of machine "vm" has no previous boot; it has no boots yet\n',
            ),
        )

    async def test_outage(self) -> None:
        """A long outage has a line on stderr when it is noticed, and when the log is open again; the log is whole."""
        self.patch(logs_command, "_LOUD_SECONDS", 0)
        journal = self.logs.journal
        reading = Deferred.fromCoroutine(self.typed("--follow"))
        printed: Any = sys.stdout
        while not printed.buffer.getvalue():
            await self._settle()
        self.logs.problem = ServiceUnavailable("starting")
        self.logs.cut()
        journal.append(b"more\n")
        while len(self.logs.queries) < 3:
            await self._settle()
        self.logs.problem = None
        while not self.logs.sessions.live():
            await self._settle()
        journal.close()
        code, text, told = await reading
        self.assertEqual((code, text.partition("=> ")[2]), (0, "more\n"))
        lines = ["the connection was lost; trying again", "open again"]
        self.assertEqual(told.splitlines(), [f"twisted-exec logs: {line}" for line in lines])

    async def test_cut_off(self) -> None:
        """The message about a log that is cut off has the option of this program that continues it."""
        reading = Deferred.fromCoroutine(self.typed("--follow"))
        printed: Any = sys.stdout
        while not printed.buffer.getvalue():
            await self._settle()
        self.logs.problem = NotFound("machines", "vm", "compute.ironcore.dev")
        self.logs.cut()
        code, _, told = await reading
        self.assertEqual(code, 1)
        option = re.search(r"; continue with (--since=\S+?)[;.\n]", told)
        assert option is not None, told
        options = make_parser().parse_args(["logs", "vm", option[1]])
        self.assertGreater(options.since, 0)


class OptionsTests(SynchronousTestCase):
    """Options of the command line."""

    def options(self, *words: str) -> LogOptions:
        return log_options(make_parser().parse_args(["logs", "vm", *words]))

    def test_boots(self) -> None:
        """``--previous`` is ``--boot -1``."""
        self.assertEqual(self.options("--previous"), self.options("--boot", "-1"))
        self.assertEqual(self.options("--boot", "7").boot, 7)

    def test_plain(self) -> None:
        """A terminal gets no escape sequences of the machine, unless the user wants all bytes."""
        for words, in_file, on_terminal in (
            ((), False, True),
            (("--plain",), True, True),
            (("--no-plain",), False, False),
        ):
            options = make_parser().parse_args(["logs", "vm", *words])
            self.assertEqual(log_options(options).plain, in_file)
            self.assertEqual(log_options(options, is_terminal=True).plain, on_terminal)

    def test_times(self) -> None:
        """Times are RFC 3339, or durations before now, also of days."""
        self.assertEqual(self.options("--since", NOON).since_nanoseconds, nanoseconds(NOON))
        for text, seconds in (("30d", 30 * 86400), ("1d12h", 129600), ("90s", 90), ("5", 5)):
            before = time.time()
            since = (self.options("--since", text).since_nanoseconds or 0) / NANOSECONDS
            self.assertLessEqual(before - 1, since + seconds, text)
            self.assertLessEqual(since + seconds, time.time() + 1, text)
        between = self.options("--between", NOON, "2026-11-20T13:00:00+01:00")
        self.assertEqual(between.since_nanoseconds, between.until_nanoseconds)

    def test_refused(self) -> None:
        """Options that make no sense are refused before a request."""
        for words in (
            ("--boot", "x"),
            ("--boot", "1", "--previous"),
            ("--tail", "-1"),
            ("--since", "yesterday"),
            ("--since", "2026-13-20"),
            ("--since", "d"),
            ("--since", "1h", "--between", "2h", "1h"),
        ):
            with self.assertRaises(SystemExit) as exit_, redirect_stderr(io.StringIO()):
                self.options(*words)
            self.assertEqual(exit_.exception.code, 1, words)
        for words in (("--between", "1h", "2h"), ("--between", "2h", "1h", "-f")):
            self.assertRaises(InputError, self.options, *words)
