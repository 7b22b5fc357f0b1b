"""
Tests for :mod:`twisted_exec.api.kinds.rbac`.  Objects take the way into the store.
"""

from __future__ import annotations

from tests.api.kinds.support import KindTestCase
from twisted_exec.api import kinds


class RoleTests(KindTestCase):
    """Roles and bindings."""

    def test_rules(self) -> None:
        """Verbs, and either resources or URLs."""
        self.kind = kinds.CLUSTERROLES
        self.create(
            rules=[{"verbs": ["get"], "nonResourceURLs": ["/x"]}], metadata={"name": "system:x"}
        )
        self.assertEqual(len(self.refused(rules=[{"verbs": []}])), 3)
        self.assertEqual(
            len(
                self.refused(
                    rules=[{"verbs": ["get"], "nonResourceURLs": ["/"], "resources": ["x"]}]
                )
            ),
            1,
        )
        self.kind = kinds.ROLES
        self.assertEqual(
            len(self.refused(rules=[{"verbs": ["get"], "nonResourceURLs": ["/x"]}])), 1
        )

    def test_bindings(self) -> None:
        """Groups of the API are filled in; the role cannot be changed."""
        self.kind = kinds.ROLEBINDINGS
        role = {"kind": "Role", "name": "r"}
        old = self.create(roleRef=role, subjects=[{"kind": "User", "name": "u"}])
        group = "rbac.authorization.k8s.io"
        self.assertEqual(old["roleRef"], {**role, "apiGroup": group})
        self.assertEqual(old["subjects"], [{"kind": "User", "name": "u", "apiGroup": group}])
        self.assertEqual(len(self.update_refused(old, roleRef={"kind": "Role", "name": "s"})), 1)

    def test_bad_bindings(self) -> None:
        """Unknown kinds, empty names and missing namespaces are refused."""
        self.kind = kinds.CLUSTERROLEBINDINGS
        good = {"kind": "ClusterRole", "name": "r"}
        for reference, subject in [
            ({"kind": "Role", "name": "r"}, {"kind": "User", "name": "u"}),
            ({**good, "apiGroup": "x"}, {"kind": "User", "name": "u"}),
            ({**good, "name": ""}, {"kind": "User", "name": "u"}),
            (good, {"kind": "Robot", "name": "u"}),
            (good, {"kind": "User", "name": ""}),
            (good, {"kind": "ServiceAccount", "name": "u"}),
            (good, {"kind": "User", "name": "u", "apiGroup": "x"}),
        ]:
            self.assertEqual(len(self.refused(roleRef=reference, subjects=[subject])), 1)
        self.assertEqual(self.refused(), ["roleRef: Required value"])
