"""Tests for :mod:`twisted_exec.api.lenient`."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.lenient import mapping, mappings, named, texts

OTHERS: list[Any] = [None, 1, 1.5, True, "x", [1]]


class ShapeTests(SynchronousTestCase):
    """Parts of the proper shape stay; others are dropped."""

    def test_another_form(self) -> None:
        """Nothing is left of what is something else altogether."""
        for other in OTHERS:
            with self.subTest(other=other):
                self.assertEqual((mapping(other), texts(other)), ({}, {}))
        for other in (*OTHERS, {"a": 1}):
            with self.subTest(other=other):
                self.assertEqual((mappings(other), named(other)), ([], []))

    def test_parts(self) -> None:
        """One part that is not in its form takes no other with it."""
        self.assertEqual(mapping({"a": 1}), {"a": 1})
        self.assertEqual(texts({"a": "b", "c": 1, "d": None}), {"a": "b"})
        self.assertEqual(mappings([{"a": 1}, 2, None]), [{"a": 1}])
        listed = [{"name": "a"}, {"name": ""}, {"name": 1}, {"type": "b"}, 2]
        self.assertEqual(named(listed), [{"name": "a"}])
        self.assertEqual(named(listed, "type"), [{"type": "b"}])
