"""
Tests for :mod:`twisted_exec.auth.request_header`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

from cryptography import x509
from zope.interface.verify import verifyObject

from tests.auth.support import CredentialsCase, credentials
from tests.retained import instances
from tests.tls.support import authority, client_identity
from twisted_exec.api.status import Unauthorized
from twisted_exec.auth.interfaces import IProxyAuthenticator, User
from twisted_exec.auth.request_header import HeaderNames, RequestHeaderAuthenticator
from twisted_exec.tls.errors import TLSConfigError
from twisted_exec.tls.pki.authority import Issued
from twisted_exec.tls.server import PeerCertificate

PROXY = client_identity("exec-apiserver", ca="forwarding")
JANE = {"X-Remote-User": ["jane"]}


class RequestHeaderTests(CredentialsCase):
    """Tests for :class:`RequestHeaderAuthenticator`."""

    def setUp(self) -> None:
        super().setUp()
        self.authenticator = RequestHeaderAuthenticator(
            self.forwarding_ca, ["exec-apiserver"], self.clock
        )

    def user(
        self, headers: Mapping[str, Sequence[str]], shown: Issued | None = PROXY
    ) -> User | None:
        declared = self.authenticator.credential_headers
        credentials = self.credentials(headers, shown, declared=declared)
        return self.successResultOf(self.authenticator.authenticate(credentials))

    def test_door(self) -> None:
        """The class implements IProxyAuthenticator."""
        verifyObject(IProxyAuthenticator, self.authenticator)

    def test_user_and_caller(self) -> None:
        """The user comes from the headers, the proxy from the certificate."""
        user = self.user(
            {
                "X-Remote-User": ["jürgen"],
                "X-Remote-Group": ["dev", "ops"],
                "X-Remote-Uid": ["u-1"],
                "X-Remote-Extra-Scopes": ["a", "b"],
                "X-Remote-Extra-Example.com%2FKey": ["c"],
            }
        )
        assert user is not None
        self.assertEqual(user.name, "jürgen")
        self.assertEqual(user.groups, ("dev", "ops", "system:authenticated"))
        self.assertEqual(user.uid, "u-1")
        self.assertEqual(user.extra, {"scopes": ("a", "b"), "example.com/key": ("c",)})
        assert user.forwarded_by is not None
        self.assertEqual(user.forwarded_by.name, "exec-apiserver")
        self.assertIn("system:authenticated", user.forwarded_by.groups)

    def test_shared(self) -> None:
        """Requests of the same user share one User object; any difference makes another."""
        headers = {"X-Remote-User": ["jane"], "X-Remote-Extra-Scopes": ["a"]}
        user = self.user(headers)
        self.assertIs(self.user(headers), user)
        for changed in (
            {"X-Remote-Extra-Scopes": ["b"]},
            {"X-Remote-Group": ["ops"]},
            {"X-Remote-Uid": ["1"]},
            {"X-Remote-User": ["joan"]},
        ):
            self.assertNotEqual(self.user({**headers, **changed}), user)
        for number in range(1000):
            self.user({"X-Remote-User": [f"user-{number}"]})
        self.assertLess(len(instances(self.authenticator, User)), 300)

    def test_other_names(self) -> None:
        """Header names are configurable, and each kind may have several."""
        names = HeaderNames(
            ("X-First", "X-User"), ("X-Roles", "X-Teams"), (), ("X-More-", "X-Yet-")
        )
        self.authenticator = RequestHeaderAuthenticator(
            authority("forwarding").certificate_pem, ["exec-apiserver"], self.clock, names=names
        )
        self.assertIsNone(self.user(JANE))
        user = self.user(
            {
                "x-user": ["jane"],
                "X-Teams": ["ops"],
                "X-Roles": ["dev"],
                "X-Yet-Key": ["a"],
                "X-More-KEY": ["b"],
                "X-Remote-Uid": ["u"],
            }
        )
        assert user is not None
        self.assertEqual(user.groups, ("dev", "ops", "system:authenticated"))
        self.assertEqual((user.uid, set(user.extra["key"])), ("", {"a", "b"}))

    def test_declared(self) -> None:
        """All configured headers are declared, in any spelling, and no others."""
        headers = HeaderNames(("X-User",), ("X-Teams",), ("X-Id",), ("X-More-",)).headers
        for name in (b"x-user", b"X-TEAMS", b"X-Id", b"x-more-key", b"X_User"):
            self.assertIn(name, headers)
        for name in (b"X-Morel", b"X-Remote-User"):
            self.assertNotIn(name, headers)

    def test_any_name(self) -> None:
        """
        With ``any_name``, every certificate of the CA is a proxy's; those of other CAs are not.
        """
        ca = authority("forwarding").certificate_pem
        self.authenticator = RequestHeaderAuthenticator(ca, [], self.clock, any_name=True)
        self.assertIsNotNone(self.user(JANE, client_identity("anyone", ca="forwarding")))
        self.assertIsNone(self.user(JANE, client_identity("anyone")))

    def test_untrusted(self) -> None:
        """Without a proxy's certificate the headers are ignored."""
        for shown in (
            None,
            client_identity("exec-apiserver"),  # the user CA
            client_identity("exec-apiserver", ca="evil"),
            client_identity("somebody", ca="forwarding"),  # not an allowed name
            client_identity("EXEC-APISERVER", ca="forwarding"),
            client_identity("exec-apiserver ", ca="forwarding"),
        ):
            self.assertIsNone(self.user(JANE, shown))
        plain = self.authenticator.authenticate(credentials(JANE))
        self.assertIsNone(self.successResultOf(plain))

    def test_nobody_forwarded(self) -> None:
        """Groups without a user name forward no user."""
        self.assertIsNone(self.user({}))
        self.assertIsNone(self.user({"X-Remote-User": [""]}))
        self.assertIsNone(self.user({"X-Remote-Group": ["system:masters"]}))

    def test_caller(self) -> None:
        """The proxy is known even if it forwards no user."""
        caller = self.authenticator.caller(self.credentials(shown=PROXY).certificate)
        assert caller is not None
        self.assertEqual(caller.name, "exec-apiserver")

    def test_proxy_problem(self) -> None:
        """A proxy stays trusted when its certificate expires, but not without its CA or its name."""
        for days, ca, problem in (
            (0, "forwarding", ""),
            (400, "forwarding", ""),
            (0, "newer", 'its CA "newer" was removed'),
            (400, "newer", 'its CA "newer" was removed'),
        ):
            made = datetime.now(UTC) - timedelta(days=days)
            shown = authority(ca).issue_client("exec-apiserver", now=made)
            peer = PeerCertificate(x509.load_pem_x509_certificate(shown.certificate_pem))
            self.assertIn(problem, self.authenticator.proxy_problem(peer))
            self.assertEqual(not problem, not self.authenticator.proxy_problem(peer))
        other = PeerCertificate(
            x509.load_pem_x509_certificate(client_identity("o", ca="forwarding").certificate_pem)
        )
        self.assertIn('"o" is not trusted', self.authenticator.proxy_problem(other))

    def test_two_users(self) -> None:
        """A header with two different values is refused: the client may have sent one of them."""
        for header in ("X-Remote-User", "X-Remote-Uid"):
            headers = {**JANE, header: ["jane", "admin"]}
            presented = self.credentials(headers, PROXY)
            self.failureResultOf(self.authenticator.authenticate(presented), Unauthorized)

    def test_not_utf8(self) -> None:
        """A name that is not UTF-8 is refused, not guessed."""
        presented = self.credentials({"X-Remote-User": ["\udcff\udcfe"]}, PROXY)
        self.failureResultOf(self.authenticator.authenticate(presented), Unauthorized)

    def test_strangers_headers_are_not_read(self) -> None:
        """Invalid headers are ignored if they do not come from a proxy."""
        self.assertIsNone(self.user({"X-Remote-User": ["a", "b"]}, None))

    def test_anonymous(self) -> None:
        """A user whom the proxy reports as anonymous is not authenticated."""
        for headers in (
            {"X-Remote-User": ["system:anonymous"]},
            {"X-Remote-User": ["x"], "X-Remote-Group": ["system:unauthenticated"]},
        ):
            user = self.user(headers)
            assert user is not None
            self.assertNotIn("system:authenticated", user.groups)

    def test_empty_allowed_names(self) -> None:
        """No list of names, or an empty name, would trust everyone: refused."""
        for names in ([], [""], ["exec-apiserver", ""]):
            with self.assertRaises(TLSConfigError):
                RequestHeaderAuthenticator(self.forwarding_ca, names, self.clock)

    def test_missing_ca(self) -> None:
        """Loading a missing CA file is an error."""
        authenticator = RequestHeaderAuthenticator("/nowhere", ["x"], self.clock)
        with self.assertRaises(TLSConfigError):
            authenticator.load()
        self.authenticator.load()
