"""
Tests for :mod:`twisted_exec.program.config_file`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.program.config_file import MAX_FILE_BYTES, ConfigError, Reader, read_yaml


class ReadYAMLTests(SynchronousTestCase):
    """Tests for :func:`read_yaml`."""

    def setUp(self) -> None:
        self.path = Path(self.mktemp())

    def refusal(self, content: bytes) -> str:
        self.path.write_bytes(content)
        with self.assertRaises(ConfigError) as caught:
            read_yaml(str(self.path))
        self.assertNotIn("\n", str(caught.exception))
        return str(caught.exception).replace(str(self.path), "FILE")

    def test_document(self) -> None:
        """A file is parsed as YAML."""
        self.path.write_text("a: [1, b]\n")
        self.assertEqual(read_yaml(str(self.path)), {"a": [1, "b"]})

    def test_not_there(self) -> None:
        """A file that cannot be read is named, with why."""
        with self.assertRaises(ConfigError) as caught:
            read_yaml(str(self.path))
        told = f"cannot read {self.path}: No such file or directory"
        self.assertEqual(str(caught.exception), told)

    def test_too_large(self) -> None:
        """A file that is no configuration is not read to its end."""
        told = self.refusal(b"#" * (MAX_FILE_BYTES + 1))
        self.assertEqual(told, "FILE is larger than 4 MiB")

    def test_not_yaml(self) -> None:
        """Invalid YAML gives a one-line message with its place."""
        self.assertTrue(self.refusal(b"a: [\n").startswith("FILE: not YAML: line 2, column "))
        self.assertIn("FILE: not YAML: ", self.refusal(b"\xff\xfe\xfd"))
        self.assertIn("FILE: line 1: the tag !!python/name", self.refusal(b"a: !!python/name:os.x"))
        self.assertIn("FILE: nested more than 64 levels deep", self.refusal(b"[" * 100_000))


class ReaderTests(SynchronousTestCase):
    """Tests for :class:`Reader`."""

    def refusal(self, document: Any, method: str, *arguments: Any) -> str:
        with self.assertRaises(ConfigError) as caught:
            getattr(Reader(document, "f.yaml: x"), method)(*arguments)
        return str(caught.exception).removeprefix("f.yaml: x")

    def test_no_mapping(self) -> None:
        """A value other than a mapping is refused, and the message names its place."""
        with self.assertRaises(ConfigError) as caught:
            Reader(["a"], "f.yaml: x")
        self.assertEqual(str(caught.exception), "f.yaml: x must be a mapping")

    def test_misspelt(self) -> None:
        """A missing required key is reported together with a similar misspelt key."""
        told = self.refusal({"kubeconfg": {}, "name": "a"}, "take", "kubeconfig", dict)
        self.assertEqual(told, ": kubeconfig is missing; is 'kubeconfg' meant to be it?")
        told = self.refusal({"namespace": "a"}, "take", "name", str)
        self.assertEqual(told, ": name is missing")

    def test_lines(self) -> None:
        """The lines of a class are counted, checked with the class, and have names of Machines."""
        reader = Reader({"lines": {"a": {}, "lab/b": {"speed": 1}}}, "f.yaml: x")
        self.assertEqual([*reader.lines()], ["a", "lab/b"])
        self.assertEqual(reader.quantity, 2)
        with self.assertRaises(ConfigError) as caught:
            reader.done()
        self.assertEqual(str(caught.exception), "f.yaml: x: lines[lab/b]: unknown key 'speed'")
        for name, similar in (("NO NAME", "no-name"), ("LAB/b", "lab-b"), ("a/b/c", "a-b-c")):
            told = self.refusal({"lines": {name: {}}}, "lines")
            self.assertTrue(told.startswith(f": lines[{name}]: no Machine can have the name"))
            self.assertTrue(told.endswith(f"such as {similar}"), told)

    def test_number(self) -> None:
        """A number of seconds may be whole; it has bounds."""
        reader = Reader({"a": 3, "b": 0.5}, "x")
        self.assertEqual((reader.number("a", 0, 9), reader.number("b", 0, 9)), (3.0, 0.5))
        self.assertEqual(reader.number("c", 0, 9, 4), 4.0)
        self.assertEqual(
            self.refusal({"a": 10}, "number", "a", 0.5, 9), ": a must be between 0.5 and 9, not 10"
        )
        self.assertEqual(
            self.refusal({"a": True}, "number", "a", 0, 9), ": a must be a number, not True"
        )
        self.assertEqual(
            self.refusal({"a": float("nan")}, "number", "a", 0, 9),
            ": a must be between 0 and 9, not nan",
        )

    def test_size(self) -> None:
        """A quantity, in bytes."""
        self.assertEqual(Reader({"a": "2Mi"}, "x").size("a", "1Mi", "1Gi"), 2 << 20)
        self.assertEqual(
            self.refusal({"a": "2Mi"}, "size", "a", "3Mi", "1Gi"),
            ": a: '2Mi' is not between 3Mi and 1Gi",
        )
        self.assertEqual(
            self.refusal({"a": "big"}, "size", "a", "3Mi", "1Gi"),
            ": a: 'big' is no quantity such as 512Mi",
        )

    def test_choice(self) -> None:
        """A choice accepts only its words, and takes a YAML boolean as the word "on" or "off"."""
        self.assertEqual(Reader({"a": "odd"}, "x").choice("a", ("odd", "even"), "even"), "odd")
        self.assertEqual(Reader({}, "x").choice("a", ("odd", "even"), "even"), "even")
        self.assertEqual(Reader({"a": False}, "x").choice("a", ("on", "off"), "on"), "off")
        self.assertEqual(
            self.refusal({"a": "none"}, "choice", "a", ("odd", "even"), "odd"),
            ": a must be one of odd, even, not 'none'",
        )

    def test_mappings(self) -> None:
        """Nested mappings report their own places."""
        reader = Reader({"lines": {"vm-1": {"path": "/dev/x"}, "vm-2": None}}, "f.yaml")
        found = reader.mappings("lines")
        self.assertEqual(list(found), ["vm-1", "vm-2"])
        self.assertEqual((found["vm-1"].name, found["vm-1"].take("path", str)), ("vm-1", "/dev/x"))
        found["vm-1"].done()
        with self.assertRaises(ConfigError) as caught:
            found["vm-2"].take("path", str)
        self.assertEqual(str(caught.exception), "f.yaml: lines[vm-2]: path is missing")
        self.assertEqual(self.refusal({"a": {}}, "mappings", "a"), ": a is empty")
        self.assertEqual(
            self.refusal({"a": {1: {}}}, "mappings", "a"),
            ": a: 1 is not text in YAML, so it is no name; put it in quotes: '1'",
        )

    def test_environment(self) -> None:
        """Names that a process can have, and strings."""
        self.assertEqual(Reader({"e": {"A_1": "x"}}, "x").environment("e"), {"A_1": "x"})
        for wrong in ({"1A": "x"}, {"": "x"}, {"É": "x"}, {"A": 1}, {"A": "\0"}):
            self.assertIn(
                "must be a name, its value", self.refusal({"e": wrong}, "environment", "e")
            )

    def test_left(self) -> None:
        """A key that the reader has not taken is refused as unknown."""
        reader = Reader({"baud": 1, "parity": "even"}, "f.yaml: x")
        reader.take("parity", str)
        with self.assertRaises(ConfigError) as caught:
            reader.done()
        self.assertEqual(str(caught.exception), "f.yaml: x: unknown key 'baud'")
