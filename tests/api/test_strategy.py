"""
Tests for :mod:`twisted_exec.api.strategy`.
"""

from __future__ import annotations

import copy
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api import kinds, strategy
from twisted_exec.api.kinds import Kind, Object
from twisted_exec.api.status import BadRequest, Conflict, Invalid

from .counted import Counted, counted

NOW = 1_700_000_000


def body(**spec: Any) -> Object:
    """Return a machine as a user writes it."""
    return {
        "apiVersion": "compute.ironcore.dev/v1alpha1",
        "kind": "Machine",
        "metadata": {"name": "vm-1"},
        "spec": {"machineClassRef": {"name": "small"}, **spec},
    }


def create(obj: Object, kind: Kind = kinds.MACHINES, namespace: str = "default") -> Object:
    """Return the object that the store would hold."""
    return strategy.for_create(kind, obj, namespace=namespace, now=NOW)


def stored(**spec: Any) -> Object:
    """Return a machine as the store holds it."""
    obj = create(body(**spec))
    obj["metadata"]["resourceVersion"] = "7"
    return obj


class CreateTests(SynchronousTestCase):
    """Tests for :func:`strategy.for_create`."""

    def test_what_the_server_adds(self) -> None:
        """The server adds uid, creation time, generation, defaults and the first status."""
        obj = create(body())
        metadata = obj["metadata"]
        self.assertEqual(len(metadata.pop("uid")), 36)
        self.assertEqual(
            metadata,
            {
                "name": "vm-1",
                "namespace": "default",
                "creationTimestamp": "2023-11-14T22:13:20Z",
                "generation": 1,
            },
        )
        self.assertEqual(obj["spec"]["power"], "On")
        self.assertEqual(obj["status"], {"state": "Pending"})

    def test_what_the_client_may_not_set(self) -> None:
        """Status, identity and ownership of fields are the server's."""
        obj = body()
        obj["status"] = {"state": "Running"}
        obj["metadata"] |= {
            "uid": "mine",
            "generation": 9,
            "creationTimestamp": "2000-01-01T00:00:00Z",
            "deletionTimestamp": "2000-01-01T00:00:00Z",
            "managedFields": [{}],
            "selfLink": "/x",
        }
        made = create(obj)
        self.assertEqual(made["status"], {"state": "Pending"})
        self.assertNotEqual(made["metadata"]["uid"], "mine")
        self.assertEqual(made["metadata"]["generation"], 1)
        for key in ("deletionTimestamp", "managedFields", "selfLink"):
            self.assertNotIn(key, made["metadata"])

    def test_generated_name(self) -> None:
        """``generateName`` produces a name with a random suffix."""
        obj = body()
        obj["metadata"] = {"generateName": "vm-"}
        self.assertRegex(create(obj)["metadata"]["name"], r"^vm-[a-z0-9]{5}$")

    def test_contradictions(self) -> None:
        """A body of another kind, version or namespace, or with a resourceVersion, is refused."""
        for change in [
            {"kind": "MachinePool"},
            {"apiVersion": "compute.ironcore.dev/v1"},
            {"metadata": {"name": "a", "namespace": "other"}},
            {"metadata": {"name": "a", "resourceVersion": "1"}},
            {"metadata": []},
        ]:
            with self.assertRaises(BadRequest, msg=str(change)):
                create({**body(), **change})

    def test_unreadable_fields(self) -> None:
        """A wrong type anywhere is refused with the field's path, not with a traceback."""
        for change, field in [
            ({"spec": []}, "spec"),
            ({"spec": {"machineClassRef": "small"}}, "spec.machineClassRef"),
            ({"spec": {"machineClassRef": {"name": 1}}}, "spec.machineClassRef.name"),
            ({"spec": None}, "spec"),
            ({"metadata": {"name": 5}}, "metadata.name"),
            ({"metadata": {"name": "a", "labels": {"a": 1}}}, "metadata.labels[a]"),
            ({"metadata": {"name": "a", "finalizers": "x"}}, "metadata.finalizers"),
            ({"metadata": {"name": "a", "annotations": [1]}}, "metadata.annotations"),
            ({"metadata": {}}, "metadata.name"),
        ]:
            with self.assertRaises(Invalid, msg=str(change)) as caught:
                create({**body(), **change})
            causes = caught.exception.details["causes"]
            self.assertEqual([cause["field"] for cause in causes], [field])

    def test_metadata_rules(self) -> None:
        """Names, labels, annotations and finalizers have rules."""
        for metadata, field in [
            ({"name": "A"}, "metadata.name"),
            ({"name": "a", "labels": {"-": "x"}}, "metadata.labels"),
            ({"name": "a", "labels": {"x": "a b"}}, "metadata.labels"),
            ({"name": "a", "annotations": {"a b": "x"}}, "metadata.annotations"),
            ({"name": "a", "annotations": {"a": "x" * 300_000}}, "metadata.annotations"),
            ({"name": "a", "annotations": {"a": "\u00e9" * 150_000}}, "metadata.annotations"),
            ({"name": "a", "finalizers": ["a/b/c"]}, "metadata.finalizers[0]"),
        ]:
            with self.assertRaises(Invalid, msg=str(metadata)[:80]) as caught:
                create({**body(), "metadata": metadata})
            self.assertEqual(caught.exception.details["causes"][0]["field"], field)


class UpdateTests(SynchronousTestCase):
    """Tests for :func:`strategy.for_update`."""

    def update(self, old: Object, subresource: str = "", **change: Any) -> Object:
        return strategy.for_update(
            kinds.MACHINES, {**copy.deepcopy(old), **change}, old, subresource=subresource
        )

    def test_nothing_changed(self) -> None:
        """An update without changes stores the same object."""
        old = stored()
        self.assertEqual(self.update(old), old)

    def test_generation(self) -> None:
        """Only changes of the spec increment the generation."""
        old = stored()
        new = self.update(old, spec={**old["spec"], "power": "Off"})
        self.assertEqual(new["metadata"]["generation"], 2)
        labelled = {**old["metadata"], "labels": {"a": "b"}}
        self.assertEqual(self.update(old, metadata=labelled)["metadata"]["generation"], 1)
        told = self.update(old, "status", status={"state": "Running"})
        self.assertEqual(told["metadata"]["generation"], 1)

    def test_status_is_apart(self) -> None:
        """An update leaves the status unchanged, and a status update leaves the rest unchanged."""
        old = stored()
        self.assertEqual(self.update(old, status={"state": "Running"}), old)
        new = self.update(
            old, "status", status={"state": "Running"}, spec={**old["spec"], "power": "Off"}
        )
        self.assertEqual(new["status"], {"state": "Running"})
        self.assertEqual(new["spec"], old["spec"])

    def test_bad_status(self) -> None:
        """A status that does not fit is refused."""
        with self.assertRaises(Invalid):
            self.update(stored(), "status", status={"state": "Happy"})

    def test_identity_stays(self) -> None:
        """Server-owned metadata is carried over, whatever the client sends."""
        old = stored()
        new = self.update(
            old,
            metadata={"name": "vm-1", "creationTimestamp": "2000-01-01T00:00:00Z", "generation": 9},
        )
        self.assertEqual(new, old)

    def test_preconditions(self) -> None:
        """Another UID or version is a conflict, another name or namespace a bad request."""
        old = stored()
        for metadata, error in [
            ({"resourceVersion": "6"}, Conflict),
            ({"uid": "another"}, Conflict),
            ({"name": "other"}, BadRequest),
            ({"namespace": "other"}, BadRequest),
        ]:
            with self.assertRaises(error):
                self.update(old, metadata={**old["metadata"], **metadata})

    def test_later_rule(self) -> None:
        """An object that a later rule refuses keeps its contents, and may change its metadata."""
        old = stored()
        old["spec"]["machineClassRef"] = {"name": "-"}
        labelled = {**old["metadata"], "labels": {"a": "b"}, "finalizers": []}
        self.assertEqual(self.update(old, metadata=labelled)["metadata"]["labels"], {"a": "b"})
        for change in (
            {"spec": {**old["spec"], "power": "Off"}},
            {"metadata": {**old["metadata"], "labels": {"-": "b"}}},
        ):
            with self.assertRaises(Invalid):
                self.update(old, **change)

    def test_immutable(self) -> None:
        """The class never changes, a pool is set once."""
        old = stored()
        bound = self.update(old, spec={**old["spec"], "machinePoolRef": {"name": "p"}})
        for spec in [
            {**bound["spec"], "machineClassRef": {"name": "big"}},
            {**bound["spec"], "machinePoolRef": {"name": "q"}},
            {**old["spec"]},
        ]:
            with self.assertRaises(Invalid) as caught:
                self.update(bound, spec=spec)
            self.assertIn("Forbidden: field is immutable", caught.exception.message)

    def test_finalizers_of_the_dying(self) -> None:
        """While an object is being deleted, finalizers can be removed but not added."""
        old = stored()
        old["metadata"] |= {"deletionTimestamp": "2023-11-14T22:13:20Z", "finalizers": ["a/b"]}
        fewer = self.update(old, metadata={**old["metadata"], "finalizers": []})
        self.assertNotIn("finalizers", fewer["metadata"])
        with self.assertRaises(Invalid) as caught:
            self.update(old, metadata={**old["metadata"], "finalizers": ["a/b", "c/d"]})
        self.assertIn("no new finalizers can be added", caught.exception.message)

    def test_repeated_finalizers(self) -> None:
        """Finalizers may be repeated, as in Kubernetes: such an object can be changed and deleted."""
        metadata = {**body()["metadata"], "finalizers": ["a/b", "a/b"]}
        old = stored()
        old["metadata"] |= {
            "finalizers": create({**body(), "metadata": metadata})["metadata"]["finalizers"]
        }
        labelled = self.update(old, metadata={**old["metadata"], "labels": {"a": "b"}})
        self.assertEqual(labelled["metadata"]["finalizers"], ["a/b", "a/b"])
        old["metadata"]["deletionTimestamp"] = "2023-11-14T22:13:20Z"
        for rest in (["a/b", "a/b"], ["a/b"], []):
            fewer = self.update(old, metadata={**old["metadata"], "finalizers": rest})
            self.assertEqual(fewer["metadata"].get("finalizers", []), rest)

    def test_many_finalizers_of_the_dying(self) -> None:
        """The number of comparisons grows linearly with the number of finalizers."""
        old, finalizers = stored(), counted("a/x", 1000)
        old["metadata"] |= {"deletionTimestamp": "2023-11-14T22:13:20Z", "finalizers": finalizers}
        told = [*map(str, finalizers[1:])]
        fewer = self.update(old, metadata={**old["metadata"], "finalizers": told})
        self.assertEqual(fewer["metadata"]["finalizers"], told)
        self.assertLess(Counted.compared, 10_000)


class UnknownTests(SynchronousTestCase):
    """Tests for :func:`strategy.unknown_fields`."""

    def test_told(self) -> None:
        """Unknown fields are reported and not stored."""
        obj = body(pwoer="On")
        obj["extra"] = 1
        self.assertEqual(strategy.unknown_fields(kinds.MACHINES, obj), ["spec.pwoer", "extra"])
        self.assertNotIn("pwoer", create(obj)["spec"])
