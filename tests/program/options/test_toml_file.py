"""Tests for :mod:`twisted_exec.program.options.toml_file`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tests.program.options.test_command_line import DaemonOptions


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
