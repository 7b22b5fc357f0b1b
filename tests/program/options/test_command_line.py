"""
Tests for :mod:`twisted_exec.program.options.command_line`.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from contextlib import redirect_stdout
from dataclasses import dataclass, field

from twisted.trial.unittest import SynchronousTestCase

from tests.docs.test_options import TAPS
from tests.tiers import PROGRAMS
from twisted_exec import build
from twisted_exec.program.options.command_line import (
    CONSOLE_VERBS,
    OPTION,
    BrowserOptions,
    ProgramOption,
    ProgramOptions,
    Required,
    duration,
    refusal,
    seconds,
    settings_of,
    whole_seconds,
)


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

    def test_duration(self) -> None:
        """Longer times are written as Go writes them."""
        for text, wanted in (("8760h", 31536000), ("1h30m", 5400), ("45s", 45), ("0s", 0)):
            self.assertEqual(duration(text), wanted)
        for text in ("", "1", "h", "1d", "30m1h", "-1h", "1.5h", "99999999h"):
            with self.assertRaises(ValueError) as caught:
                duration(text)
            told = f"{text!r} is no duration such as 8760h, 1h30m or 45s"
            self.assertEqual(str(caught.exception), told)

    def test_whole_seconds(self) -> None:
        """Some times are whole seconds."""
        self.assertEqual([whole_seconds(text) for text in ("0", "60", "3600")], [0, 60, 3600])
        for text in ("", "x", "-1", "1.5", "3601", "1e3", "\u0663"):
            with self.assertRaises(ValueError) as caught:
                whole_seconds(text)
            told = f"{text!r} is no whole number of seconds from 0 to 3600"
            self.assertEqual(str(caught.exception), told)

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


@dataclass(frozen=True)
class Place:
    """A part of settings."""

    directory: str = field(
        default="", metadata={OPTION: ProgramOption("place-dir", "Where.", is_path=True)}
    )


@dataclass(frozen=True, kw_only=True)
class SharedSettings:
    """Settings of several programs."""

    last: str = field(default="z", metadata={OPTION: ProgramOption("last", "The last.")})


@dataclass(frozen=True)
class DeclaredSettings(SharedSettings):
    """Settings with options of each sort."""

    name: str = field(
        metadata={OPTION: ProgramOption("name", "Its name.", required=Required("the name"))}
    )
    size: int = field(
        default=1, metadata={OPTION: ProgramOption("size", "Its size.", int, group="Size")}
    )
    first: str | None = field(default=None, metadata={OPTION: ProgramOption("first", "The first.")})
    is_slow: bool = field(default=False, metadata={OPTION: ProgramOption("slow", "Be slow.")})
    is_loud: bool = field(default=True, metadata={OPTION: ProgramOption("quietly", "No noise.")})
    is_open: bool = field(
        default=True, metadata={OPTION: ProgramOption("open", "Open.", reverse="Close.")}
    )
    types: tuple[str, ...] = field(
        default=("a", "b"),
        metadata={OPTION: ProgramOption("types", "Types.", lambda text: (*text,), default="ab")},
    )
    numbers: tuple[int, ...] = field(
        default=(),
        metadata={
            OPTION: ProgramOption(
                "number",
                "Numbers.",
                lambda text: [int(each) for each in text.split(",")],
                several=True,
                convert=tuple,
            )
        },
    )
    is_strict: bool = field(default=False, metadata={OPTION: CONSOLE_VERBS})
    place: Place = field(default=Place(), metadata={OPTION: Place})
    made: str = ""


class DeclaredOptions(ProgramOptions):
    """Options that come from settings, and one that does not."""

    program = "exec-x"
    group = "Main"
    settings_class = DeclaredSettings
    more = (ProgramOption("beside", "In no field.", default="c"),)

    def postOptions(self) -> None:
        self.check_pairs()
        self.check_required()


class DeclaredOptionsTests(SynchronousTestCase):
    """Options that are declared on the fields that they set."""

    def settings(self, *words: str, **more: object) -> DeclaredSettings:
        options = DeclaredOptions()
        options.parseOptions(words)
        return settings_of(DeclaredSettings, options, **more)

    def test_defaults(self) -> None:
        """Without options fields have their defaults; a default in the form of text is read, too."""
        self.assertEqual(self.settings("--name=n"), DeclaredSettings("n"))

    def test_values(self) -> None:
        """Each sort of option fills its field."""
        words = "--size=7 --first=f --slow --quietly --no-open --types=xyz --number=1,2 --number=3"
        more = "--console-verbs=strict --last=l --place-dir=here"
        self.assertEqual(
            self.settings("--name=n", *words.split(), *more.split(), made="m"),
            DeclaredSettings(
                name="n",
                size=7,
                first="f",
                is_slow=True,
                is_loud=False,
                is_open=False,
                types=("x", "y", "z"),
                numbers=(1, 2, 3),
                is_strict=True,
                place=Place(os.path.abspath("here")),
                made="m",
                last="l",
            ),
        )

    def test_refused(self) -> None:
        """Messages name the option."""
        for words, message in (
            ([], "--name is missing: the name"),
            (["--name=n", "--size=x"], "--size: invalid literal"),
            (["--name=n", "--number=x"], "--number: invalid literal"),
            (["--name=n", "--open", "--no-open"], "--open and --no-open: give one of them"),
        ):
            with self.assertRaises(SystemExit) as caught:
                self.settings(*words)
            self.assertIn(f"exec-x: {message}", str(caught.exception.code))

    def test_help(self) -> None:
        """The help has the headings of the declaration."""
        text = DeclaredOptions().getUsage(100)
        names = re.findall(r"^(\w+):$|--([\w-]+)", text.partition("Program:")[0], re.MULTILINE)
        self.assertEqual(
            [heading or name for heading, name in names],
            [
                *("Size", "size"),
                *("Main", "beside", "console-verbs", "first", "last", "name", "no-open", "number"),
                *("open", "place-dir", "quietly", "slow", "types"),
            ],
        )


class BrowserOptionsTests(SynchronousTestCase):
    """Tests for :class:`BrowserOptions`."""

    def test_origins(self) -> None:
        """Sites are named one by one, in any spelling."""
        options = BrowserOptions()
        options.parseOptions(["--allowed-origin", "https://A.example:443", "--allowed-origin=null"])
        self.assertEqual(options["allowed-origin"], [b"https://a.example", b"null"])

    def test_no_origin(self) -> None:
        """An allowed origin that is not a site is refused."""
        with self.assertRaises(SystemExit):
            BrowserOptions().parseOptions(["--allowed-origin", "*"])


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


class ConfigurationFileTests(SynchronousTestCase):
    """Tests for ``--config``."""

    def file(self, text: str) -> str:
        """Return the path of a file with this text."""
        path = self.mktemp()
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def parsed(self, text: str, *arguments: str) -> DaemonOptions:
        options = DaemonOptions()
        options.parseOptions(["--config", self.file(text), *arguments])
        return options

    def refusal(self, text: str, *arguments: str) -> str:
        """The message for a file that cannot be used."""
        with self.assertRaises(SystemExit) as caught:
            self.parsed(text, *arguments)
        line = str(caught.exception.code)
        self.assertTrue(line.startswith("exec-x: --config"), line)
        self.assertNotIn("\n", line)
        return line

    def test_values(self) -> None:
        """Keys are the names of options: strings, numbers, flags, and lists for repeated options."""
        options = self.parsed(
            'pool = "a"\nport = 7\ncert = "c"\ndrain = 0.5\nfast = true\nno-fast = false\n'
            'address = ["x", "y"]\n'
        )
        self.assertEqual((options["pool"], options["port"], options["drain"]), ("a", 7, 0.5))
        self.assertEqual((options["fast"], options["no-fast"]), (1, 0))
        self.assertEqual(options["address"], ["x", "y"])
        self.assertEqual(self.parsed('pool="a"\ncert="c"\naddress="x"')["address"], ["x"])

    def test_command_line_wins(self) -> None:
        """An option of the command line replaces that of the file, under any of its names."""
        text = 'pool = "a"\nport = 7\ncert = "c"\nno-fast = true\naddress = ["x", "y"]\n'
        options = self.parsed(text, "--pool=b", "-p", "8", "--address=z", "--fast")
        self.assertEqual((options["pool"], options["port"]), ("b", 8))
        self.assertEqual(options["address"], ["z"])
        self.assertEqual((options["fast"], options["no-fast"]), (1, 0))

    def test_log_level(self) -> None:
        """An explicit ``log-level`` wins over ``quiet``; either on the command line, over the file."""
        for text, arguments, level in (
            ("", [], "info"),
            ("quiet = true", [], "warn"),
            ('quiet = true\nlog-level = "debug"', [], "debug"),
            ('log-level = "debug"', ["--quiet"], "warn"),
            ("quiet = true", ["--log-level=debug"], "debug"),
            ("", ["--quiet", "--log-level=info"], "info"),
        ):
            options = self.parsed(f'pool = "a"\ncert = "c"\n{text}', *arguments)
            self.assertEqual(options["log-level"], level, (text, arguments))
        with self.assertRaises(SystemExit) as caught:
            self.parsed("", "--log-level=x")
        refused = "--log-level: 'x' is no level: give debug, info, warn or error; see"
        self.assertIn(refused, str(caught.exception.code))

    def test_unknown_key(self) -> None:
        """An unknown key is an error with the nearest name."""
        line = self.refusal('cert_dir = "x"')
        self.assertIn("unknown key 'cert_dir'; did you mean cert-dir?", line)
        self.assertIn("unknown key 'zzz'; see", self.refusal("zzz = 1"))
        self.assertIn("unknown key 'Pool'; did", self.refusal('[Pool]\nname = "a"'))
        for key in ("config", "help", "version"):
            self.assertIn(f"unknown key {key!r}", self.refusal(f'{key} = "x"'))

    def test_types(self) -> None:
        """A value of another type is an error."""
        self.assertIn("fast must be true or false, not 'yes'", self.refusal('fast = "yes"'))
        self.assertIn("pool must be a string or a number, not True", self.refusal("pool = true"))
        self.assertIn("pool must be a string or a number", self.refusal("pool = ['a']"))
        self.assertIn("address must be a list of strings", self.refusal("address = [['a']]"))
        self.assertIn("pool must be a string or a number", self.refusal("pool = 1979-05-27"))

    def test_unusable_file(self) -> None:
        """A file that cannot be read or is not TOML is an error that names it."""
        self.assertIn("is not TOML", self.refusal("pool = \n"))
        self.assertIn("is not TOML", self.refusal("x = " + "[" * 5000))
        self.assertIn("larger than 1 MiB", self.refusal("#" * (1 << 20) + "\n"))
        with self.assertRaises(SystemExit) as caught:
            DaemonOptions().parseOptions(["--config", "/nonexistent"])
        self.assertIn("cannot read /nonexistent: No such file", str(caught.exception.code))
        with open(path := self.mktemp(), "wb") as file:
            file.write(b"\xff")
        with self.assertRaises(SystemExit) as caught:
            DaemonOptions().parseOptions(["--config", path])
        self.assertIn("is not TOML", str(caught.exception.code))

    def test_invalid_value(self) -> None:
        """A value is checked as that of an option."""
        with self.assertRaises(SystemExit) as caught:
            self.parsed('pool = "a"\ncert = "c"\ndrain = -1')
        self.assertIn("--drain: '-1' is no number of seconds", str(caught.exception.code))


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
