"""Tests for :mod:`twisted_exec.api.yaml_reader`."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.linear import assert_linear
from twisted_exec.api.yaml_reader import (
    FILE,
    PlacedMapping,
    Rules,
    TooDeep,
    TooMany,
    YAMLProblem,
    parse_yaml,
    text_scalar,
)

HANDLES = ["".join(each) for each in itertools.product("abcdefghijklmnopqrstuvwxyz", repeat=3)]
BODY = Rules(1 << 14)


def tag_directives(count: int) -> str:
    """A document with so many ``%TAG`` directives."""
    return "".join(f"%TAG !{handle}! a\n" for handle in HANDLES[:count]) + "--- a"


class ReaderTestCase(SynchronousTestCase):
    """What is read, and what is refused with which message."""

    def refusal(self, text: str | bytes, rules: Rules = FILE) -> str:
        with self.assertRaises(YAMLProblem) as caught:
            parse_yaml(text, rules)
        self.assertEqual(len(str(caught.exception).splitlines()), 1)
        return str(caught.exception)


class ScalarTests(ReaderTestCase):
    """Plain scalars are read as Go's parser for YAML 1.1 reads them."""

    def test_plain(self) -> None:
        """Numbers, booleans and null are values; everything else is text, dates and times too."""
        for text, value in (
            ("0", 0),
            ("-12", -12),
            ("+1_000", 1000),
            ("0b101", 5),
            ("0x1F", 31),
            ("-0x1f", -31),
            ("010", 8),
            ("08", 8.0),
            ("1.5", 1.5),
            (".5", 0.5),
            ("1e3", 1000.0),
            ("-.Inf", -math.inf),
            ("+.inf", math.inf),
            ("Yes", True),
            ("on", True),
            ("OFF", False),
            ("no", False),
            ("~", None),
            ("", None),
            ("Null", None),
            ("y", "y"),
            ("nO", "nO"),
            ("=", "="),
            (".infinite", ".infinite"),
            ("12:30", "12:30"),
            ("2001-99-99", "2001-99-99"),
            ("1:1:1.5", "1:1:1.5"),
            ("-", None),
        ):
            if text != "-":
                self.assertEqual(parse_yaml(f"a: {text}"), {"a": value}, text)
                self.assertEqual(type(parse_yaml(f"a: {text}")["a"]), type(value), text)
            self.assertEqual(parse_yaml(f"a: '{text}'"), {"a": text})
        self.assertTrue(math.isnan(parse_yaml("a: .NaN")["a"]))

    def test_text(self) -> None:
        """With other rules only booleans and null are no text."""
        rules = replace(FILE, scalar=text_scalar)
        found = parse_yaml("{a: 1, b: 1.5, c: true, d: ~, e: 0x1f}", rules)
        self.assertEqual(found, {"a": "1", "b": "1.5", "c": True, "d": None, "e": "0x1f"})

    def test_range(self) -> None:
        """Integers beyond int64, and those without digits, are refused with their line."""
        for text in ("9223372036854775808", "-9223372036854775809", "0x" + "f" * 17, "1" * 99_999):
            self.assertRegex(
                self.refusal(f"\na: {text}"), "line 2: number .{1,40} is out of the range"
            )
        self.assertIn("line 1: 0b_ is no number", self.refusal("a: 0b_"))
        self.assertEqual(parse_yaml("a: -9223372036854775808"), {"a": -(2**63)})


class TagTests(ReaderTestCase):
    """What Kubernetes' clients do not send is refused."""

    def test_tags(self) -> None:
        """The tags of text, mappings and lists are accepted where they fit, and no other tag."""
        self.assertEqual(
            parse_yaml("!!map {a: !!str 1, b: !!seq [! x], c: !<tag:yaml.org,2002:str> 2}"),
            {"a": "1", "b": ["x"], "c": "2"},
        )
        for text in (
            "!!int 1",
            "!!int '1:1:1'",
            "!!float 1",
            "!!bool x",
            "!!timestamp 2001-01-01",
            "!!binary aGk=",
            "!!null ''",
            "!!set {x}",
            "!!omap []",
            "!!str [a]",
            "!!str {}",
            "!!map x",
            "!!python/object:os.system x",
            "!mine x",
        ):
            self.assertRegex(
                self.refusal(f"\na: {text}"), "line 2: the tag !.* is not accepted; leave it out"
            )
        self.assertIn("the tag !!str is not", self.refusal("!!str a", replace(FILE, tags=False)))

    def test_directives(self) -> None:
        """``%YAML`` is the only directive, wherever a document begins."""
        self.assertEqual(parse_yaml("%YAML 1.1\n---\na: 1\n"), {"a": 1})
        for before in ("", "\ufeff", "# a\n", "# a\r", "\x85", "%YAML 1.1\n", "a: 1\n...\n"):
            told = self.refusal(f"{before}%TAG !a! b\n--- c\n")
            self.assertRegex(told, "line [123]: %TAG directives are not accepted; leave them out")
        utf16 = "%TAG !a! b\n--- c\n".encode("utf-16")
        self.assertIn("line 1: %TAG directives", self.refusal(utf16))
        self.assertIn("not YAML: ", self.refusal("%OTHER a\n--- c\n"))
        self.assertEqual(
            parse_yaml("a: '%TAG'\nb: |\n %TAG !a! b\n"), {"a": "%TAG", "b": "%TAG !a! b\n"}
        )


class DocumentTests(ReaderTestCase):
    """Documents as a whole."""

    def test_malformed(self) -> None:
        """Text that is not YAML is refused with its place."""
        self.assertIn("not YAML: line 1, column 5: ", self.refusal("a: b: c"))
        self.assertIn("not YAML: line 2, column 1: ", self.refusal("a: [\n"))
        for text in (b"\xff", "a: \0", "a: \ud800"):
            self.assertIn("not YAML: ", self.refusal(text))
        for text in ("? [a]\n: b", "{{a: b}: c}"):
            self.assertIn("line 1: a key is a list or a mapping", self.refusal(text))

    def test_several(self) -> None:
        """A second document is refused, or not even looked at."""
        for text in ("", "# nothing\n", "---\n"):
            self.assertIsNone(parse_yaml(text))
        self.assertIn("more than one document (---)", self.refusal("a: 1\n---\nb: 2\n"))
        first = replace(FILE, whole=False)
        for second in ("b: 2\n", "a: 1\n---\nc: 3", "[", "!!int x"):
            self.assertEqual(parse_yaml(f"a: 1\n---\n{second}", first), {"a": 1})
        self.assertIsNone(parse_yaml("---\n---\na: 1\n", first))

    def test_deep(self) -> None:
        """Depth is limited before it exhausts a stack."""
        self.assertEqual(parse_yaml("[" * 64 + "]" * 64, BODY), eval("[" * 64 + "]" * 64))
        for text in ("[" * 65 + "]" * 65, "[" * 100_000, "- " * 100_000, "{a: " * 100_000):
            with self.assertRaises(TooDeep):
                parse_yaml(text, BODY)

    def test_many(self) -> None:
        """Keys and values are counted, and aliases and merges count as what they stand for."""
        rules = replace(FILE, values=9)
        parse_yaml("[1, 2, {a: 3, b: 4}, 5]", rules)
        parse_yaml("[&a [1, 2], *a, 1, 1]", rules)
        parse_yaml("[&a {b: 1}, {<<: *a}]", replace(rules, values=10))
        for text in (
            "[1, 2, {a: 3, b: 4}, 5, 6]",
            "[&a [1, 2], *a, 1, 1, 1]",
            "[&a [1, 2], &b [*a], *b]",
            "[&a {b: 1}, {<<: *a}]",
        ):
            with self.assertRaises(TooMany, msg=text):
                parse_yaml(text, rules)
        bomb = "a: &x0 [a,a,a,a,a,a,a,a,a,a]\n" + "".join(
            f"b{n}: &x{n} [{','.join([f'*x{n - 1}'] * 10)}]\n" for n in range(1, 12)
        )
        with self.assertRaises(TooMany):
            parse_yaml(bomb)


class MappingTests(ReaderTestCase):
    """Keys, aliases and merges."""

    def test_aliases(self) -> None:
        """Aliases stand for values before them, unless the rules refuse them."""
        self.assertEqual(parse_yaml("{a: &a [1], b: *a}"), {"a": [1], "b": [1]})
        self.assertIn("line 2: aliases (*) are not accepted", self.refusal("a: &a 1\nb: *a", BODY))
        for text in ("*a", "&a [*a]", "[*a, &a 1]"):
            self.assertIn("line 1: the alias *a is not", self.refusal(text))

    def test_merges(self) -> None:
        """Own keys win, then earlier sources."""
        base = "a: &a {x: 1, y: 1}\nb: &b {y: 2, z: 2}\n"
        for merge, merged in (
            ("{<<: *a, x: 0}", {"x": 0, "y": 1}),
            ("{x: 0, <<: *a}", {"x": 0, "y": 1}),
            ("{<<: [*a, *b]}", {"x": 1, "y": 1, "z": 2}),
            ("{<<: {x: 3}}", {"x": 3}),
            ("{'<<': 3}", {"<<": 3}),
        ):
            self.assertEqual(parse_yaml(f"{base}c: {merge}")["c"], merged)
        for text in ("<<: 1", "<<: [1]"):
            self.assertIn("line 1: a merge (<<) takes a mapping", self.refusal(text))

    def test_repeated(self) -> None:
        """A key that is there twice is refused with both lines, or told with its path."""
        text = "a:\n- b: 1\n  c: 2\n  b: 3\n"
        self.assertIn("line 4: the key 'b' is there twice; remove", self.refusal(text))
        placed = replace(FILE, placed=True)
        self.assertIn(
            "line 4: the key 'b' is there twice (first in line 2)", self.refusal(text, placed)
        )
        self.assertIn("the key '<<' is there twice", self.refusal("{<<: {a: 1}, <<: {b: 1}}"))
        found: list[list[str | int]] = []
        rules = replace(FILE, repeated=lambda path: found.append([*path]))
        self.assertEqual(parse_yaml(text, rules), {"a": [{"b": 3, "c": 2}]})
        self.assertEqual(found, [["a", 0, "b"]])

    def test_places(self) -> None:
        """Mappings know the lines of their keys, and how keys and scalars are written."""
        found: Any = parse_yaml("# first\na: no\non:\n  b: [1]\n", replace(FILE, placed=True))
        self.assertIsInstance(found, PlacedMapping)
        self.assertEqual(found, {"a": False, True: {"b": [1]}})
        self.assertEqual((found.line, found[True].line), (2, 4))
        self.assertEqual(found.places, {"a": (2, "a", "no"), True: (3, "on", "")})


class CostTests(SynchronousTestCase):
    """Everything is linear, and so is each refusal."""

    def read(self, text: str) -> None:
        try:
            parse_yaml(text, BODY)
        except YAMLProblem:
            pass

    def test_directives(self) -> None:
        """Many ``%TAG`` directives cost no more than so many comments."""
        assert_linear(lambda size: self.read("# a\n" * size + tag_directives(size)), 4_000)

    def test_base_60(self) -> None:
        """A number of base 60 is not converted, with a tag or without."""
        for before in ("", "!!int ", "!!float ", "! "):
            assert_linear(
                lambda size, tag=before: self.read(f"a: {tag}'" + "1:" * size + "1'"), 200_000
            )

    def test_numbers(self) -> None:
        """Numbers of any length and base are refused without a conversion."""
        for before in ("", "0x", "0b", "0", "1.", "1e", "-", ".", "1_"):
            assert_linear(lambda size, base=before: self.read(f"a: {base}" + "1" * size), 200_000)
