"""
Tests for :mod:`twisted_exec.api.managedfields.updates`.

``tests/apiserver/test_service_apply.py`` compares ``managedFields`` after each write with a
real kube-apiserver.  These tests check properties of any sequence of writes, and
cases that a real server cannot reproduce.
"""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tests.api.managedfields.owned import (
    KIND,
    VERSION,
    applied,
    created,
    owned,
    pool,
    updated,
    with_entries,
    writer,
)
from twisted_exec.api import strategy
from twisted_exec.api.kinds import LEASES, Object
from twisted_exec.api.managedfields import fieldset, merge, updates
from twisted_exec.api.managedfields.conflicts import FieldManagerConflicts
from twisted_exec.api.managedfields.entries import decode_entries, encode_entries, only_times_differ
from twisted_exec.api.status import BadRequest

WORDS = st.sampled_from("abc")
LABELS = st.dictionaries(WORDS, WORDS, max_size=3)
TAINTS = st.lists(st.fixed_dictionaries({"key": WORDS}), max_size=2)
MANAGERS = st.sampled_from(["one", "two", "three"])
WRITES = st.lists(
    st.tuples(st.sampled_from(["update", "apply", "force"]), MANAGERS, LABELS, TAINTS), max_size=8
)


class AnyWritesTests(SynchronousTestCase):
    """Properties of any sequence of writes by any managers."""

    def play(self, writes: list[Any]) -> Object:
        obj = created(pool(labels={"a": "a"}))
        for number, (verb, manager, labels, taints) in enumerate(writes):
            before = copy.deepcopy(obj)
            if verb == "update":
                new = with_entries(pool(labels, taints), [])
                after = updated(obj, new, manager, number)
            else:
                try:
                    after = applied(obj, pool(labels, taints), manager, verb == "force")
                except FieldManagerConflicts:
                    after = obj
            self.assertEqual(obj, before, "arguments stay as they are")
            obj = after
        return obj

    @given(WRITES)
    def test_entries(self, writes: list[Any]) -> None:
        """Entries can be decoded, are sorted and not empty, and list no server-owned fields."""
        entries = self.play(writes)["metadata"].get("managedFields", [])
        self.assertEqual(encode_entries(decode_entries(entries, VERSION), VERSION), entries)
        for entry in entries:
            self.assertTrue(entry["fieldsV1"])
            shown = {fieldset.shown(path) for path in fieldset.paths(entry["fieldsV1"])}
            self.assertEqual(shown & {".metadata", ".metadata.name", ".kind", ".apiVersion"}, set())

    @given(WRITES, LABELS, TAINTS)
    def test_forced(self, writes: list[Any], labels: Any, taints: Any) -> None:
        """
        After a forced apply, every applied field has its applied value and belongs to the applier.
        """
        config = pool(labels, taints)
        after = applied(self.play(writes), config, "one", force=True)
        schema = strategy.full_schema(KIND)
        wanted = merge.field_set(schema, config)
        found = merge.compare(schema, strategy.shaped(KIND, config), after)
        self.assertEqual(fieldset.intersection(found.modified, wanted), {})
        [own] = [
            entry["fieldsV1"]
            for entry in after["metadata"]["managedFields"]
            if (entry["manager"], entry["operation"]) == ("one", "Apply")
        ] or [{}]
        rest = fieldset.difference(wanted, own)
        self.assertLessEqual(
            {fieldset.shown(path) for path in fieldset.paths(rest)},
            {".apiVersion", ".kind", ".metadata.name"},
        )

    @given(WRITES, LABELS, TAINTS)
    def test_again(self, writes: list[Any], labels: Any, taints: Any) -> None:
        """Repeating an apply changes at most the time of its entry."""
        # Labels of nothing are not stored, so they would come anew each time, as in Kubernetes.
        config = pool(labels or None, taints)
        once = applied(self.play(writes), config, "one", force=True)
        again = applied(once, config, "one")
        self.assertTrue(again == once or only_times_differ(again, once))

    @given(WRITES, LABELS)
    def test_nothing_left_behind(self, writes: list[Any], labels: Any) -> None:
        """A label that only one manager applied is removed once that manager stops applying it."""
        fresh = {f"only-{key}": value for key, value in labels.items()}
        with_labels = applied(self.play(writes), pool(fresh), "alone", force=True)
        after = applied(with_labels, pool(), "alone")
        left = after["metadata"].get("labels", {})
        self.assertEqual([key for key in left if key.startswith("only-")], [])


class UpdateTests(SynchronousTestCase):
    """Tests for :func:`ownership.updated`."""

    def test_untouched_entries_are_shared(self) -> None:
        """Entries that a write leaves alone are not copied: a heartbeat costs one small entry."""
        old = created(pool(labels={str(n): "x" for n in range(50)}))
        new = {**old, "status": {"state": "Ready"}}
        entries = updates.updated(KIND, old, new, None, writer("poollet", "status"))
        self.assertEqual([entry["manager"] for entry in entries], ["maker", "poollet"])
        before = old["metadata"]["managedFields"][0]["fieldsV1"]
        self.assertIs(entries[0]["fieldsV1"]["f:metadata"], before["f:metadata"])

    def test_nobody(self) -> None:
        """A writer without a name is recorded as ``unknown``."""
        self.assertEqual(list(owned(created(pool(labels={"a": "1"}), ""))), ["unknown"])

    def test_untracked(self) -> None:
        """An object without entries gets none until the first apply."""
        old = pool(labels={"a": "1"}, uid="u")
        self.assertNotIn("managedFields", updated(old, pool({"a": "2"}), "one")["metadata"])
        after = applied(old, pool(labels={"b": "1"}), "one")
        self.assertEqual(
            owned(after),
            {
                "one": {".metadata.labels.b"},
                "before-first-apply": {".metadata.labels", ".metadata.labels.a"},
            },
        )

    def test_other_versions(self) -> None:
        """The next write drops entries of API versions that are not served."""
        old = created(pool(labels={"a": "1"}))
        foreign = copy.deepcopy(old["metadata"]["managedFields"][0]) | {"apiVersion": "v9"}
        told = [*old["metadata"]["managedFields"], {**foreign, "manager": "foreign"}]
        after = updated(old, pool(labels={"a": "1"}), "one", told=told)
        self.assertEqual(list(owned(after)), ["maker"])

    def test_server_fields(self) -> None:
        """For a kind without a status, all fields are managed."""
        lease = {"metadata": {"name": "l"}, "spec": {"holderIdentity": "a"}}
        [entry] = updates.updated(LEASES, None, lease, None, writer("one"))
        self.assertEqual(entry["fieldsV1"], {"f:spec": {".": {}, "f:holderIdentity": {}}})


class ConfigurationTests(SynchronousTestCase):
    """Tests for :func:`ownership.check_configuration`."""

    def test_refused(self) -> None:
        """A configuration of another kind is refused; at most 32 errors are listed."""
        many = pool() | {"spec": {f"x{n}": 1 for n in range(100)}}
        for config, told in [
            ({}, "invalid object type: /, Kind="),
            (pool() | {"kind": "Pod"}, f"invalid object type: {VERSION}, Kind=Pod"),
            (pool() | {"apiVersion": "v1"}, "invalid object type: /v1, Kind=MachinePool"),
            (pool(managedFields=[]), "metadata.managedFields must be nil"),
            (pool({"a": 1}), ".metadata.labels.a: expected string, got 1"),
            (many, "errors:\n  .spec.x0: field not declared in schema\n"),
        ]:
            with self.assertRaises(BadRequest) as caught:
                updates.check_configuration(KIND, config)
            self.assertIn(told, caught.exception.message)
            self.assertLessEqual(len(caught.exception.message.splitlines()), 33)
