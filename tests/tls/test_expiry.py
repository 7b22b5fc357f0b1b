"""
Tests for :mod:`twisted_exec.tls.expiry`.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

from twisted.trial.unittest import SynchronousTestCase

from tests.tls.support import write
from twisted_exec.tls.expiry import Expiry
from twisted_exec.tls.pki.authority import Authority

NOW = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)


def at(days: int) -> float:
    return (NOW + days * DAY).timestamp()


class ExpiryTests(SynchronousTestCase):
    """Tests for :class:`Expiry`."""

    def setUp(self) -> None:
        self.directory = self.mktemp()
        os.makedirs(self.directory)
        self.authority = Authority.create("CA", now=NOW)

    def ends(self, content: bytes) -> dict[str, float]:
        path = write(self.directory, "file.crt", content)
        return Expiry({"tls-cert-file": path}).ends()

    def test_leaf(self) -> None:
        """The leaf's expiry counts, whatever CA follows it in the file."""
        issued = self.authority.issue_server(["localhost"], now=NOW, life=10 * DAY)
        chain = issued.certificate_pem + self.authority.certificate_pem
        self.assertEqual(self.ends(chain), {"tls-cert-file": at(10)})

    def test_authorities(self) -> None:
        """Of several CAs the one that lasts longest counts."""
        old = Authority.create("CA", now=NOW - 3000 * DAY)
        for bundle in (
            old.certificate_pem + self.authority.certificate_pem,
            self.authority.certificate_pem + old.certificate_pem,
        ):
            self.assertEqual(self.ends(bundle), {"tls-cert-file": at(3650)})

    def test_as_it_is(self) -> None:
        """Expiry is read from the file's current content; unreadable files are left out."""
        self.assertEqual(self.ends(b"nothing"), {})
        self.assertEqual(Expiry({"client-ca-file": "/nowhere/ca.crt"}).ends(), {})
        self.assertEqual(self.ends(self.authority.certificate_pem), {"tls-cert-file": at(3650)})

    def test_elsewhere(self) -> None:
        """
        Expiry of a certificate embedded in another file is reported; empty content is left out.
        """
        issued = self.authority.issue_client("jane", now=NOW, life=DAY).certificate_pem
        for content, told in ((issued, {"kubeconfig": at(1)}), (b"", {})):
            self.assertEqual(
                Expiry({}, {"kubeconfig": lambda content=content: content}).ends(), told
            )
