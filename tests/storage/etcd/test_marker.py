"""Tests for :mod:`twisted_exec.storage.etcd.marker`."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.storage.etcd.keys import Keys
from twisted_exec.storage.etcd.marker import MarkerValue, read_marker
from twisted_exec.storage.interfaces import StorageError

KEYS = Keys("/p")


class MarkerTests(SynchronousTestCase):
    """The marker, which says that the prefix belongs to a store."""

    def test_there_and_back(self) -> None:
        """The marker holds the id of the write."""
        self.assertEqual(read_marker(KEYS.marker, MarkerValue("x-1").encode()).write, "x-1")

    def test_skipped(self) -> None:
        """The marker of a restored store has the number of skipped versions; release 0.1.0 reads no marker."""
        value = MarkerValue("x-1", 1000)
        self.assertEqual(read_marker(KEYS.marker, value.encode()), value)
        self.assertEqual(
            [json.loads(each.encode())["format"] for each in (MarkerValue("x-1"), value)], [2, 2]
        )

    def test_release_0_2(self) -> None:
        """The marker that release 0.2.0 writes is read."""
        written = b'{"program":"twisted-exec","format":1,"write":"x-1"}'
        self.assertEqual(read_marker(KEYS.marker, written), MarkerValue("x-1"))

    @given(st.binary(max_size=60))
    def test_anything(self, value: bytes) -> None:
        """A marker with an unknown value belongs to another program and is refused."""
        with self.assertRaises(StorageError):
            read_marker(KEYS.marker, value)
