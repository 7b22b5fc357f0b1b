"""
Tests for :mod:`twisted_exec.tls.pki.directory`.
"""

from __future__ import annotations

import os
import stat
from datetime import UTC, datetime

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.dialects import IRONCORE, SPHERIC
from twisted_exec.api.users import FORWARDING_USER
from twisted_exec.tls import pem
from twisted_exec.tls.errors import TLSConfigError, VerificationError
from twisted_exec.tls.files import read_file
from twisted_exec.tls.pki.directory import Pair, create_pki, open_pki
from twisted_exec.tls.pki.renewal import renew_authorities
from twisted_exec.tls.server import PeerCertificate, verify


def peer(pair: Pair) -> PeerCertificate:
    return PeerCertificate(pem.certificates(read_file(pair.certificate), "it")[0])


class PKITests(SynchronousTestCase):
    """Tests for :class:`PKI`."""

    def setUp(self) -> None:
        self.directory = os.path.abspath(self.mktemp())
        self.pki = create_pki(self.directory)

    def test_private(self) -> None:
        """The directory and its files are readable by their owner only."""
        self.pki.issue_apiserver(["localhost"])
        self.pki.issue_poollet("pool-a", ["localhost"])
        self.pki.issue_user("jane", [])
        self.pki.issue_runtime("host-1", ["localhost"])
        self.assertEqual(stat.S_IMODE(os.stat(self.directory).st_mode), 0o700)
        for name in os.listdir(self.directory):
            mode = stat.S_IMODE(os.stat(os.path.join(self.directory, name)).st_mode)
            self.assertEqual(mode, 0o600, name)

    def test_account_key(self) -> None:
        """The token signing key is created once with mode 0600; an existing file is kept."""
        first = read_file(self.pki.account_key)
        self.assertTrue(first.startswith(b"-----BEGIN EC PRIVATE KEY-----\n"))
        self.assertEqual(os.stat(self.pki.account_key).st_mode & 0o777, 0o600)
        create_pki(self.directory, replace=True).make_account_key()
        self.assertEqual(read_file(self.pki.account_key), first)

    def test_three_authorities(self) -> None:
        """Serving, user and forwarding CA are three."""
        cas = {
            read_file(path)
            for path in (self.pki.serving_ca, self.pki.client_ca, self.pki.forwarding_ca)
        }
        self.assertEqual(len(cas), 3)

    def test_each_for_its_own(self) -> None:
        """Each certificate is verified by exactly one CA."""
        _, forwarding = self.pki.issue_apiserver(["localhost"])
        _, poollet = self.pki.issue_poollet("pool-a", ["localhost"])
        jane = self.pki.issue_user("jane", ["dev"])
        cas = (self.pki.serving_ca, self.pki.client_ca, self.pki.forwarding_ca)
        for pair, good in (
            (forwarding, self.pki.forwarding_ca),
            (poollet, self.pki.client_ca),
            (jane, self.pki.client_ca),
        ):
            for ca in cas:
                if ca == good:
                    verify(peer(pair), read_file(ca))
                else:
                    with self.assertRaises(VerificationError):
                        verify(peer(pair), read_file(ca))

    def test_names(self) -> None:
        """Certificates carry the user and group names of their owners."""
        _, forwarding = self.pki.issue_apiserver(["localhost"])
        serving, poollet = self.pki.issue_poollet("pool-a", ["localhost"])
        self.assertEqual(peer(forwarding).common_name, FORWARDING_USER)
        self.assertEqual(peer(poollet).common_name, IRONCORE.pool_identity("pool-a"))
        self.assertEqual(peer(poollet).organizations, (IRONCORE.pool_identity_group,))
        self.assertEqual(peer(serving).common_name, IRONCORE.pool_identity("pool-a"))

    def test_no_overwriting(self) -> None:
        """Existing files are kept unless replace is true; the message suggests --force."""
        with self.assertRaises(TLSConfigError):
            create_pki(self.directory)
        self.pki.issue_user("jane", [])
        before = read_file(self.pki.pair("user-jane").key)
        with self.assertRaises(TLSConfigError) as caught:
            self.pki.issue_user("jane", [])
        self.assertIn("give --force", str(caught.exception))
        self.assertEqual(read_file(self.pki.pair("user-jane").key), before)
        self.pki.issue_user("jane", [], replace=True)
        self.assertNotEqual(read_file(self.pki.pair("user-jane").key), before)

    def test_half_exists(self) -> None:
        """If one of several files exists, the command is refused before it writes any."""
        self.pki.issue_apiserver(["localhost"])
        os.unlink(self.pki.pair("apiserver").certificate)
        os.unlink(self.pki.pair("apiserver").key)
        with self.assertRaises(TLSConfigError):
            self.pki.issue_apiserver(["localhost"])
        self.assertFalse(self.pki.pair("apiserver").exists)

    def test_file_names(self) -> None:
        """Certificate names cannot lead out of the directory."""
        for bad in ("../x", "a/b", "", ".hidden", "a\nb", "a\0b", "-x"):
            with self.assertRaises(TLSConfigError, msg=repr(bad)):
                self.pki.issue_user(bad, [])
            with self.assertRaises(TLSConfigError, msg=repr(bad)):
                self.pki.issue_poollet(bad, ["localhost"])
            with self.assertRaises(TLSConfigError, msg=repr(bad)):
                self.pki.issue_runtime(bad, ["localhost"])

    def test_long_pool(self) -> None:
        """A pool name that is too long for a certificate is refused with the permitted length."""
        with self.assertRaises(TLSConfigError) as caught:
            self.pki.issue_poollet("p" * 25, ["localhost"])
        self.assertIn("has 25 characters; a certificate has room for 24", str(caught.exception))
        self.pki.issue_poollet("p" * 24, ["localhost"])

    def test_dialects(self) -> None:
        """Poollet names follow the dialect; a shorter prefix permits a longer pool name."""
        _, client = self.pki.issue_poollet("f" * 31, ["localhost"], dialect=SPHERIC)
        (certificate,) = pem.certificates(read_file(client.certificate), "it")
        subject = certificate.subject.rfc4514_string()
        self.assertIn(f"CN=core.spheric.cloud:system:fleet:{'f' * 31}", subject)
        self.assertIn("O=core.spheric.cloud:system:fleets", subject)

    def test_open(self) -> None:
        """An existing PKI directory is opened; for another, the message suggests pki init."""
        open_pki(self.directory).issue_user("jane", [])
        with self.assertRaises(TLSConfigError) as caught:
            open_pki("/nowhere")
        self.assertIn("twisted-exec pki init /nowhere", str(caught.exception))

    def test_other_key(self) -> None:
        """For an authority with another's key, the message says what to do, and that helps."""
        pair = self.pki.pair("client-ca")
        os.replace(self.pki.pair("ca").key, pair.key)
        with self.assertRaises(TLSConfigError) as caught:
            self.pki.issue_user("jane", [])
        self.assertIn(
            f"twisted-exec pki renew {self.directory} --authorities", str(caught.exception)
        )
        renew_authorities(self.pki, ["client-ca"], datetime.now(UTC))
        self.pki.issue_user("jane", [])

    def test_missing_key(self) -> None:
        """An authority whose key is kept elsewhere says which one is missing."""
        os.unlink(self.pki.pair("client-ca").key)
        with self.assertRaises(TLSConfigError) as caught:
            self.pki.issue_user("jane", [])
        self.assertIn("client-ca.key", str(caught.exception))
