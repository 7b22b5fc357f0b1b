"""
Tests for :mod:`twisted_exec.auth.impersonation`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from twisted.trial.unittest import SynchronousTestCase
from twisted.web.http_headers import Headers

from twisted_exec.api.status import BadRequest, InternalError
from twisted_exec.auth.credentials import PresentedCredentials
from twisted_exec.auth.impersonation import Impersonation, impersonation
from twisted_exec.auth.interfaces import Attributes, User

ADMIN = User("admin", ("system:masters",))


def asked(headers: Mapping[str, Sequence[str]]) -> Impersonation | None:
    """What headers ask for in the name of the administrator."""
    return impersonation(Headers(dict(headers)), ADMIN)


def need(**more: str) -> Attributes:
    return Attributes(ADMIN, "impersonate", **more)


class ImpersonationTests(SynchronousTestCase):
    """Tests for :func:`impersonation`."""

    def impersonated(self, headers: Mapping[str, Sequence[str]]) -> Impersonation:
        found = asked(headers)
        assert found is not None
        return found

    def test_nobody(self) -> None:
        """Requests of oneself name nobody; an empty name is none."""
        self.assertIsNone(asked({"Authorization": ["x"]}))
        self.assertIsNone(asked({"Impersonate-User": [""]}))

    def test_user(self) -> None:
        """A user is authenticated, and to be them is one right."""
        found = self.impersonated({"impersonate-user": ["jane"]})
        self.assertEqual(found.user, User("jane", ("system:authenticated",)))
        self.assertEqual(found.needs, (need(resource="users", name="jane"),))

    def test_everything(self) -> None:
        """Each group, the uid and each value of each extra is a right of its own."""
        found = self.impersonated(
            {
                "Impersonate-User": ["jane"],
                "Impersonate-Group": ["dev", "ops", ""],
                "Impersonate-Uid": ["7"],
                "Impersonate-Extra-Acme.com%2FProject": ["a", "b"],
            }
        )
        self.assertEqual(
            found.user,
            User(
                "jane",
                ("dev", "ops", "system:authenticated"),
                "7",
                {"acme.com/project": ("a", "b")},
            ),
        )
        group = "authentication.k8s.io"
        extra = {"resource": "userextras", "subresource": "acme.com/project", "group": group}
        self.assertCountEqual(
            found.needs,
            [
                need(resource="users", name="jane"),
                need(resource="groups", name="dev"),
                need(resource="groups", name="ops"),
                need(**extra, version="v1", name="a"),
                need(**extra, version="v1", name="b"),
                need(group=group, version="v1", resource="uids", name="7"),
            ],
        )

    def test_service_account(self) -> None:
        """It is asked for as such, and has its groups unless others are asked for."""
        name = "system:serviceaccount:lab:bot"
        found = self.impersonated({"Impersonate-User": [name]})
        self.assertEqual(
            found.needs, (need(resource="serviceaccounts", namespace="lab", name="bot"),)
        )
        self.assertEqual(
            found.user.groups,
            ("system:serviceaccounts", "system:serviceaccounts:lab", "system:authenticated"),
        )
        found = self.impersonated({"Impersonate-User": [name], "Impersonate-Group": ["g"]})
        self.assertEqual(found.user.groups, ("g", "system:authenticated"))

    def test_almost_a_service_account(self) -> None:
        """What only looks like one is a user."""
        for name in ("system:serviceaccount:lab", "system:serviceaccount:a:b:c"):
            found = self.impersonated({"Impersonate-User": [name]})
            self.assertEqual(found.needs, (need(resource="users", name=name),))

    def test_anonymous(self) -> None:
        """Whoever acts as nobody known is not authenticated."""
        found = self.impersonated({"Impersonate-User": ["system:anonymous"]})
        self.assertEqual(found.user.groups, ("system:unauthenticated",))
        found = self.impersonated(
            {"Impersonate-User": ["x"], "Impersonate-Group": ["system:unauthenticated"]}
        )
        self.assertEqual(found.user.groups, ("system:unauthenticated",))

    def test_no_user(self) -> None:
        """Groups, uid or extra of nobody: what Kubernetes calls an internal error."""
        for name in ("Impersonate-Group", "Impersonate-Uid", "Impersonate-Extra-K"):
            with self.assertRaises(InternalError) as caught:
                asked({name: ["x"]})
            self.assertIn("without impersonating a user", caught.exception.message)

    def test_senseless(self) -> None:
        """Nothing that begins so is passed over: it could have narrowed what is allowed."""
        for headers in (
            {"Impersonate-User": ["jane", "root"]},
            {"Impersonate-User": ["jane"], "Impersonate-Groups": ["dev"]},
            {"Impersonate-User": ["jane"], "Impersonate-Extra-": ["x"]},
        ):
            self.assertRaises(BadRequest, asked, headers)
        raw = Headers({b"Impersonate-User": [b"\xff"]})
        self.assertRaises(BadRequest, impersonation, raw, ADMIN)

    def test_headers(self) -> None:
        """Whatever begins with Impersonate- asks for it, and nothing else does."""
        for name, asks in (
            ("Impersonate-User", True),
            ("impersonate-extra-", True),
            ("Impersonate-Nonsense", True),
            ("Accept", False),
            ("Impersonate_User", False),
        ):
            headers = Headers({name: ["x"]})
            presented = PresentedCredentials(headers=headers)
            self.assertEqual(presented.impersonates, asks, name)
        self.assertIsNone(impersonation(Headers({"Accept": ["x"]}), ADMIN))
