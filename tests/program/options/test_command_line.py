"""
Tests for :mod:`twisted_exec.program.options.command_line`.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import warnings
from contextlib import redirect_stdout

from twisted.logger import LogBeginner, Logger, LogPublisher, textFileLogObserver
from twisted.trial.unittest import SynchronousTestCase

from tests.docs.test_options import TAPS
from tests.tiers import PROGRAMS
from twisted_exec import build
from twisted_exec.program.options.command_line import ProgramOptions, limit_log, read_level, refusal
from twisted_exec.program.options.declaration import Required
from twisted_exec.program.options.values import seconds


class ProgramOptionsTests(SynchronousTestCase):
    """Tests for :class:`ProgramOptions`."""

    def test_one_line(self) -> None:
        """A usage error is one line that refers to the help, with exit code 1."""

        class XOptions(ProgramOptions):
            program = "exec-x"
            optParameters = [["port", "p", "6443", "Where to listen."]]

        for arguments in (["--prot", "1"], ["surplus"], ["--port"]):
            with self.assertRaises(SystemExit) as caught:
                XOptions().parseOptions(arguments)
            line = str(caught.exception.code)
            self.assertTrue(line.startswith("exec-x: "), line)
            self.assertIn("see twistd exec-x --help", line)
            self.assertNotIn("\n", line)

    def test_paths(self) -> None:
        """Relative paths are made absolute when options are read; an omitted path stays None."""

        class XOptions(ProgramOptions):
            program = "exec-x"
            paths = ("state", "other")
            optParameters = [["state", None, "here", "A path."], ["other", None, None, "Another."]]

        options = XOptions()
        options.parseOptions([])
        self.assertEqual((options["state"], options["other"]), (os.path.abspath("here"), None))

    def test_names_the_option(self) -> None:
        """The message for an invalid value names its option; that for a surplus word quotes it."""

        class XOptions(ProgramOptions):
            program = "exec-x"
            optParameters = [
                ["port", "p", 1, "Where to listen.", int],
                ["drain", None, 5.0, "How long.", seconds],
            ]

        for arguments, told in (
            (["--port", "x"], "--port: invalid literal for int() with base 10: 'x'"),
            (["--drain", "nan"], "--drain: 'nan' is no number of seconds from 0 to 3600"),
            (["--drain=-1"], "--drain: '-1' is no number of seconds from 0 to 3600"),
            (["surplus"], "'surplus' belongs to no option"),
        ):
            with self.assertRaises(SystemExit) as caught:
                XOptions().parseOptions(arguments)
            line = f"exec-x: {told}; see twistd exec-x --help"
            self.assertEqual(caught.exception.code, line)
        options = XOptions()
        options.parseOptions(["--port=7", "--drain=0.5"])
        self.assertEqual((options["port"], options["drain"]), (7, 0.5))

    def test_listening(self) -> None:
        """A port or path leads to the option that gave it, in each program."""
        for program, chosen, place, names in (
            ("exec-standalone", {"port": 7443}, "7443", {"port"}),
            ("exec-standalone", {}, "6443", {"port"}),
            ("exec-apiserver", {"listen": "tcp:80:interface=127.0.0.1"}, "80", {"listen"}),
            ("exec-apiserver", {"listen": "unix:/run/x"}, "/run/x", {"listen"}),
            ("exec-apiserver", {}, "443", set()),
            ("exec-poollet", {}, "20250", {"listen"}),
            ("exec-nodeserver", {}, "10250", {"listen"}),
            ("exec-nodeserver", {}, "10248", {"health-listen"}),
            ("exec-nodeserver", {"listen": "tcp:10248"}, "10248", {"listen", "health-listen"}),
            ("exec-spacemanager", {}, "10258", {"health-listen"}),
            ("exec-racks", {}, "10259", {"health-listen"}),
            ("exec-runtime", {"iri-listen": "dns:///h:1"}, "1", {"iri-listen"}),
            ("exec-broker", {"streaming-listen": "unix:/x/s"}, "/x/s", {"streaming-listen"}),
        ):
            options = TAPS[program]()
            options.update(chosen)
            self.assertEqual(set(options.listening_at(place)), names, program)

    def test_refusal(self) -> None:
        """Python prints it and exits with 1."""
        self.assertEqual(
            refusal("exec-x", "no --kubeconfig\nis given").code,
            "exec-x: no --kubeconfig is given; see twistd exec-x --help",
        )

    def test_usage(self) -> None:
        """The help shows defaults that are not empty."""

        class XOptions(ProgramOptions):
            program = "exec-x"
            optParameters = [
                ["file", None, "", "A file that has a description which goes on over two lines."],
                ["port", None, 7, "A port.", int],
            ]

        usage = XOptions().getUsage(80)
        self.assertIn("[default: 7]", usage)
        self.assertNotRegex(usage, r"\[default:\s*\]")

    def test_description_of_two_lines(self) -> None:
        """A description from a docstring of several lines reads as one text, in each layout."""

        class XOptions(ProgramOptions):
            program = "exec-x"

            def opt_site(self, text: str) -> None:
                """
                A site whose pages may use this server, such as https://HOST:PORT; may be
                repeated.
                """

        class LongOptions(XOptions):
            optParameters = [["name-that-leaves-no-space-beside-it", None, None, "A name."]]

        for options in (XOptions(), LongOptions()):
            usage = options.getUsage(80)
            self.assertNotRegex(usage, r"\w  +(may|be|repeated)\b")
            self.assertRegex(usage, r"https://HOST:PORT;\s+may\s+be\s+repeated\.\n")
            self.assertLessEqual(max(map(len, usage.splitlines())), 80)

    def test_long_names(self) -> None:
        """Beneath a long option name the help starts on the next line; words are not broken."""

        class XOptions(ProgramOptions):
            program = "exec-x"
            longdesc = "What it is."
            optParameters = [
                ["cluster-signing-kube-apiserver-certificate", "c", "a", "Words and more " * 6],
                ["storage", None, None, f"One of {'x' * 75}."],
            ]

        lines = XOptions().getUsage(80).splitlines()
        self.assertEqual(
            lines[1:4],
            [
                "  -c, --cluster-signing-kube-apiserver-certificate=",
                " " * 10 + "Words and more Words and more Words and more Words and more Words and",
                " " * 10 + "more Words and more [default: a]",
            ],
        )
        self.assertIn(f"{' ' * 10}{'x' * 75}.", lines)
        self.assertEqual(lines[-1], "What it is.")


class DaemonOptions(ProgramOptions):
    """Options of each sort."""

    program = "exec-x"
    longdesc = "What it is."
    required = {
        "pool": Required("name of the pool"),
        "cert": Required(unless=["cert-dir"]),
    }
    group = "Pool"
    groups = {"Serving": ["port", "cert", "cert-dir"]}
    optParameters = [
        ["pool", None, None, "Name of the pool."],
        ["port", "p", 1, "Port.", int],
        ["cert", None, None, "Certificate."],
        ["cert-dir", None, None, "Directory."],
        ["drain", None, 5.0, "How long.", seconds],
    ]
    optFlags = [["fast", None, "Be fast."], ["no-fast", None, "Be slow."]]

    def __init__(self) -> None:
        super().__init__()
        self["address"] = []

    def opt_address(self, text: str) -> None:
        """An address; may be repeated."""
        self["address"].append(text)

    def postOptions(self) -> None:
        self.check_required()


class RequiredTests(SynchronousTestCase):
    """Tests for required options."""

    def missing(self, *arguments: str) -> str:
        with self.assertRaises(SystemExit) as caught:
            DaemonOptions().parseOptions(arguments)
        return str(caught.exception.code).partition("; see")[0]

    def test_together(self) -> None:
        """All missing options are in one message."""
        self.assertEqual(
            self.missing(),
            "exec-x: required options are missing: --pool (name of the pool), --cert",
        )
        self.assertEqual(self.missing("--cert=c"), "exec-x: --pool is missing: name of the pool")
        self.assertEqual(self.missing("--pool=a"), "exec-x: --cert is missing")
        DaemonOptions().parseOptions(["--pool=a", "--cert-dir=d"])

    def test_help(self) -> None:
        """The help marks them, and sorts all options under headings."""
        text = DaemonOptions().getUsage(100)
        self.assertRegex(text, r"--pool= +Name of the pool \(required\)\.")
        self.assertRegex(text, r"--cert= +Certificate \(required unless --cert-dir\)\.")
        headings = [line for line in text.splitlines() if line.endswith(":") and line[0] != " "]
        self.assertEqual(headings, ["Serving:", "Pool:", "Program:"])
        serving, _, rest = text.partition("\nPool:\n")
        self.assertIn("-p, --port=", serving)
        self.assertIn("--address=", rest)

    def test_programs(self) -> None:
        """Each program has all its options under headings, each option once."""
        for name, make in TAPS.items():
            options = make()
            text = options.getUsage(80)
            for option in options.longOpt:
                mark = f"--{option}"
                lines = [line for line in text.splitlines() if mark in line.split()[:2]]
                self.assertEqual(len(lines), 1, f"{name} {option}")
            self.assertGreater(text.count(":\n"), 3, name)

    def test_apiserver(self) -> None:
        """A program that is started without options names what it needs at once."""
        with self.assertRaises(SystemExit) as caught:
            TAPS["exec-poollet"]().parseOptions([])
        for name in ("machine-pool-name", "machine-runtime-endpoint", "tls-cert-file"):
            self.assertIn(f"--{name}", str(caught.exception.code))


class ClosedOutputTests(SynchronousTestCase):
    """Output into a pipe whose reader has ended, as with ``| head``."""

    starts = PROGRAMS

    def test_quiet(self) -> None:
        """``--help`` and ``--version`` print no error."""
        for option in ("--help", "--version"):
            reader, writer = os.pipe()
            os.close(reader)
            code = (
                f"from {__name__} import DaemonOptions; DaemonOptions().parseOptions([{option!r}])"
            )
            done = subprocess.run(
                [sys.executable, "-c", code],
                stdout=writer,
                stderr=subprocess.PIPE,
                timeout=600,
                check=False,
            )
            os.close(writer)
            self.assertEqual((done.returncode, done.stderr), (0, b""), option)


class VersionTests(SynchronousTestCase):
    """Tests for ``--version``."""

    def test_version(self) -> None:
        """The version is that of the program, with Twisted's."""
        printed = io.StringIO()
        with redirect_stdout(printed), self.assertRaises(SystemExit) as caught:
            DaemonOptions().parseOptions(["--version"])
        self.assertEqual(caught.exception.code, 0)
        self.assertRegex(printed.getvalue(), rf"^exec-x {re.escape(build())} \(Twisted \d")


_PROGRAM = """
import sys
from twisted.logger import Logger, globalLogBeginner, textFileLogObserver
from twisted_exec.program.options.command_line import ProgramOptions
log = Logger()
log.warn("early warning")
log.info("early news")
ProgramOptions().parseOptions(sys.argv[1:])
globalLogBeginner.beginLoggingTo([textFileLogObserver(sys.__stdout__)])
for level in ("debug", "info", "warn", "error", "critical"):
    getattr(log, level)("late {name}", name=level)
"""


class LimitLogTests(SynchronousTestCase):
    """Tests for :func:`limit_log`."""

    starts = PROGRAMS

    def test_levels(self) -> None:
        """Messages below the level are left out; the last call counts."""
        written, publisher = io.StringIO(), LogPublisher()
        beginner = LogBeginner(publisher, io.StringIO(), sys, warnings)
        limit_log("error", beginner)
        limit_log("warn", beginner)
        log = Logger(observer=publisher)
        log.warn("early")
        beginner.beginLoggingTo([textFileLogObserver(written)], redirectStandardIO=False)
        self.addCleanup(setattr, warnings, "showwarning", warnings.showwarning)
        log.info("quiet")
        log.error("loud")
        words = [line.split()[-1] for line in written.getvalue().splitlines()]
        self.assertEqual(words, ["early", "loud"])

    def test_read(self) -> None:
        """An unknown level is an error that lists the levels."""
        self.assertEqual(read_level("warn"), "warn")
        with self.assertRaises(ValueError) as caught:
            read_level("loud")
        self.assertEqual(
            str(caught.exception), "'loud' is no level: give debug, info, warn or error"
        )

    def logged(self, *arguments: str) -> list[str]:
        """The last words of the lines that a program logs with these options."""
        done = subprocess.run(
            [sys.executable, "-c", _PROGRAM, *arguments],
            capture_output=True,
            timeout=600,
            check=True,
        )
        return [line.split()[-1] for line in done.stdout.decode().splitlines()]

    def test_options(self) -> None:
        """``--log-level`` and ``--quiet`` limit the whole log; an explicit ``--log-level`` wins."""
        severe = ["error", "critical"]
        for arguments, words in (
            ([], ["warning", "news", "info", "warn", *severe]),
            (["--log-level=debug"], ["warning", "news", "debug", "info", "warn", *severe]),
            (["--quiet"], ["warning", "warn", *severe]),
            (["--quiet", "--log-level=error"], severe),
            (["--log-level=info", "--quiet"], ["warning", "news", "info", "warn", *severe]),
        ):
            self.assertEqual(self.logged(*arguments), words, arguments)

    def test_wrong_level(self) -> None:
        """A wrong value is an error of the option."""
        with self.assertRaises(SystemExit) as caught:
            ProgramOptions().parseOptions(["--log-level=loud"])
        self.assertIn(
            "'loud' is no level: give debug, info, warn or error", str(caught.exception.code)
        )
