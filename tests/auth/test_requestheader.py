"""
Tests for :mod:`twisted_exec.auth.requestheader`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from zope.interface.verify import verifyObject

from tests.auth.support import CredentialsCase
from tests.tls.support import authority, client_identity
from twisted_exec.api.status import Unauthorized
from twisted_exec.auth.interfaces import IAuthenticator
from twisted_exec.auth.requestheader import (
    ForwardedIdentity,
    HeaderNames,
    RequestHeaderAuthenticator,
)
from twisted_exec.tls.authority import Issued
from twisted_exec.tls.errors import TLSConfigError

PROXY = client_identity("exec-apiserver", ca="forwarding")
JANE = {"X-Remote-User": ["jane"]}


class RequestHeaderTests(CredentialsCase):
    """Tests for :class:`RequestHeaderAuthenticator`."""

    def setUp(self) -> None:
        super().setUp()
        self.authenticator = RequestHeaderAuthenticator(
            self.forwarding_ca, ["exec-apiserver"], self.clock
        )

    def identity(
        self, headers: Mapping[str, Sequence[str]], shown: Issued | None = PROXY
    ) -> ForwardedIdentity | None:
        request = self.request(headers, shown)
        identity = self.successResultOf(self.authenticator.authenticate_proxy(request))
        user = self.successResultOf(self.authenticator.authenticate(request))
        self.assertEqual(user, identity.user if identity else None)
        return identity

    def test_door(self) -> None:
        """It is an authenticator."""
        verifyObject(IAuthenticator, self.authenticator)

    def test_user_and_caller(self) -> None:
        """Who it is comes from the headers, who says so from the certificate."""
        identity = self.identity(
            {
                "X-Remote-User": ["jürgen"],
                "X-Remote-Group": ["dev", "ops"],
                "X-Remote-Uid": ["u-1"],
                "X-Remote-Extra-Scopes": ["a", "b"],
                "X-Remote-Extra-Example.com%2FKey": ["c"],
            }
        )
        assert identity is not None
        self.assertEqual(identity.user.name, "jürgen")
        self.assertEqual(identity.user.groups, ("dev", "ops", "system:authenticated"))
        self.assertEqual(identity.user.uid, "u-1")
        self.assertEqual(identity.user.extra, {"scopes": ("a", "b"), "example.com/key": ("c",)})
        self.assertEqual(identity.caller.name, "exec-apiserver")
        self.assertIn("system:authenticated", identity.caller.groups)

    def test_other_names(self) -> None:
        """Headers may be called otherwise, and there may be several of a sort."""
        names = HeaderNames(
            ("X-First", "X-User"), ("X-Roles", "X-Teams"), (), ("X-More-", "X-Yet-")
        )
        self.authenticator = RequestHeaderAuthenticator(
            authority("forwarding").certificate_pem, ["exec-apiserver"], self.clock, names=names
        )
        self.assertIsNone(self.identity(JANE))
        identity = self.identity(
            {
                "x-user": ["jane"],
                "X-Teams": ["ops"],
                "X-Roles": ["dev"],
                "X-Yet-Key": ["a"],
                "X-More-KEY": ["b"],
                "X-Remote-Uid": ["u"],
            }
        )
        assert identity is not None
        user = identity.user
        self.assertEqual(user.groups, ("dev", "ops", "system:authenticated"))
        self.assertEqual((user.uid, set(user.extra["key"])), ("", {"a", "b"}))

    def test_removed(self) -> None:
        """What has been read is taken away, however it is spelt; all else stays."""
        names = HeaderNames(("X-User",), ("X-Teams",), ("X-Id",), ("X-More-",))
        told = ("x-user", "X-TEAMS", "X-Id", "x-more-key", "X-Morel", "X-Remote-User")
        headers = self.request({each: ["a"] for each in told}).requestHeaders
        names.remove_from(headers)
        left = {name for name, _ in headers.getAllRawHeaders()}
        self.assertEqual(left, {b"X-Morel", b"X-Remote-User"})

    def test_any_name(self) -> None:
        """Where a CA signs nothing but proxies, each of them is one; another CA's are none."""
        ca = authority("forwarding").certificate_pem
        self.authenticator = RequestHeaderAuthenticator(ca, [], self.clock, any_name=True)
        self.assertIsNotNone(self.identity(JANE, client_identity("anyone", ca="forwarding")))
        self.assertIsNone(self.identity(JANE, client_identity("anyone")))

    def test_untrusted(self) -> None:
        """The same headers from anyone else are nothing."""
        for shown in (
            None,
            client_identity("exec-apiserver"),  # the user CA
            client_identity("exec-apiserver", ca="evil"),
            client_identity("somebody", ca="forwarding"),  # not an allowed name
            client_identity("EXEC-APISERVER", ca="forwarding"),
            client_identity("exec-apiserver ", ca="forwarding"),
        ):
            self.assertIsNone(self.identity(JANE, shown))
        plain = self.authenticator.authenticate(self.plain_request(JANE))
        self.assertIsNone(self.successResultOf(plain))

    def test_nobody_forwarded(self) -> None:
        """A proxy that names nobody speaks for nobody, groups or not."""
        self.assertIsNone(self.identity({}))
        self.assertIsNone(self.identity({"X-Remote-User": [""]}))
        self.assertIsNone(self.identity({"X-Remote-Group": ["system:masters"]}))

    def test_caller(self) -> None:
        """The proxy is known even when it speaks for nobody."""
        caller = self.authenticator.caller(self.request(shown=PROXY))
        assert caller is not None
        self.assertEqual(caller.name, "exec-apiserver")

    def test_two_users(self) -> None:
        """Two different users are refused: one may have slipped past the proxy."""
        for header in ("X-Remote-User", "X-Remote-Uid"):
            headers = {**JANE, header: ["jane", "admin"]}
            request = self.request(headers, PROXY)
            self.failureResultOf(self.authenticator.authenticate(request), Unauthorized)

    def test_not_utf8(self) -> None:
        """A name that is not UTF-8 is refused, not guessed."""
        request = self.request({"X-Remote-User": ["\udcff\udcfe"]}, PROXY)
        self.failureResultOf(self.authenticator.authenticate(request), Unauthorized)

    def test_strangers_headers_are_not_read(self) -> None:
        """Broken headers of someone who may not send any are no error."""
        self.assertIsNone(self.identity({"X-Remote-User": ["a", "b"]}, None))

    def test_anonymous(self) -> None:
        """Someone the proxy does not know stays unknown."""
        for headers in (
            {"X-Remote-User": ["system:anonymous"]},
            {"X-Remote-User": ["x"], "X-Remote-Group": ["system:unauthenticated"]},
        ):
            identity = self.identity(headers)
            assert identity is not None
            self.assertNotIn("system:authenticated", identity.user.groups)

    def test_empty_allowed_names(self) -> None:
        """No list of names, or an empty name, would trust everyone: refused."""
        for names in ([], [""], ["exec-apiserver", ""]):
            with self.assertRaises(TLSConfigError):
                RequestHeaderAuthenticator(self.forwarding_ca, names, self.clock)

    def test_missing_ca(self) -> None:
        """A missing CA file is told when it is loaded."""
        authenticator = RequestHeaderAuthenticator("/nowhere", ["x"], self.clock)
        with self.assertRaises(TLSConfigError):
            authenticator.load()
        self.authenticator.load()
