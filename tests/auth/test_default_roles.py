"""
Tests for :mod:`twisted_exec.auth.default_roles`.
"""

from __future__ import annotations

from dataclasses import replace

from tests.auth.test_rbac import (
    AUTHENTICATED,
    BOOTSTRAPPED,
    OBJECTS,
    RBACCase,
    binding,
    user,
)
from twisted_exec.api.dialects import IRONCORE
from twisted_exec.auth.interfaces import User


class BootstrapTests(RBACCase):
    """Permissions of the default roles."""

    def setUp(self) -> None:
        self.use(BOOTSTRAPPED)

    def bound(self, role_name: str) -> User:
        """Return a user with this cluster role."""
        extra = binding("extra", f"ClusterRole/{role_name}", user("bound"))
        bindings = [*BOOTSTRAPPED.cluster_role_bindings, extra]
        self.use(replace(BOOTSTRAPPED, cluster_role_bindings=bindings))
        return User("bound", (AUTHENTICATED,))

    def test_everyone(self) -> None:
        """Authenticated users may use discovery and review their own access, and nothing else."""
        for what in ("get /api", "get /apis/x", "get /openapi/v3", "get /version"):
            self.assertTrue(self.may("jane", what), what)
            self.assertFalse(self.may(User("jane"), what) and what != "get /version", what)
        self.assertTrue(
            self.may("jane", "create selfsubjectaccessreviews", api_group="authorization.k8s.io")
        )
        for what in (
            "get machines",
            "list machines",
            "create machines/exec",
            "get machinepools",
            "create machinepools/proxy",
        ):
            self.assertFalse(self.may("jane", what), what)
        self.assertFalse(self.may("jane", "get /metrics"))

    def test_unauthenticated(self) -> None:
        """Unauthenticated users may read health and version."""
        nobody = User("system:anonymous", ("system:unauthenticated",))
        self.assertTrue(self.may(nobody, "get /healthz"))
        self.assertFalse(self.may(nobody, "get /apis"))

    def test_opening_a_console(self) -> None:
        """Editors and administrators may open consoles, by POST or GET; viewers may not."""
        for name, good in (("admin", True), ("edit", True), ("view", False)):
            who = self.bound(name)
            self.assertEqual(self.may(who, "create machines/exec"), good, name)
            self.assertEqual(self.may(who, "get machines/exec"), good, name)
            self.assertTrue(self.may(who, "get machines"), name)
            self.assertEqual(self.may(who, "create machines"), good, name)
            self.assertFalse(self.may(who, "update machines/status"), name)
            self.assertFalse(self.may(who, "create machinepools/proxy"), name)

    def test_reading(self) -> None:
        """Two roles read one thing about consoles: what machines printed, and who used consoles."""
        own = "console.twisted-exec.dev"
        lists = ("consolesessions", "consolerequests", "deletedconsoles", "consolerecordings")
        for name in ("console-log-reader", "console-session-reader"):
            who, reads_logs = self.bound(name), name == "console-log-reader"
            for what in ("get machines", "get machines/log"):
                self.assertEqual(self.may(who, what), reads_logs, what)
            for what in (f"{verb} {kind}" for verb in ("get", "list", "watch") for kind in lists):
                self.assertEqual(self.may(who, what, api_group=own), not reads_logs, what)
            for what in ("create machines/exec", "observe machines/console", "patch machines"):
                self.assertFalse(self.may(who, what), what)
            for what in ("delete consolesessions", "get consolerecordings/content"):
                self.assertFalse(self.may(who, what, api_group=own), what)

    def test_using_consoles(self) -> None:
        """
        ``console-user`` may open and observe consoles, type, and ask for approvals, and nothing else.

        ``console-operator`` may also take over and list machines.
        """
        own = "console.twisted-exec.dev"
        for role in ("console-user", "console-operator"):
            who = self.bound(role)
            for verb in ("observe", "drive"):
                self.assertTrue(self.may(who, f"{verb} machines/console"), verb)
            for what in ("machines", "machines/exec", "machines/screen"):
                self.assertTrue(self.may(who, f"get {what}"), what)
            for verb in ("get", "list", "watch", "create", "delete"):
                self.assertTrue(self.may(who, f"{verb} consolerequests", api_group=own), verb)
            for what in ("takeover machines/console", "list machines", "watch machines"):
                self.assertEqual(self.may(who, what), role == "console-operator", what)
            for what in (
                "create machines/exec",
                "get machines/log",
                "patch machines",
                "delete machines",
                "list machinepools",
            ):
                self.assertFalse(self.may(who, what), what)
            self.assertFalse(self.may(who, "get secrets", api_group=""))
            for what in ("list consolesessions", "create consolealerts", "get consolerecordings"):
                self.assertFalse(self.may(who, what, api_group=own), what)

    def test_admin(self) -> None:
        """Administrators manage bindings; editors do not."""
        rbac = "rbac.authorization.k8s.io"
        self.assertTrue(self.may(self.bound("admin"), "create rolebindings", api_group=rbac))
        self.assertFalse(self.may(self.bound("edit"), "create rolebindings", api_group=rbac))
        self.assertFalse(self.may(self.bound("admin"), "escalate roles", api_group=rbac))

    def test_poollet(self) -> None:
        """A poollet keeps its pool and machines and asks reviews; it opens no console."""
        poollet = User(IRONCORE.pool_identity("a"), (IRONCORE.pool_identity_group, AUTHENTICATED))
        for what in (
            "create machinepools",
            "update machinepools/status",
            "watch machines",
            "patch machines",
            "patch machines/status",
            "list machineclasses",
        ):
            self.assertTrue(self.may(poollet, what), what)
        for what, review_group in (
            ("create tokenreviews", "authentication.k8s.io"),
            ("create subjectaccessreviews", "authorization.k8s.io"),
        ):
            self.assertTrue(self.may(poollet, what, api_group=review_group), what)
        for what in (
            "create machines",
            "delete machines",
            "create machines/exec",
            "create machinepools/proxy",
        ):
            self.assertFalse(self.may(poollet, what), what)

    def test_forwarding(self) -> None:
        """The API server's user may reach poollets, and has no access to machines' consoles."""
        self.assertTrue(self.may("exec-apiserver", "create machinepools/proxy", namespace=""))
        self.assertFalse(self.may("exec-apiserver", "create machines/exec"))

    def test_masters_by_binding(self) -> None:
        """``cluster-admin`` is everything."""
        who = self.bound("cluster-admin")
        self.assertTrue(self.may(who, "delete anything/else", api_group="x"))
        self.assertTrue(self.may(who, "post /x"))

    def test_shapes(self) -> None:
        """Names are unique, and no object lacks its API version."""
        keys = [(each["kind"], each["metadata"]["name"]) for each in OBJECTS]
        self.assertEqual(len(keys), len(set(keys)))
        for each in OBJECTS:
            self.assertEqual(each["apiVersion"], "rbac.authorization.k8s.io/v1")

    def test_bindings_refer(self) -> None:
        """Every binding's role exists."""
        names = {each["metadata"]["name"] for each in BOOTSTRAPPED.cluster_roles}
        for each in BOOTSTRAPPED.cluster_role_bindings:
            self.assertIn(each["roleRef"]["name"], names)
