"""
Tests for :mod:`twisted_exec.apiserver.consoles.policies`: the default roles about policies and requests.
"""

from __future__ import annotations

from tests.apiserver.consoles.policies_support import POLICIES, REQUESTS, PolicyTestCase, policy
from tests.apiserver.support import MERGE, RBAC


class RoleTests(PolicyTestCase):
    """Policies restrict those who edit a namespace and those who administer it."""

    def test_policies(self) -> None:
        """``edit`` and ``admin`` read policies, and cannot change them."""
        self.make_policy()
        for user in ("jane", "bob"):
            self.answer("GET", POLICIES, user=user)
            self.answer("GET", f"{POLICIES}/p", user=user)
            for method, path, body in (
                ("POST", POLICIES, policy("q")),
                ("PUT", f"{POLICIES}/p", policy()),
                ("DELETE", f"{POLICIES}/p", None),
                ("DELETE", POLICIES, None),
            ):
                self.refused(403, method, path, body, user=user)
            patch = {"spec": {"people": 1}}
            self.refused(403, "PATCH", f"{POLICIES}/p", patch, user=user, content_type=MERGE)

    def test_editor(self) -> None:
        """``console-policy-editor`` changes policies, and an admin cannot grant it."""
        binding = {
            "metadata": {"name": "mine"},
            "roleRef": {"kind": "ClusterRole", "name": "console-policy-editor"},
            "subjects": [{"kind": "User", "name": "bob"}],
        }
        bindings = f"{RBAC}/namespaces/default/rolebindings"
        self.refused(403, "POST", bindings, binding, user="bob")
        self.bind("bob", "console-policy-editor")
        self.answer("POST", POLICIES, policy(), user="bob", code=201)

    def test_requests(self) -> None:
        """``edit`` creates requests, and cannot approve them; nobody writes their status."""
        request = {"metadata": {"name": "r"}, "spec": {"machine": "vm-1"}}
        self.answer("POST", REQUESTS, request, user="jane", code=201)
        approval = {"status": {"approved": True}}
        for path in ("r/approval", "r/status"):
            path = f"{REQUESTS}/{path}"
            self.refused(403, "PATCH", path, approval, user="jane", content_type=MERGE)

    def test_observer(self) -> None:
        """
        ``console-observer`` asks to observe and reads the answer. It neither reads nor deletes the
        requests of others, whose sessions would end, and approves none.
        """
        self.bind("eve", "console-observer")
        self.request("hers", user="eve", right="observe")
        self.answer("GET", f"{REQUESTS}/hers", user="eve")
        self.request("r")
        approval = {"status": {"approved": True}}
        self.refused(
            403, "PATCH", f"{REQUESTS}/r/approval", approval, user="eve", content_type=MERGE
        )
        for method, path in (("GET", REQUESTS), ("DELETE", f"{REQUESTS}/r"), ("DELETE", REQUESTS)):
            self.refused(403, method, path, user="eve")
