"""
Tests for :mod:`twisted_exec.auth.impersonation`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from twisted.trial.unittest import SynchronousTestCase
from twisted.web.http_headers import Headers

from twisted_exec.api.status import BadRequest
from twisted_exec.auth.impersonation import Impersonation, impersonation
from twisted_exec.auth.interfaces import PresentedCredentials, User
from twisted_exec.auth.rules import Attributes

ADMIN = User("admin", ("system:masters",))


def asked(headers: Mapping[str, Sequence[str]]) -> Impersonation | None:
    """Return the impersonation that these headers request, on behalf of the administrator."""
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
        """
        Without impersonation headers, or with an empty user name, no impersonation takes place.
        """
        self.assertIsNone(asked({"Authorization": ["x"]}))
        self.assertIsNone(asked({"Impersonate-User": [""]}))

    def test_user(self) -> None:
        """The impersonated user is authenticated, and impersonating a user needs one permission."""
        found = self.impersonated({"impersonate-user": ["jane"]})
        self.assertEqual(found.user, User("jane", ("system:authenticated",)))
        self.assertEqual(found.needs, (need(resource="users", name="jane"),))

    def test_everything(self) -> None:
        """Each group, the uid and each value of an extra needs its own permission."""
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
        """
        A service account needs its own permission and has its own groups unless others are given.
        """
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
        """A malformed service account name is impersonated as an ordinary user."""
        for name in ("system:serviceaccount:lab", "system:serviceaccount:a:b:c"):
            found = self.impersonated({"Impersonate-User": [name]})
            self.assertEqual(found.needs, (need(resource="users", name=name),))

    def test_anonymous(self) -> None:
        """
        Impersonating system:anonymous or system:unauthenticated does not add system:authenticated.
        """
        found = self.impersonated({"Impersonate-User": ["system:anonymous"]})
        self.assertEqual(found.user.groups, ("system:unauthenticated",))
        found = self.impersonated(
            {"Impersonate-User": ["x"], "Impersonate-Group": ["system:unauthenticated"]}
        )
        self.assertEqual(found.user.groups, ("system:unauthenticated",))

    def test_no_user(self) -> None:
        """Groups, uid or extra without a user are the sender's mistake."""
        for name in ("Impersonate-Group", "Impersonate-Uid", "Impersonate-Extra-K"):
            with self.assertRaises(BadRequest) as caught:
                asked({name: ["x"]})
            self.assertIn("needs Impersonate-User", caught.exception.message)

    def test_senseless(self) -> None:
        """Invalid impersonation headers are refused: ignoring one could widen the permissions."""
        for headers in (
            {"Impersonate-User": ["jane", "root"]},
            {"Impersonate-User": ["jane"], "Impersonate-Groups": ["dev"]},
            {"Impersonate-User": ["jane"], "Impersonate-Extra-": ["x"]},
        ):
            self.assertRaises(BadRequest, asked, headers)
        raw = Headers({b"Impersonate-User": [b"\xff"]})
        self.assertRaises(BadRequest, impersonation, raw, ADMIN)

    def test_headers(self) -> None:
        """Any header that begins with ``Impersonate-`` requests impersonation."""
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
