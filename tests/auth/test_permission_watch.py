"""Tests for :mod:`twisted_exec.auth.permission_watch`."""

from __future__ import annotations

from typing import Any

from prometheus_client import CollectorRegistry
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.kinds import (
    CLUSTERROLEBINDINGS,
    CLUSTERROLES,
    ROLEBINDINGS,
    ROLES,
    SELFSUBJECTACCESSREVIEWS,
)
from twisted_exec.api.kinds.kind import Kind
from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.auth.interfaces import User
from twisted_exec.auth.permission_watch import (
    ASK_AGAIN_SECONDS,
    SECOND_HINT_SECONDS,
    SPACING_SECONDS,
    PermissionWatch,
)
from twisted_exec.testing.cluster import MemoryCluster

GROUP = "rbac.authorization.k8s.io"
RULES = [{"verbs": ["create"], "apiGroups": ["x"], "resources": ["machines/exec"]}]


class Client:
    """
    A client of a cluster in memory, which answers questions about its own rights.

    :ivar may_watch: the answer.
    """

    def __init__(self, cluster: MemoryCluster) -> None:
        self._client = cluster.client()
        self.may_watch, self.questions = True, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def create(self, resource: Any, obj: Any, namespace: str = "") -> Deferred[Any]:
        if resource == SELFSUBJECTACCESSREVIEWS.resource:
            self.questions += 1
            return succeed({"status": {"allowed": self.may_watch}})
        return self._client.create(resource, obj, namespace)


class PermissionWatchTests(SynchronousTestCase):
    """Tests for :class:`PermissionWatch`."""

    def setUp(self) -> None:
        self.clock, self.cluster, self.registry = Clock(), MemoryCluster(), CollectorRegistry()
        self.client: Any = Client(self.cluster)
        self.users = [User("ann", ("ops",))]
        self.watch = PermissionWatch(self.client, self.clock, self.registry, lambda: self.users)
        self.hints: list[str] = []
        self.watch.forget = lambda: self.hints.append("forget")
        self.watch.changed = lambda: self.hints.append("changed")
        self.addCleanup(self.watch.stop)

    def make(self, kind: Kind, name: str, namespace: str = "", **fields: Any) -> None:
        obj = {"metadata": {"name": name}, **fields}
        self.successResultOf(self.client.create(kind.resource, obj, namespace))

    def bind(self, name: str, kind: str, subject: str, role: str = "edit") -> None:
        """Bind a ClusterRole in the namespace ``lab``."""
        self.make(
            ROLEBINDINGS,
            name,
            "lab",
            roleRef={"apiGroup": GROUP, "kind": "ClusterRole", "name": role},
            subjects=[{"apiGroup": GROUP, "kind": kind, "name": subject}],
        )

    def started(self) -> None:
        """Start the watch; nothing that exists is a change."""
        self.watch.want()
        self.clock.advance(2)
        self.assertEqual(self.hints, [])

    def taken(self) -> int:
        """Return the number of hints since the last call, the second ones included."""
        self.clock.advance(SPACING_SECONDS)
        self.clock.advance(SECOND_HINT_SECONDS)
        hints, self.hints[:] = list(self.hints), []
        self.assertEqual(hints, ["forget", "changed"] * (len(hints) // 2))
        return len(hints) // 2

    def observed(self) -> float | None:
        return self.registry.get_sample_value("twisted_exec_permission_changes_observed")

    def test_binding(self) -> None:
        """A binding that is deleted is a hint at once, and again a second later."""
        self.bind("b", "User", "ann")
        self.started()
        self.successResultOf(self.client.delete(ROLEBINDINGS.resource, "b", "lab"))
        self.assertEqual(self.hints, ["forget", "changed"])
        self.assertEqual(self.taken(), 2)
        self.assertEqual(self.taken(), 0)

    def test_group(self) -> None:
        """A binding of a user's group concerns the user, in every form."""
        self.started()
        self.bind("b", "Group", "ops")
        self.assertEqual(self.taken(), 2)
        change = {"subjects": [{"apiGroup": GROUP, "kind": "Group", "name": "others"}]}
        self.successResultOf(self.client.patch(ROLEBINDINGS.resource, "b", change, "lab"))
        self.assertEqual(self.taken(), 2)
        self.successResultOf(self.client.delete(ROLEBINDINGS.resource, "b", "lab"))
        self.assertEqual(self.taken(), 0)

    def test_others(self) -> None:
        """Changes that concern no user of a session are no hints, nor are those of metadata."""
        self.bind("b", "User", "ann")
        self.bind("c", "User", "bob")
        self.make(CLUSTERROLES, "edit", rules=RULES)
        self.started()
        labels = {"metadata": {"labels": {"a": "b"}}}
        self.successResultOf(self.client.patch(ROLEBINDINGS.resource, "b", labels, "lab"))
        self.successResultOf(self.client.patch(CLUSTERROLES.resource, "edit", labels))
        self.successResultOf(self.client.delete(ROLEBINDINGS.resource, "c", "lab"))
        self.assertEqual(self.taken(), 0)
        self.users.clear()
        self.successResultOf(self.client.delete(ROLEBINDINGS.resource, "b", "lab"))
        self.assertEqual(self.taken(), 0)

    def test_role(self) -> None:
        """Other rules of a role concern the subjects of its bindings."""
        self.make(CLUSTERROLES, "edit", rules=RULES)
        self.make(CLUSTERROLES, "other", rules=RULES)
        self.make(ROLES, "edit", "elsewhere", rules=RULES)
        self.bind("b", "User", "ann")
        self.make(
            CLUSTERROLEBINDINGS,
            "o",
            roleRef={"apiGroup": GROUP, "kind": "ClusterRole", "name": "other"},
            subjects=[{"apiGroup": GROUP, "kind": "User", "name": "bob"}],
        )
        self.started()
        self.successResultOf(self.client.patch(CLUSTERROLES.resource, "edit", {"rules": []}))
        self.assertEqual(self.taken(), 2)
        self.successResultOf(self.client.patch(CLUSTERROLES.resource, "other", {"rules": []}))
        self.successResultOf(self.client.delete(ROLES.resource, "edit", "elsewhere"))
        self.assertEqual(self.taken(), 0)
        self.successResultOf(self.client.delete(CLUSTERROLES.resource, "edit"))
        self.assertEqual(self.taken(), 2)

    def test_account(self) -> None:
        """A ServiceAccount is the user of its name."""
        self.users = [User("system:serviceaccount:lab:robot")]
        self.make(
            ROLEBINDINGS,
            "b",
            "lab",
            roleRef={"apiGroup": GROUP, "kind": "ClusterRole", "name": "edit"},
            subjects=[{"kind": "ServiceAccount", "name": "robot"}],
        )
        self.started()
        self.successResultOf(self.client.delete(ROLEBINDINGS.resource, "b", "lab"))
        self.assertEqual(self.taken(), 2)

    def test_many(self) -> None:
        """Many changes are few hints, and the last change is followed by one."""
        self.started()
        for number in range(100):
            self.bind(f"b{number}", "User", "ann")
            self.clock.advance(0.01)
        self.assertLess(len(self.hints) / 2, 1 / SPACING_SECONDS + 2)
        self.hints.clear()
        self.assertGreaterEqual(self.taken(), 1)

    def test_metric(self) -> None:
        """The metric shows whether changes are observed; an interruption does not go unnoticed."""
        self.assertEqual(self.observed(), 0)
        self.bind("b", "User", "ann")
        self.started()
        self.assertEqual(self.observed(), 1)
        self.cluster.end_watches(ServiceUnavailable("away"))
        self.assertEqual(self.observed(), 0)
        self.successResultOf(self.client.delete(ROLEBINDINGS.resource, "b", "lab"))
        self.clock.pump([0.5] * 60)
        self.assertEqual(self.observed(), 1)
        self.assertGreaterEqual(self.taken(), 1)

    def test_not_allowed(self) -> None:
        """A hop that may not watch says so, and asks again later, without a request in between."""
        self.client.may_watch = False
        with capturedLogs() as events:
            for _ in range(5):
                self.watch.want()
        self.assertIn("cannot be watched", formatEvent(events[-1]))
        self.assertEqual((self.client.questions, self.cluster.watches, self.observed()), (1, 0, 0))
        self.clock.advance(ASK_AGAIN_SECONDS)
        self.client.may_watch = True
        self.watch.want()
        self.watch.want()
        self.assertEqual((self.client.questions, self.cluster.watches), (2, 4))

    def test_stopped(self) -> None:
        """After the stop no request and no timer is left."""
        self.bind("b", "User", "ann")
        self.started()
        self.successResultOf(self.client.delete(ROLEBINDINGS.resource, "b", "lab"))
        self.successResultOf(self.watch.stop())
        self.assertEqual(self.cluster.watches, 0)
        self.assertEqual(self.clock.getDelayedCalls(), [])
