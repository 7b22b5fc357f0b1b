"""
Tests for :mod:`twisted_exec.tls.pki.requests`.
"""

from __future__ import annotations

from cryptography import x509
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.tls import pem
from twisted_exec.tls.errors import TLSConfigError
from twisted_exec.tls.pki.requests import CertificateRequest, request_client, request_server


class RequestTests(SynchronousTestCase):
    """Tests for requests of servers and clients."""

    def parsed(self, request: CertificateRequest) -> x509.CertificateSigningRequest:
        """Return a request that is signed with its own key."""
        parsed = x509.load_pem_x509_csr(request.request_pem)
        self.assertTrue(parsed.is_signature_valid)
        key = pem.private_key(request.key_pem, "the key")
        self.assertEqual(parsed.public_key(), key.public_key())
        return parsed

    def test_server(self) -> None:
        """A server's request has its subject, and the names and addresses of the server."""
        parsed = self.parsed(
            request_server("system:node:a", ["system:nodes"], ["a.example", "::1"])
        )
        self.assertEqual(parsed.subject.rfc4514_string(), "CN=system:node:a,O=system:nodes")
        names = parsed.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        self.assertEqual([str(each.value) for each in names], ["a.example", "::1"])

    def test_client(self) -> None:
        """A client's request has its subject, and no names of a server."""
        parsed = self.parsed(request_client("system:node:a", ["system:nodes"]))
        self.assertEqual(parsed.subject.rfc4514_string(), "CN=system:node:a,O=system:nodes")
        self.assertEqual(len(parsed.extensions), 0)

    def test_names(self) -> None:
        """Names that no certificate can have are refused."""
        for request in (
            lambda: request_client("ja\0ne", []),
            lambda: request_client("jane", [""]),
            lambda: request_server("a", [], ["not a name"]),
        ):
            with self.assertRaises(TLSConfigError):
                request()

    def test_repr_hides_the_key(self) -> None:
        """A key does not get into a log by way of ``repr``."""
        self.assertNotIn("PRIVATE", repr(request_client("jane", [])))
