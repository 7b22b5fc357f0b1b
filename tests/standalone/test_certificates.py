"""
Tests for :mod:`twisted_exec.standalone.certificates`.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

from cryptography import x509
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.dialects import IRONCORE
from twisted_exec.standalone.certificates import Certificates, prepare
from twisted_exec.tls.errors import TLSConfigError

NOW = datetime.now(UTC)


class PrepareTests(SynchronousTestCase):
    """Tests for :func:`prepare`."""

    def setUp(self) -> None:
        self.directory = os.path.join(self.mktemp(), "pki")

    def contents(self) -> dict[str, bytes]:
        found = {}
        for name in sorted(os.listdir(self.directory)):
            with open(os.path.join(self.directory, name), "rb") as file:
                found[name] = file.read()
        return found

    def changed_by(self, now: datetime = NOW) -> set[str]:
        """Which files another start replaces."""
        before = self.contents()
        prepare(self.directory, now, IRONCORE)
        after = self.contents()
        return {name for name in after if after[name] != before.get(name)}

    def certificate(self, path: str) -> x509.Certificate:
        with open(path, "rb") as file:
            return x509.load_pem_x509_certificate(file.read())

    def first(self) -> Certificates:
        return prepare(self.directory, NOW, IRONCORE)

    def test_names(self) -> None:
        """Each certificate says who its owner is."""
        made = self.first()
        told = {
            pair: self.certificate(pair.certificate).subject.rfc4514_string()
            for pair in (made.apiserver, made.forwarding, made.poollet, made.poollet_client)
        }
        pool = "CN=compute.ironcore.dev:system:machinepool:local"
        self.assertEqual(told[made.forwarding], "CN=exec-apiserver")
        self.assertEqual(told[made.poollet], pool)
        self.assertEqual(
            told[made.poollet_client], f"{pool},O=compute.ironcore.dev:system:machinepools"
        )
        self.assertEqual(
            self.certificate(made.admin.certificate).subject.rfc4514_string(),
            "CN=admin,O=system:masters",
        )

    def test_account_key(self) -> None:
        """The key for tokens is private, and is never replaced."""
        made = self.first()
        self.assertEqual(os.stat(made.pki.account_key).st_mode & 0o777, 0o600)
        self.assertEqual(
            self.changed_by(NOW + timedelta(days=9 * 365)) & {"service-account.key"}, set()
        )

    def test_made_once(self) -> None:
        """A restart changes nothing."""
        self.first()
        self.assertEqual(self.changed_by(), set())

    def test_renewed_near_the_end(self) -> None:
        """Leaves are renewed a month before their end, authorities stay."""
        self.first()
        self.assertEqual(self.changed_by(NOW + timedelta(days=300)), set())
        changed = self.changed_by(NOW + timedelta(days=350))
        self.assertEqual(len(changed), 12)
        self.assertFalse([name for name in changed if "ca." in name])

    def test_made_while_the_clock_was_ahead(self) -> None:
        """Certificates that are not valid yet are replaced, authorities too."""
        prepare(self.directory, NOW + timedelta(days=730), IRONCORE)
        self.assertEqual(len(self.changed_by()), 18)
        self.assertEqual(self.changed_by(), set())

    def test_damaged_leaf(self) -> None:
        """A leaf that cannot be read, or whose key is gone, is renewed alone with its twin."""
        made = self.first()
        with open(made.admin.certificate, "w") as file:
            file.write("what?\n")
        self.assertEqual(self.changed_by(), {"user-admin.crt", "user-admin.key"})
        os.unlink(made.apiserver.key)
        self.assertIn("apiserver.key", self.changed_by())
        with open(made.poollet.key, "rb") as file:
            other = file.read()
        with open(made.admin.key, "wb") as file:
            file.write(other)
        self.assertEqual(self.changed_by(), {"user-admin.crt", "user-admin.key"})

    def test_damaged_authority(self) -> None:
        """An authority is never replaced behind anybody's back."""
        made = self.first()
        with open(made.pki.pair("ca").key, "w") as file:
            file.write("what?\n")
        with self.assertRaises(TLSConfigError):
            prepare(self.directory, NOW, IRONCORE)

    def test_old_authorities(self) -> None:
        """Near the authorities' end new ones sign everything, and the old ones stay trusted."""
        made = self.first()
        before = self.contents()
        self.assertEqual(len(self.changed_by(NOW + timedelta(days=3300))), 18)
        for name in ("ca.crt", "client-ca.crt", "requestheader-ca.crt"):
            self.assertTrue(self.contents()[name].endswith(before[name]), name)
        for pair, ca in ((made.apiserver, "ca"), (made.admin, "client-ca")):
            newest = self.certificate(made.pki.pair(ca).certificate)
            self.certificate(pair.certificate).verify_directly_issued_by(newest)
        self.assertEqual(self.changed_by(NOW + timedelta(days=3300)), set())
