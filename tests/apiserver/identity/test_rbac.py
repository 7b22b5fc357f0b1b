"""
Tests for :mod:`twisted_exec.apiserver.identity.rbac` and ``bootstrap``: RBAC from stored objects.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.trial.unittest import SynchronousTestCase

from tests.apiserver.support import MACHINES, MERGE, RBAC, APITestCase
from twisted_exec.api import kinds
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.apiserver.controllers.system_objects import create_system_objects
from twisted_exec.apiserver.identity.rbac import StoredRules
from twisted_exec.auth.default_roles import bootstrap_objects
from twisted_exec.storage.interfaces import Listing
from twisted_exec.storage.memory import MemoryStorage

ROLES = f"{RBAC}/namespaces/default/roles"
BINDINGS = f"{RBAC}/namespaces/default/rolebindings"
CLUSTERROLES = f"{RBAC}/clusterroles"


def role(name: str, verbs: list[str], resource: str = "machines") -> dict[str, Any]:
    """A role for machines."""
    rule = {"verbs": verbs, "apiGroups": ["compute.ironcore.dev"], "resources": [resource]}
    return {"metadata": {"name": name}, "rules": [rule]}


def binding(name: str, role_name: str, user: str, kind: str = "ClusterRole") -> dict[str, Any]:
    """A binding."""
    return {
        "metadata": {"name": name},
        "roleRef": {"kind": kind, "name": role_name},
        "subjects": [{"kind": "User", "name": user}],
    }


class StoredRulesTests(APITestCase):
    """Rules come from stored objects."""

    def test_at_once(self) -> None:
        """A binding counts with the next request, and so does its removal."""
        self.refused(403, "GET", MACHINES, user="jane")
        self.bind("jane", "view")
        self.answer("GET", MACHINES, user="jane")
        self.refused(403, "GET", MACHINES.replace("default", "kube-system"), user="jane")
        self.answer("DELETE", f"{BINDINGS}/jane-view")
        self.refused(403, "GET", MACHINES, user="jane")

    def test_role_changes(self) -> None:
        """A role that changes changes what its subjects may."""
        self.answer("POST", ROLES, role("r", ["get"]), code=201)
        self.answer("POST", BINDINGS, binding("b", "r", "jane", "Role"), code=201)
        self.refused(403, "GET", MACHINES, user="jane")
        self.answer("PATCH", f"{ROLES}/r", role("r", ["list"]), content_type=MERGE)
        self.answer("GET", MACHINES, user="jane")


class SlowStorage(MemoryStorage):
    """A store whose lists come when they are let go."""

    def __init__(self) -> None:
        super().__init__()
        self.held: list[Deferred[None]] = []

    def list(self, resource: Resource, namespace: str = "", **how: Any) -> Deferred[Listing]:
        self.held.append(Deferred())
        listed = super().list
        return self.held[-1].addCallback(lambda _: listed(resource, namespace, **how))

    def let_go(self) -> int:
        """Answer the held lists, and return how many were requested one after another."""
        first = len(self.held)
        for each in self.held:  # which grows meanwhile
            if not each.called:
                each.callback(None)
        return len(self.held) - first


class SharedTests(SynchronousTestCase):
    """Tests for :meth:`StoredRules.snapshot`, by a store that takes its time."""

    def setUp(self) -> None:
        self.storage = SlowStorage()
        self.rules = StoredRules(self.storage)
        self.rules.startService()
        self.addCleanup(self.rules.stopService)

    def change(self, name: str) -> None:
        obj = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "rules": []}
        made = self.storage.create(
            kinds.CLUSTERROLES.resource, obj | {"metadata": {"name": name, "uid": name}}
        )
        self.successResultOf(made)

    def test_together(self) -> None:
        """Callers between two changes share one answer, from one read."""
        asked = [self.rules.snapshot() for _ in range(10)]
        self.assertEqual(len(self.storage.held), 1)
        self.storage.let_go()
        told = [self.successResultOf(each) for each in asked]
        self.assertEqual({id(each) for each in told}, {id(told[0])})
        self.assertIs(self.successResultOf(self.rules.snapshot()), told[0])
        self.assertEqual(len(self.storage.held), 4)

    def test_change_meanwhile(self) -> None:
        """A caller after a change gets no older answer, and that answer is not cached."""
        before = self.rules.snapshot()
        self.storage.held[0].callback(None)
        self.change("new")
        after, again = self.rules.snapshot(), self.rules.snapshot()
        self.storage.let_go()
        self.assertEqual(self.successResultOf(before).cluster_roles, [])
        told = self.successResultOf(after)
        self.assertEqual([each["metadata"]["name"] for each in told.cluster_roles], ["new"])
        self.assertIs(self.successResultOf(again), told)
        self.assertIs(self.successResultOf(self.rules.snapshot()), told)

    def test_failure(self) -> None:
        """A failed read fails all waiting callers, and the next one reads again."""
        asked = [self.rules.snapshot() for _ in range(3)]
        asked[0].cancel()
        self.failureResultOf(asked[0], CancelledError)
        self.storage.held[0].errback(ServiceUnavailable("away"))
        for each in asked[1:]:
            self.failureResultOf(each, ServiceUnavailable)
        again = self.rules.snapshot()
        self.storage.let_go()
        self.successResultOf(again)


class EscalationTests(APITestCase):
    """Users cannot grant more than they have."""

    def setUp(self) -> None:
        super().setUp()
        self.bind("jane", "admin")

    def test_roles(self) -> None:
        """A role of what one has is fine, of more it is not."""
        self.answer("POST", ROLES, role("fine", ["get", "list"]), user="jane", code=201)
        told = self.refused(
            403, "POST", ROLES, role("more", ["get"], "machines/proxy"), user="jane"
        )
        self.assertIn("attempting to grant RBAC permissions not currently held", told)
        more = {"rules": role("fine", ["*"])["rules"]}
        self.refused(403, "PATCH", f"{ROLES}/fine", more, user="jane", content_type=MERGE)
        labels = {"metadata": {"labels": {"a": "b"}}}
        self.answer("PATCH", f"{ROLES}/fine", labels, user="jane", content_type=MERGE)

    def test_escalate(self) -> None:
        """The verb ``escalate`` allows it."""
        body = role("may-escalate", ["escalate"], "roles")
        body["rules"][0]["apiGroups"] = ["rbac.authorization.k8s.io"]
        self.answer("POST", CLUSTERROLES, body, code=201)
        self.bind("jane", "may-escalate")
        self.answer("POST", ROLES, role("more", ["get"], "things"), user="jane", code=201)

    def test_bindings(self) -> None:
        """A binding needs what its role allows."""
        self.answer("POST", BINDINGS, binding("fine", "edit", "bob"), user="jane", code=201)
        self.refused(403, "POST", BINDINGS, binding("more", "cluster-admin", "jane"), user="jane")
        self.refused(404, "POST", BINDINGS, binding("later", "not-yet", "jane"), user="jane")
        subjects = {"subjects": [{"kind": "User", "name": "eve"}]}
        self.answer("PATCH", f"{BINDINGS}/fine", subjects, user="jane", content_type=MERGE)

    def test_bind(self) -> None:
        """The verb ``bind`` on the role allows it."""
        body = role("may-bind", ["bind"], "clusterroles")
        body["rules"][0] |= {
            "apiGroups": ["rbac.authorization.k8s.io"],
            "resourceNames": ["cluster-admin"],
        }
        self.answer("POST", CLUSTERROLES, body, code=201)
        self.bind("jane", "may-bind")
        self.answer(
            "POST", BINDINGS, binding("more", "cluster-admin", "bob"), user="jane", code=201
        )

    def test_gathering(self) -> None:
        """A role that gathers others by label could gather anything."""
        self.answer(
            "POST",
            CLUSTERROLES,
            {
                **role("writer", ["*"], "clusterroles"),
                "rules": [
                    {
                        "verbs": ["*"],
                        "apiGroups": ["rbac.authorization.k8s.io"],
                        "resources": ["clusterroles"],
                    }
                ],
            },
            code=201,
        )
        # ``*`` would include escalate.
        rules = [
            {
                "verbs": ["create"],
                "apiGroups": ["rbac.authorization.k8s.io"],
                "resources": ["clusterroles"],
            }
        ]
        self.answer("PATCH", f"{CLUSTERROLES}/writer", {"rules": rules}, content_type=MERGE)
        everywhere = binding("writer", "writer", "jane")
        self.answer("POST", f"{RBAC}/clusterrolebindings", everywhere, code=201)
        gathering = {
            "metadata": {"name": "g"},
            "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]},
        }
        self.refused(403, "POST", CLUSTERROLES, gathering, user="jane")

    def test_gathered(self) -> None:
        """A label can put a role into another one, so it needs the role's rules as well."""
        write = role("writer", ["get", "update", "patch"], "clusterroles")
        write["rules"][0]["apiGroups"] = ["rbac.authorization.k8s.io"]
        self.answer("POST", CLUSTERROLES, write, code=201)
        everywhere = binding("writer", "writer", "jane")
        self.answer("POST", f"{RBAC}/clusterrolebindings", everywhere, code=201)
        label = {"rbac.authorization.k8s.io/aggregate-to-edit": "true"}
        labels = {"metadata": {"labels": label}}
        path = f"{CLUSTERROLES}/cluster-admin"
        told = self.refused(403, "PATCH", path, labels, user="jane", content_type=MERGE)
        self.assertIn("attempting to grant RBAC permissions not currently held", told)
        whole = {**self.stored(kinds.CLUSTERROLES, "cluster-admin")}
        whole["metadata"] = {**whole["metadata"], "labels": label}
        self.refused(403, "PUT", path, whole, user="jane")
        # What one has oneself may be gathered.
        self.answer("PATCH", f"{CLUSTERROLES}/writer", labels, user="jane", content_type=MERGE)

    def test_no_longer_gathering(self) -> None:
        """An aggregated role cannot be turned into fixed rules by a user with fewer permissions."""
        write = role("writer", ["get", "update", "patch"], "clusterroles")
        write["rules"][0]["apiGroups"] = ["rbac.authorization.k8s.io"]
        self.answer("POST", CLUSTERROLES, write, code=201)
        everywhere = binding("writer", "writer", "jane")
        self.answer("POST", f"{RBAC}/clusterrolebindings", everywhere, code=201)
        less = {"aggregationRule": None, "rules": write["rules"]}
        self.refused(403, "PATCH", f"{CLUSTERROLES}/view", less, user="jane", content_type=MERGE)

    def test_going(self) -> None:
        """Removing finalizers or owners of a role grants nothing."""
        write = role("writer", ["get", "update", "patch"], "clusterroles")
        write["rules"][0]["apiGroups"] = ["rbac.authorization.k8s.io"]
        self.answer("POST", CLUSTERROLES, write, code=201)
        everywhere = binding("writer", "writer", "jane")
        self.answer("POST", f"{RBAC}/clusterrolebindings", everywhere, code=201)
        held = {"metadata": {"finalizers": ["x/y"]}}
        path = f"{CLUSTERROLES}/cluster-admin"
        self.answer("PATCH", path, held, user="jane", content_type=MERGE)


class BootstrapTests(APITestCase):
    """Objects created at the start."""

    def again(self) -> None:
        """The next start."""
        made = Deferred.fromCoroutine(
            create_system_objects(self.storage, self.parts.verbs, bootstrap_objects(self.dialects))
        )
        self.successResultOf(made)

    def test_made_once(self) -> None:
        """A second start changes nothing."""
        before = self.storage.version()
        self.again()
        self.assertEqual(self.storage.version(), before)

    def test_completed(self) -> None:
        """Missing rules are restored, additions stay."""
        rules = [{"verbs": ["get"], "apiGroups": ["x"], "resources": ["y"]}]
        self.answer(
            "PATCH", f"{CLUSTERROLES}/system:discovery", {"rules": rules}, content_type=MERGE
        )
        self.answer("DELETE", f"{CLUSTERROLES}/view")
        self.again()
        discovery = self.stored(kinds.CLUSTERROLES, "system:discovery")
        self.assertEqual(len(discovery["rules"]), 2)
        self.stored(kinds.CLUSTERROLES, "view")

    def test_left_alone(self) -> None:
        """With the update switched off the object stays as it is."""
        off = {
            "rules": [],
            "metadata": {"annotations": {"rbac.authorization.kubernetes.io/autoupdate": "false"}},
        }
        self.answer("PATCH", f"{CLUSTERROLES}/system:discovery", off, content_type=MERGE)
        self.again()
        self.assertEqual(self.stored(kinds.CLUSTERROLES, "system:discovery")["rules"], [])
