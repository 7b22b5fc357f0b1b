"""
Tests for :mod:`twisted_exec.api.kinds.spaces` and its neighbours, through the way into the store.
"""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.api.space_cases import CHANGING, HOME, IMPORTED, MAKING, MANAGED, Case
from twisted_exec.api import spaces, strategy, table
from twisted_exec.api.kinds import Kind, Object
from twisted_exec.api.kinds.common.jsonpath import column, condition
from twisted_exec.api.kinds.spaces import SPACEPROVIDERDESCS, SPACES
from twisted_exec.api.schema import Schema
from twisted_exec.api.status import Invalid


def make(case: Case, spec: Any = None) -> Object:
    """What is stored."""
    body = case.body(case.after if spec is None else spec)
    namespace = case.namespace if case.kind.resource.namespaced else ""
    made = strategy.for_create(case.kind, body, namespace=namespace, now=0)
    made["metadata"]["resourceVersion"] = "1"
    return made


def space(**status: Any) -> Object:
    """A stored Space with a status."""
    made = make(MAKING["upstream's sample"])
    return strategy.for_update(SPACES, {**made, "status": status}, made, subresource="status")


def shown(kind: Kind, obj: Object) -> dict[str, str]:
    """The cells of its row by their columns."""
    names = [each["name"] for each in table.column_definitions(kind)]
    return dict(zip(names, table.cells(kind, obj, 0), strict=True))


class CaseTests(SynchronousTestCase):
    """What is accepted and what is not; SF's manager learnt of most of it too late, or never."""

    def check(self, case: Case, told: str, say: Any) -> None:
        if not case.told:
            say()
            return
        with self.assertRaises(Invalid, msg=told) as caught:
            say()
        self.assertIn(case.told, str(caught.exception), told)

    def test_making(self) -> None:
        """What is made."""
        for told, case in MAKING.items():
            self.check(case, told, lambda case=case: make(case))

    def test_changing(self) -> None:
        """What is changed, in whatever way: what may not change cannot be taken away either."""
        for told, case in CHANGING.items():
            old = make(case, case.before)

            def change(case: Case = case, old: Object = old) -> None:
                strategy.for_update(case.kind, {**old, "spec": dict(case.after)}, old)

            self.check(case, told, change)


class SpaceTests(SynchronousTestCase):
    """Spaces."""

    def test_defaults(self) -> None:
        """They are upstream's."""
        made = make(MAKING["managed by default"])
        self.assertEqual(made["spec"], {**MANAGED, "accessscopetype": "Both"})
        self.assertNotIn("status", made)

    def test_spelling(self) -> None:
        """
        Fields have upstream's spelling and no other: kubectl is told of those that nobody defined.
        """
        spec = {"type": "managed", "accessScope": "Both", "spaceProviderDescName": "x", **MANAGED}
        found = strategy.unknown_fields(SPACES, {"spec": spec})
        expected = ["spec.type", "spec.accessScope", "spec.spaceProviderDescName"]
        self.assertEqual(found, expected)

    def test_status_apart(self) -> None:
        """Who may write a Space may not write its status by the way."""
        made = make(MAKING["upstream's sample"])
        changed = strategy.for_update(SPACES, {**made, "status": {"Phase": "Ready"}}, made)
        self.assertNotIn("status", changed)
        self.assertEqual(changed["metadata"]["generation"], 1)

    def test_generation(self) -> None:
        """It counts what is wanted."""
        made = make(MAKING["upstream's sample"])
        spec = {**made["spec"], "accessscopetype": "External"}
        changed = strategy.for_update(SPACES, {**made, "spec": spec}, made)
        self.assertEqual(changed["metadata"]["generation"], 2)

    def test_status(self) -> None:
        """What the manager writes is kept as it is."""
        status = {
            "Phase": "Ready",
            "inClusterSecretRef": {"name": "incluster-space5", "namespace": HOME},
            "endpoints": [{"viewpoint": "External", "server": "https://h:1"}],
            "physicalUID": "u",
            "credentialsExpireTime": "2026-01-01T00:00:00Z",
            "observedGeneration": 1,
            "conditions": [
                {
                    "type": "Synced",
                    "status": "True",
                    "reason": "Done",
                    "message": "",
                    "observedGeneration": 1,
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }
            ],
        }
        self.assertEqual(space(**status)["status"], status)

    def test_old_finalizer(self) -> None:
        """Upstream's finalizer has no domain, and may be taken away."""
        case = MAKING["upstream's sample"]
        body = case.body(MANAGED)
        body["metadata"]["finalizers"] = [spaces.OLD_FINALIZER]
        made = strategy.for_create(SPACES, body, namespace=HOME, now=0)
        self.assertEqual(made["metadata"]["finalizers"], ["SpaceFinalizer"])

    def test_imported_defaults(self) -> None:
        """A Secret's namespace is not filled in: the Space's own is meant."""
        self.assertEqual(make(MAKING["imported"])["spec"], {**IMPORTED, "accessscopetype": "Both"})


class ColumnTests(SynchronousTestCase):
    """``kubectl get``."""

    def test_new_space(self) -> None:
        """Of one that nobody looked at yet."""
        told = shown(SPACES, make(MAKING["upstream's sample"]))
        self.assertEqual(
            list(told)[:6], ["Name", "Type", "Provider", "Phase", "Credentials", "Age"]
        )
        self.assertEqual([told[key] for key in ("Type", "Provider")], ["managed", "pkflex"])
        self.assertEqual([told[key] for key in ("Phase", "Message")], ["<none>", "<none>"])

    def test_trouble(self) -> None:
        """The first condition that does not hold says what is the matter."""
        conditions = [
            {
                "type": type,
                "status": status,
                "reason": "R",
                "message": message,
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
            for type, status, message in (
                ("ProviderReachable", "True", "it answers"),
                ("CredentialsValid", "False", "they are refused"),
            )
        ]
        told = shown(SPACES, space(Phase="NotReady", conditions=conditions))
        self.assertEqual(told["Message"], "they are refused")
        self.assertEqual((told["Credentials"], told["Reachable"]), ("False", "True"))

    def test_server(self) -> None:
        """Where it is, as seen from outside."""
        both = [
            {"viewpoint": "InCluster", "server": "https://in:1"},
            {"viewpoint": "External", "server": "https://out:2"},
        ]
        self.assertEqual(shown(SPACES, space(endpoints=both))["Server"], "https://out:2")

    def test_provider(self) -> None:
        """What it is, and how many Spaces it has."""
        made = make(MAKING["a provider"])
        done = strategy.for_update(
            SPACEPROVIDERDESCS, {**made, "status": {"spaces": 0}}, made, subresource="status"
        )
        told = shown(SPACEPROVIDERDESCS, done)
        self.assertEqual([told["Type"], told["Phase"]], ["kubeflex", "Initializing"])
        self.assertEqual([told["Spaces"], told["Discovers"]], ["0", "ks-"])


class PathTests(SynchronousTestCase):
    """Tests for :mod:`twisted_exec.api.kinds.common.jsonpath`."""

    def read(self, path: str, obj: Object) -> str | None:
        return column("X", path).read(obj)

    def test_members(self) -> None:
        """Members of members; what is not there is told so."""
        self.assertEqual(self.read(".a.b", {"a": {"b": 0}}), "0")
        for there in ({}, {"a": None}, {"a": {"b": ""}}, {"a": [1]}):
            self.assertEqual(self.read(".a.b", there), "<none>")

    def test_choice(self) -> None:
        """One of a list, by a member."""
        there = {"status": {"conditions": [{"type": "A", "status": "False"}, {}]}}
        self.assertEqual(self.read(condition("A"), there), "False")
        self.assertEqual(self.read(condition("B"), there), "<none>")
        self.assertEqual(self.read(".status.conditions[*].type", there), "A")

    def test_not_understood(self) -> None:
        """What is not understood is no column."""
        for path in ("a", ".a[0]", '.a[?(@.b>"c")]'):
            with self.assertRaises(ValueError):
                column("X", path)


class BoundTests(SynchronousTestCase):
    """Every rule that compares is about the whole spec: SF's could be got round."""

    def test_transition_rules(self) -> None:
        """kube-apiserver skips a rule with ``oldSelf`` where what has it is missing."""

        def below(schema: Schema) -> list[str]:
            inner = [*schema.get("properties", {}).values()]
            inner += [schema[key] for key in ("items", "additionalProperties") if key in schema]
            own = [rule["rule"] for rule in schema.get("x-kubernetes-validations", ())]
            return [*own, *(rule for each in inner for rule in below(each))]

        for kind in (SPACES, SPACEPROVIDERDESCS):
            spec = kind.schema["spec"]
            self.assertIn("spec", kind.required)
            inside = [rule for each in spec["properties"].values() for rule in below(each)]
            self.assertFalse([rule for rule in inside if "oldSelf" in rule])
