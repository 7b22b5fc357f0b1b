"""Tests for :mod:`twisted_exec.nodeserver.shared_parts`."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tests.retained import entries
from twisted_exec.nodeserver.shared_parts import SharedParts, slim

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


def fresh() -> Any:
    """Return one of many equal parts, as each message brings it."""
    return json.loads('{"name": "main", "env": [{"name": "A", "value": "some value"}]}')


class SharedTests(SynchronousTestCase):
    """Tests for :class:`SharedParts`."""

    def test_once(self) -> None:
        """Equal parts are one object, others are others."""
        shared = SharedParts()
        self.assertIs(shared.of(fresh()), shared.of(fresh()))
        self.assertIsNot(shared.of(fresh()), shared.of(fresh() | {"name": "other"}))

    def test_values(self) -> None:
        """Of a mapping, each value is shared, and each item of a list."""
        shared = SharedParts()
        first, two = (shared.values({"containers": [fresh()], "n": [n]}) for n in (1, 2))
        self.assertIs(first["containers"][0], two["containers"][0])
        self.assertEqual((first["n"], two["n"]), ([1], [2]))

    def test_bounded(self) -> None:
        """However many there are, no more than so many are remembered."""
        shared = SharedParts(10)
        for number in range(100):
            self.assertEqual(shared.of([number]), [number])
            self.assertLessEqual(entries(shared), 2 * 10)

    @given(JSON, JSON)
    def test_nothing_changes(self, first: Any, two: Any) -> None:
        """The result equals the input, whatever came before."""
        shared = SharedParts()
        for value in (first, two, first):
            self.assertEqual(json.dumps(shared.of(value)), json.dumps(value))
            self.assertEqual(json.dumps(slim(value)), json.dumps(value))
