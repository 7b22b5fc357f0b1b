"""Requests for certificates (PKCS #10)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from twisted_exec.tls import pem
from twisted_exec.tls.pki.names import alternative_names, subject_name


@dataclass(frozen=True)
class CertificateRequest:
    """A request for a certificate (PKCS #10) and the private key that it is for, as PEM."""

    request_pem: bytes
    key_pem: bytes = field(repr=False)


def request_server(
    common_name: str, organizations: Sequence[str], names: Sequence[str]
) -> CertificateRequest:
    """
    Return a request for a server's certificate, with a new key.

    :param names: DNS names and IP addresses, one or more.
    :raises TLSConfigError: a name cannot be used.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    alternatives = alternative_names(names)
    builder = x509.CertificateSigningRequestBuilder(subject_name(common_name, organizations))
    request = builder.add_extension(alternatives, False).sign(key, hashes.SHA256())
    return CertificateRequest(request.public_bytes(Encoding.PEM), pem.pem_of_key(key))


def request_client(common_name: str, organizations: Sequence[str]) -> CertificateRequest:
    """
    Return a request for a client's certificate, with a new key.

    :raises TLSConfigError: a name is empty, too long, or has control characters.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    builder = x509.CertificateSigningRequestBuilder(subject_name(common_name, organizations))
    request = builder.sign(key, hashes.SHA256())
    return CertificateRequest(request.public_bytes(Encoding.PEM), pem.pem_of_key(key))
