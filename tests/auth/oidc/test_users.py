"""
Tests for :mod:`twisted_exec.auth.oidc.users`.
"""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.auth.oidc.support import user_of
from twisted_exec.api.dialects import DIALECTS
from twisted_exec.auth.interfaces import User
from twisted_exec.auth.jwt import InvalidToken
from twisted_exec.auth.oidc.claims import USER, Expression, Issuer, MappedClaim, ValidationRule

URL = "https://issuer.example"


CLAIMS: dict[str, Any] = {"sub": "jane", "n": 5, "roles": ["a", "b"], "deep": {"x": None}}


def issuer(**more: Any) -> Issuer:
    return Issuer(**{"url": URL, "audiences": ("exec",), "username": MappedClaim("sub"), **more})


def expression(text: str) -> Expression:
    return Expression(text, "the.field")


class UserOfTests(SynchronousTestCase):
    """Tests for :func:`twisted_exec.auth.oidc.users.user_of`."""

    def assertRefused(self, claims: dict[str, Any], why: str, **more: Any) -> None:
        with self.assertRaises(InvalidToken) as caught:
            user_of(claims, issuer(**more))
        self.assertIn(why, str(caught.exception))

    def test_name(self) -> None:
        """The claim is the name, with the prefix before it."""
        user = user_of({"sub": "jane"}, issuer(username=MappedClaim("sub", f"{URL}#")))
        self.assertEqual(user, User(f"{URL}#jane", ("system:authenticated",)))

    def test_groups(self) -> None:
        """Groups are a list or a string, and get their own prefix; empty values are no groups."""
        for told, expected in (
            (["dev", "ops", "dev"], ("oidc:dev", "oidc:ops")),
            ("dev", ("oidc:dev",)),
            ([], ()),
            ("", ()),
            (None, ()),
        ):
            user = user_of(
                {"sub": "jane", "roles": told}, issuer(groups=MappedClaim("roles", "oidc:"))
            )
            self.assertEqual(user.groups, (*expected, "system:authenticated"))

    def test_no_groups_claim(self) -> None:
        """A token without the claim has no groups, and unmapped claims give none."""
        self.assertEqual(
            len(user_of({"sub": "j"}, issuer(groups=MappedClaim("g", "x:"))).groups), 1
        )
        self.assertEqual(len(user_of({"sub": "j", "groups": ["admins"]}, issuer()).groups), 1)

    def test_uid_and_credential(self) -> None:
        """A claim may be the uid; the token's id goes on record."""
        user = user_of({"sub": "jane", "oid": "7", "jti": "t-1"}, issuer(uid="oid"))
        self.assertEqual(user.uid, "7")
        self.assertEqual(user.extra, {"authentication.kubernetes.io/credential-id": ("JTI=t-1",)})
        for odd in ("", "a\nb", "x" * 257, 5, None):
            self.assertEqual(user_of({"sub": "jane", "jti": odd}, issuer()).extra, {})

    def test_wrong_types(self) -> None:
        """A name or group of another type is refused, and so is a token without a name."""
        for value in (None, "", 5, True, ["jane"], {"a": 1}):
            self.assertRefused({"sub": value}, "its claim sub is no text")
        self.assertRefused({}, "its claim sub is no text")
        self.assertRefused({"sub": "jane"}, "its claim oid is no text", uid="oid")
        for value in (5, True, {"a": 1}, ["dev", 5], [["dev"]]):
            self.assertRefused({"sub": "jane", "g": value}, "its claim g", groups=MappedClaim("g"))

    def test_reserved(self) -> None:
        """A provider cannot issue names or groups that begin with ``system:``."""
        for name in ("system:admin", "system:node:x", "system:serviceaccount:a:b", "system:"):
            self.assertRefused({"sub": name}, "begins with system:")
        self.assertRefused(
            {"sub": "jane", "groups": ["dev", "system:masters"]},
            "its claim groups has a name that begins with system:",
            groups=MappedClaim("groups"),
        )
        self.assertRefused(
            {"sub": "masters"}, "begins with system:", username=MappedClaim("sub", "system:")
        )
        self.assertEqual(
            user_of({"sub": "system:x"}, issuer(username=MappedClaim("sub", "p:"))).name,
            "p:system:x",
        )

    def test_poollets(self) -> None:
        """... nor a poollet of any dialect, because poollets read the Secrets of their machines."""
        for dialect in DIALECTS:
            for name in (dialect.pool_identity("pool-a"), dialect.pool_identity_group):
                self.assertRefused({"sub": name}, "its claim sub has a name that is a poollet's")
                self.assertRefused(
                    {"sub": "jane", "groups": [name]},
                    "its claim groups has a name that is a poollet's",
                    groups=MappedClaim("groups"),
                )
        for name in ("https://issuer.example#a:system:b", "a.example:b", "oidc:system:x"):
            self.assertEqual(user_of({"sub": name}, issuer()).name, name)

    def test_unforwardable(self) -> None:
        """A name that no HTTP header can carry is refused."""
        for name in ("jane\nX-Remote-User: root", "jane\r", "jane\x00", "jane\x1b[2J", " jane"):
            self.assertRefused({"sub": name}, "characters that no name has")
            self.assertRefused({"sub": "j", "g": [name]}, "characters", groups=MappedClaim("g"))

    def test_email(self) -> None:
        """An email that the provider marks as unverified identifies no user."""
        by_email = {"username": MappedClaim("email")}
        for verified in (False, "true", "false", None, 0, 1):
            claims = {"email": "jane@example.org", "email_verified": verified}
            self.assertRefused(claims, "its email is not verified", **by_email)
        for claims in (
            {"email": "jane@example.org", "email_verified": True},
            {"email": "jane@example.org"},
        ):
            self.assertEqual(user_of(claims, issuer(**by_email)).name, "jane@example.org")
        self.assertEqual(user_of({"sub": "j", "email_verified": False}, issuer()).name, "j")

    def test_required(self) -> None:
        """Required claims must be present with exactly the required text."""
        required = {"required": (("hd", "example.org"), ("tier", "1"))}
        good = {"sub": "jane", "hd": "example.org", "tier": "1"}
        self.assertEqual(user_of(good, issuer(**required)).name, "jane")
        for change in ({"hd": "example.com"}, {"hd": ["example.org"]}, {"tier": 1}, {"hd": None}):
            self.assertRefused({**good, **change}, "has not the required value", **required)


class ExpressionUserTests(SynchronousTestCase):
    """Tests for users from expressions."""

    def user(self, username: str = "claims.sub", **more: Any) -> User:
        issuer = Issuer("https://issuer.example", ("exec",), expression(username), **more)
        return user_of(CLAIMS, issuer)

    def assertRefused(self, why: str, **more: Any) -> None:
        with self.assertRaises(InvalidToken) as caught:
            self.user(**more)
        self.assertIn(why, str(caught.exception))

    def test_all(self) -> None:
        """Name, groups, uid, and extras, of which what is empty is left out."""
        extra = (
            ("a.b/list", expression("claims.roles")),
            ("a.b/text", expression("claims.sub")),
            ("a.b/empty", expression("['', '']")),
            ("a.b/none", expression("claims.deep.x")),
        )
        user = self.user(
            groups=expression("claims.roles"), uid=expression("claims.sub"), extra=extra
        )
        self.assertEqual(
            user,
            User(
                "jane",
                ("a", "b", "system:authenticated"),
                "jane",
                {"a.b/list": ("a", "b"), "a.b/text": ("jane",)},
            ),
        )

    def test_wrong_types(self) -> None:
        """A name must be a string."""
        self.assertRefused("the.field is no text", username="claims.n")
        self.assertRefused("the.field is no text", username="''")
        self.assertRefused("the.field is neither", groups=expression("[1]"))
        self.assertRefused("the.field is no text", uid=expression("claims.n"))
        self.assertRefused("the.field is neither", extra=(("a.b/c", expression("claims.n")),))

    def test_not_a_name(self) -> None:
        """Expressions cannot produce reserved names, nor characters that no header can carry."""
        self.assertRefused("begins with system:", username="'system:' + claims.sub")
        self.assertRefused("begins with system:", groups=expression("['system:masters']"))
        self.assertRefused("characters", username="claims.sub + '\\n'")
        self.assertRefused("characters", extra=(("a.b/c", expression("'x\\ny'")),))

    def test_user_rules(self) -> None:
        """A user rule sees the whole resulting user."""

        def rule(text: str) -> tuple[ValidationRule, ...]:
            return (ValidationRule(Expression(text, "the.rule", USER)),)

        more = {
            "groups": expression("claims.roles"),
            "extra": (("a.b/c", expression("claims.sub")),),
        }
        good = "user.username == 'jane' && user.groups == ['a', 'b'] && user.uid == ''"
        self.user(user_rules=rule(f"{good} && user.extra['a.b/c'] == ['jane']"), **more)
        self.assertRefused(
            "the.rule is not true of it", user_rules=rule("user.groups == []"), **more
        )
