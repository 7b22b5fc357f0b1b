"""
Tests for :mod:`twisted_exec.apiserver.aggregated.trust`.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from twisted.trial.unittest import SynchronousTestCase

from tests.apiserver.aggregated.support import PROXY, configmap
from tests.tls.support import authority
from twisted_exec.api.kinds import Object
from twisted_exec.apiserver.aggregated.trust import RequestHeaderOverrides, TrustError, trust_of
from twisted_exec.auth.request_header import HeaderNames
from twisted_exec.tls import pem

USERS, PROXIES = (authority(name).certificate_pem for name in ("users", "forwarding"))


class TrustTests(SynchronousTestCase):
    """Tests for :func:`trust_of`."""

    def told(self, **data: Any) -> Object:
        return configmap(USERS, PROXIES, **data)

    def refused(self, configmap: Object) -> str:
        with self.assertRaises(TrustError) as caught:
            trust_of(configmap)
        line = str(caught.exception)
        self.assertNotIn("\n", line)
        return line

    def test_whole(self) -> None:
        """The complete ConfigMap of a kube-apiserver is read."""
        trust = trust_of(self.told())
        self.assertEqual((trust.client_ca, trust.proxy_ca), (USERS, PROXIES))
        self.assertEqual(trust.authorities, USERS + PROXIES)
        self.assertEqual((trust.names, trust.headers), ((PROXY,), HeaderNames()))
        self.assertEqual(trust.warning, "")

    def test_older(self) -> None:
        """Before 1.32 the ConfigMap has no UID headers, so none are read."""
        trust = trust_of(self.told(requestheader_uid_headers=None))
        self.assertEqual(trust.headers.uid, ())

    def test_no_users(self) -> None:
        """Without a client CA in the ConfigMap, client certificates are disabled."""
        trust = trust_of(self.told(client_ca_file=None))
        self.assertEqual(trust.client_ca, b"")

    def test_nonsense(self) -> None:
        """A value that cannot be parsed is reported by its key."""
        for key, value, told in [
            ("requestheader_client_ca_file", None, "--requestheader-client-ca-file"),
            ("requestheader_client_ca_file", "x", "requestheader-client-ca-file of the ConfigMap"),
            ("client_ca_file", "-----BEGIN CERTIFICATE-----\nAA\n", "client-ca-file of the"),
            ("requestheader_username_headers", None, "has no requestheader-username-headers"),
            ("requestheader_username_headers", [], "has no requestheader-username-headers"),
            ("requestheader_group_headers", "X-Remote-Group", "not a JSON list"),
            ("requestheader_group_headers", [1], "not a JSON list"),
            ("requestheader_group_headers", [""], "not a JSON list"),
            ("requestheader_group_headers", '["' + "[" * 100_000, "not a JSON list"),
            ("requestheader_allowed_names", {"a": 1}, "not a JSON list"),
            ("requestheader_allowed_names", ["a"] * 257, "more than 256"),
            ("requestheader_uid_headers", ["X: y"], "no header can be called 'X: y'"),
            ("requestheader_extra_headers_prefix", ["ä-"], "no header can be called"),
        ]:
            self.assertIn(told, self.refused(self.told(**{key: value})))
        for empty in ({}, {"data": None}, {"data": "x"}):
            self.assertIn("has no requestheader-client-ca-file", self.refused(empty))

    def test_any_name(self) -> None:
        """An empty list of names is refused if the proxies' CA also signs users."""
        self.assertEqual(trust_of(self.told(requestheader_allowed_names=[])).names, ())
        same = configmap(USERS, USERS, requestheader_allowed_names=[])
        self.assertIn("--requestheader-allowed-names", self.refused(same))
        among = configmap(USERS, PROXIES + USERS, requestheader_allowed_names=None)
        self.assertIn("every user could speak for everyone", self.refused(among))

    def test_same_authority(self) -> None:
        """If only names tell users and proxies apart there is a warning."""
        trust = trust_of(configmap(USERS, USERS))
        self.assertIn(f"for {PROXY} can impersonate everyone", trust.warning)

    def test_above(self) -> None:
        """If the proxies' CA has signed the users' CA, users count as signed by it."""
        above, below = authority_above()
        told = configmap(below, above, requestheader_allowed_names=[])
        self.assertIn("every user could speak for everyone", self.refused(told))
        self.assertTrue(trust_of(configmap(below, above)).warning)
        self.assertFalse(trust_of(configmap(above, below)).warning)

    def test_below(self) -> None:
        """Certificates of an intermediate CA below the users' CA are users as well."""
        above, below = authority_above()
        told = configmap(above, below, requestheader_allowed_names=[])
        self.assertIn("every user could speak for everyone", self.refused(told))

    def test_overrides(self) -> None:
        """Each override replaces its part of the ConfigMap."""
        given = RequestHeaderOverrides(names=("mine",), user=("X-User",), extra_prefix=("X-More-",))
        trust = trust_of(self.told(requestheader_username_headers=None), given)
        self.assertEqual(trust.names, ("mine",))
        headers = HeaderNames(user=("X-User",), extra_prefix=("X-More-",))
        self.assertEqual(trust.headers, headers)


def authority_above() -> tuple[bytes, bytes]:
    """A CA, and another that it has signed (PEM)."""

    def name(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

    now, key = datetime.now(UTC), ec.generate_private_key(ec.SECP256R1())
    made = []
    for subject, public in (("above", key), ("below", ec.generate_private_key(ec.SECP256R1()))):
        builder = (
            x509.CertificateBuilder()
            .subject_name(name(subject))
            .issuer_name(name("above"))
            .public_key(public.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now)
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        )
        made.append(pem.pem_of([builder.sign(key, hashes.SHA256())]))
    return made[0], made[1]
