"""
Tests for :mod:`twisted_exec.api.managedfields.fieldset`.
"""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.managedfields import fieldset
from twisted_exec.api.managedfields.fieldset import FieldSet, Path

A, B, C = "f:a", "f:b", "f:c"
STEPS = st.sampled_from([A, B, C, 'k:{"name":"x"}', 'v:"y"', "i:0"])
PATHS = st.lists(st.lists(STEPS, min_size=1, max_size=4).map(tuple), max_size=8)


def told(fields: FieldSet) -> set[Path]:
    return set(fieldset.paths(fields))


class DecodeTests(SynchronousTestCase):
    """Tests for :func:`fieldset.decode`."""

    def test_as_stored(self) -> None:
        """A field set that Kubernetes wrote is decoded unchanged."""
        stored: dict[str, Any] = {
            "f:metadata": {"f:labels": {".": {}, "f:a": {}}},
            "f:spec": {'k:{"name":"root"}': {".": {}, "f:device": {}}, 'v:"x"': {}, "i:3": {}},
        }
        self.assertEqual(fieldset.decode(stored), stored)

    def test_one_spelling(self) -> None:
        """Equivalent spellings of a key or value become the same step."""
        stored = {'k:{ "b": 1, "a": "x" }': {}, 'v: "\\u0061"': {}, "i:007": {}}
        decoded = fieldset.decode(stored)
        self.assertEqual(decoded, {'k:{"a":"x","b":1}': {}, 'v:"a"': {}, "i:7": {}})

    def test_unknown_steps(self) -> None:
        """Unknown kinds of steps are ignored, as in Kubernetes."""
        self.assertEqual(fieldset.decode({"q:x": {"f:a": {}}, "f:b": {}}), {"f:b": {}})

    def test_garbage(self) -> None:
        """An invalid field set raises a ValueError, however deep it is."""
        deep: Any = {}
        for _ in range(100_000):
            deep = {"f:a": deep}
        for raw in [
            None,
            [],
            "x",
            {"f:a": 1},
            {"f:a": None},
            {"": {}},
            {"x": {}},
            {"fa": {}},
            {"v:": {}},
            {"v:{": {}},
            {"k:1": {}},
            {"k:{": {}},
            {"i:x": {}},
            {"v:" + "[" * 100_000: {}},
            deep,
        ]:
            with self.assertRaises(ValueError):
                fieldset.decode(raw)


class SetTests(SynchronousTestCase):
    """Sets of paths, against Python's own sets of them."""

    @given(PATHS)
    def test_made_of(self, paths: list[Path]) -> None:
        """A set has the paths that were put into it, in whatever order, and no others."""
        fields = fieldset.made_of(paths)
        self.assertEqual(told(fields), set(paths))
        self.assertEqual(fieldset.made_of(reversed(paths)), fields)
        self.assertEqual(fieldset.decode(fields), fields)

    @given(PATHS, PATHS)
    def test_operations(self, one: list[Path], other: list[Path]) -> None:
        """Union, intersection and difference are those of the paths, and change nothing."""
        left, right = fieldset.made_of(one), fieldset.made_of(other)
        before = copy.deepcopy((left, right))
        self.assertEqual(told(fieldset.union(left, right)), set(one) | set(other))
        self.assertEqual(told(fieldset.intersection(left, right)), set(one) & set(other))
        self.assertEqual(told(fieldset.difference(left, right)), set(one) - set(other))
        self.assertEqual((left, right), before)

    @given(PATHS, PATHS)
    def test_no_leftovers(self, one: list[Path], other: list[Path]) -> None:
        """Results have no empty branches, which would count as paths."""
        left, right = fieldset.made_of(one), fieldset.made_of(other)
        for result in (
            fieldset.union(left, right),
            fieldset.intersection(left, right),
            fieldset.difference(left, right),
        ):
            self.assertEqual(result, fieldset.made_of(told(result)))

    @given(PATHS, STEPS)
    def test_one_step(self, paths: list[Path], step: str) -> None:
        """``has`` tests whether a step is in the set, and ``under`` returns the set below it."""
        fields = fieldset.made_of(paths)
        self.assertEqual(fieldset.has(fields, step), (step,) in paths)
        below = {path[1:] for path in paths if path[0] == step and len(path) > 1}
        self.assertEqual(told(fieldset.under(fields, step)), below)

    def test_empty_path(self) -> None:
        """The empty path cannot be part of a set."""
        self.assertEqual(fieldset.made_of([()]), {})

    def test_order(self) -> None:
        """Paths come sorted, those that end at a step before those that go on from it."""
        fields = fieldset.made_of([(B,), (A, C), (A, B), (A,)])
        self.assertEqual(list(fieldset.paths(fields)), [(A,), (B,), (A, B), (A, C)])


class ShownTests(SynchronousTestCase):
    """Tests for :func:`fieldset.shown`."""

    def test_steps(self) -> None:
        """Paths are written as kube-apiserver writes them."""
        for path, text in [
            (("f:spec", "f:power"), ".spec.power"),
            (
                ("f:l", fieldset.key_step({"name": "root", "id": 2}), "f:x"),
                '.l[id=2,name="root"].x',
            ),
            (("f:finalizers", fieldset.value_step("a/b")), '.finalizers[="a/b"]'),
            (("f:l", "i:3"), ".l[3]"),
        ]:
            self.assertEqual(fieldset.shown(path), text)
