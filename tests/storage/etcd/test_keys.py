"""
Tests for :mod:`twisted_exec.storage.etcd.keys`.
"""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tests.contracts.storage import MACHINES, POOLS, machine
from twisted_exec.api import kinds
from twisted_exec.api.dialects import DIALECTS
from twisted_exec.api.encoded import Encoded, json_of
from twisted_exec.storage.etcd.keys import ForeignKey, HistoryPlace, Keys, value_of, with_version
from twisted_exec.storage.history import table_of

KEYS = Keys("/p")


class PlaceTests(SynchronousTestCase):
    """Keys of objects."""

    def test_as_kubernetes(self) -> None:
        """A key is group, plural, namespace and name; empty parts are left out."""
        self.assertEqual(
            KEYS.key(MACHINES, "default", "a"), b"/p/compute.ironcore.dev/machines/default/a"
        )
        self.assertEqual(KEYS.key(POOLS, "", "a"), b"/p/compute.ironcore.dev/machinepools/a")
        self.assertEqual(KEYS.key(kinds.SECRETS.resource, "n", "a"), b"/p/secrets/n/a")
        self.assertEqual(KEYS.key(kinds.NAMESPACES.resource, "", "a"), b"/p/namespaces/a")

    def test_back(self) -> None:
        """Every kind's keys can be read back, and are below the prefix."""
        for kind in kinds.served(DIALECTS):
            resource = kind.resource
            namespace = "some-namespace" if resource.namespaced else ""
            for name in ("a", "a.b", "system:node"):
                key = KEYS.key(resource, namespace, name)
                self.assertTrue(KEYS.first < key < KEYS.end)
                self.assertEqual(
                    KEYS.place(key), HistoryPlace(table_of(resource), (namespace, name))
                )

    def test_own(self) -> None:
        """The store's own keys are not objects."""
        for key in (KEYS.marker, KEYS.compacted):
            self.assertTrue(KEYS.is_own(key))
            with self.assertRaises(ForeignKey):
                KEYS.place(key)

    def test_foreign(self) -> None:
        """Keys that the store would not write are foreign."""
        for key in (
            b"/p/",
            b"/p/x",
            b"/p/a/b/c/d/e",
            b"/p/a//b",
            b"/p/a/b/",
            b"/p/\xff/b",
            b"/p/.x/b",
        ):
            with self.assertRaises(ForeignKey) as caught:
                KEYS.place(key)
            self.assertTrue(str(caught.exception).isprintable())

    @given(st.binary(max_size=40))
    def test_anything(self, rest: bytes) -> None:
        """Any key is an object's place, or foreign."""
        try:
            place = KEYS.place(b"/p/" + rest)
        except ForeignKey:
            return
        self.assertTrue(place.table and place.key[1])


class ValueTests(SynchronousTestCase):
    """Stored values of objects."""

    def read(self, value: str) -> Encoded:
        key = KEYS.key(MACHINES, "default", "a")
        return KEYS.read(key, value.encode(), 7)[1]

    def check(self, obj: dict[str, Any]) -> None:
        """An object is read back unchanged, with its version and its JSON."""
        found = self.read(value_of(obj))
        wanted = {**obj, "metadata": {**obj["metadata"], "resourceVersion": "7"}}
        self.assertEqual(found, wanted)
        self.assertEqual(json.loads(json_of(found)), wanted)

    def test_there_and_back(self) -> None:
        """Any object is read back unchanged."""
        tricky = {"metadata": {"x": 1}, "text": '"metadata":{', "ä": "\u2028😀"}
        self.check(machine("a", **tricky))
        self.check({"spec": tricky, **machine("a"), "status": {}})
        self.check({"metadata": {"name": "a", "namespace": "default"}, "spec": tricky})
        quoted = machine("a")
        quoted["kind"] = 'Mach"ine","metadata":{'
        self.check(quoted)

    def test_without_version(self) -> None:
        """The version is that of the key and is not stored in the value."""
        obj = machine("a")
        obj["metadata"]["resourceVersion"] = "3"
        self.assertNotIn("resourceVersion", value_of(obj))
        self.assertEqual(self.read(value_of(obj))["metadata"]["resourceVersion"], "7")

    def test_written_by_others(self) -> None:
        """JSON in any order, with spaces, or with a version of its own."""
        obj = machine("a", power="On")
        for text in (
            json.dumps(obj),
            json.dumps(obj, indent=2, ensure_ascii=False, sort_keys=True),
            json.dumps({**obj, "metadata": {**obj["metadata"], "resourceVersion": "99"}}),
        ):
            found = self.read(text)
            self.assertEqual(found["metadata"]["resourceVersion"], "7")
            self.assertEqual(json.loads(json_of(found)), found)

    def test_no_metadata_but_a_version(self) -> None:
        """The version is inserted correctly into empty metadata."""
        text = '{"apiVersion":"v1","kind":"X","metadata":{}}'
        self.assertEqual(
            json.loads(with_version(json.loads(text), text, 7).json),
            {"apiVersion": "v1", "kind": "X", "metadata": {"resourceVersion": "7"}},
        )

    @given(st.binary(max_size=60))
    def test_anything(self, value: bytes) -> None:
        """Any value is an object, or refused in a line."""
        with self.assertRaises(ForeignKey) as caught:
            KEYS.read(KEYS.key(MACHINES, "default", "a"), value, 7)
        self.assertTrue(str(caught.exception).isprintable())
