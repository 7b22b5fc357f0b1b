"""
Tests for :mod:`twisted_exec.api.kinds.spaces` and its neighbours, through the way into the store.
"""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.api.space_cases import CHANGING, HOME, IMPORTED, MAKING, MANAGED, Case
from twisted_exec.api import spaces, strategy, table
from twisted_exec.api.kinds import Kind, Object
from twisted_exec.api.kinds.spaces import SPACEPROVIDERDESCS, SPACES
from twisted_exec.api.schema import Schema
from twisted_exec.api.status import Invalid


def make(case: Case, spec: Any = None) -> Object:
    """Return the object that the store would hold for this case."""
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
    """Return the cells of an object's row, by column."""
    names = [each["name"] for each in table.column_definitions(kind)]
    return dict(zip(names, table.cells(kind, obj, 0), strict=True))


class CaseTests(SynchronousTestCase):
    """
    Cases that the API server accepts or refuses; SF's manager refused most of them late or never.
    """

    def check(self, case: Case, told: str, say: Any) -> None:
        if not case.told:
            say()
            return
        with self.assertRaises(Invalid, msg=told) as caught:
            say()
        self.assertIn(case.told, str(caught.exception), told)

    def test_making(self) -> None:
        """Creation of Spaces and providers."""
        for told, case in MAKING.items():
            self.check(case, told, lambda case=case: make(case))

    def test_changing(self) -> None:
        """Updates of Spaces and providers; an immutable field cannot be removed either."""
        for told, case in CHANGING.items():
            old = make(case, case.before)

            def change(case: Case = case, old: Object = old) -> None:
                strategy.for_update(case.kind, {**old, "spec": dict(case.after)}, old)

            self.check(case, told, change)


class SpaceTests(SynchronousTestCase):
    """Spaces."""

    def test_defaults(self) -> None:
        """Defaults are the same as upstream's."""
        made = make(MAKING["managed by default"])
        self.assertEqual(made["spec"], {**MANAGED, "accessscopetype": "Both"})
        self.assertNotIn("status", made)

    def test_spelling(self) -> None:
        """Only upstream's spelling of a field is known; kubectl gets a warning about any other."""
        spec = {"type": "managed", "accessScope": "Both", "spaceProviderDescName": "x", **MANAGED}
        found = strategy.unknown_fields(SPACES, {"spec": spec})
        expected = ["spec.type", "spec.accessScope", "spec.spaceProviderDescName"]
        self.assertEqual(found, expected)

    def test_status_apart(self) -> None:
        """An update of a Space does not change its status."""
        made = make(MAKING["upstream's sample"])
        changed = strategy.for_update(SPACES, {**made, "status": {"Phase": "Ready"}}, made)
        self.assertNotIn("status", changed)
        self.assertEqual(changed["metadata"]["generation"], 1)

    def test_generation(self) -> None:
        """A change of the spec increments the generation."""
        made = make(MAKING["upstream's sample"])
        spec = {**made["spec"], "accessscopetype": "External"}
        changed = strategy.for_update(SPACES, {**made, "spec": spec}, made)
        self.assertEqual(changed["metadata"]["generation"], 2)

    def test_status(self) -> None:
        """The status that the manager writes is stored unchanged."""
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
        """Upstream's finalizer, which has no domain, is accepted."""
        case = MAKING["upstream's sample"]
        body = case.body(MANAGED)
        body["metadata"]["finalizers"] = [spaces.OLD_FINALIZER]
        made = strategy.for_create(SPACES, body, namespace=HOME, now=0)
        self.assertEqual(made["metadata"]["finalizers"], ["SpaceFinalizer"])

    def test_imported_defaults(self) -> None:
        """
        The namespace of a Secret reference has no default: it means the Space's own namespace.
        """
        self.assertEqual(make(MAKING["imported"])["spec"], {**IMPORTED, "accessscopetype": "Both"})


class ColumnTests(SynchronousTestCase):
    """``kubectl get``."""

    def test_new_space(self) -> None:
        """The row of a Space that no manager has handled yet."""
        told = shown(SPACES, make(MAKING["upstream's sample"]))
        self.assertEqual(
            list(told)[:6], ["Name", "Type", "Provider", "Phase", "Credentials", "Age"]
        )
        self.assertEqual([told[key] for key in ("Type", "Provider")], ["managed", "pkflex"])
        self.assertEqual([told[key] for key in ("Phase", "Message")], ["<none>", "<none>"])

    def test_trouble(self) -> None:
        """The message column shows the first condition that is not True."""
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
        """The Server column shows the external endpoint."""
        both = [
            {"viewpoint": "InCluster", "server": "https://in:1"},
            {"viewpoint": "External", "server": "https://out:2"},
        ]
        self.assertEqual(shown(SPACES, space(endpoints=both))["Server"], "https://out:2")

    def test_provider(self) -> None:
        """The row of a provider shows its type, its phase and the number of its Spaces."""
        made = make(MAKING["a provider"])
        done = strategy.for_update(
            SPACEPROVIDERDESCS, {**made, "status": {"spaces": 0}}, made, subresource="status"
        )
        told = shown(SPACEPROVIDERDESCS, done)
        self.assertEqual([told["Type"], told["Phase"]], ["kubeflex", "Initializing"])
        self.assertEqual([told["Spaces"], told["Discovers"]], ["0", "ks-"])


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
