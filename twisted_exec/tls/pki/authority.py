"""
A small certificate authority: P-256 keys, PEM texts, private files.

It issues only what the programs need: server certificates for DNS names and IP
addresses, client certificates with a user (common name) and groups
(organizations), as Kubernetes reads them, and certificates that sign recordings.  Keys are handed out as PEM only.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from twisted_exec.tls import pem
from twisted_exec.tls.errors import TLSConfigError
from twisted_exec.tls.pem import server_name
from twisted_exec.tls.usages import DOCUMENT_SIGNING

_CA_LIFE = timedelta(days=3650)
_LEAF_LIFE = timedelta(days=365)
_CLOCK_SKEW = timedelta(minutes=5)
LONGEST_COMMON_NAME = 64
"""Limit of names in X.520, enforced by cryptography and OpenSSL."""


@dataclass(frozen=True)
class Issued:
    """A certificate and its private key, as PEM."""

    certificate_pem: bytes
    key_pem: bytes = field(repr=False)

    def write(self, certificate_path: str, key_path: str, *, replace: bool = False) -> None:
        """
        Write both files, mode 0600, the key first.

        :raises TLSConfigError: a file exists and ``replace`` is false, or cannot be written.
        """
        if not replace:
            for path in (certificate_path, key_path):
                if os.path.lexists(path):
                    raise TLSConfigError(f"{path!r} exists already")
        write_private(key_path, self.key_pem)
        write_private(certificate_path, self.certificate_pem)


class Authority:
    """One certificate authority, in memory."""

    def __init__(self, certificate: x509.Certificate, key: pem.PrivateKey) -> None:
        self._certificate, self._key = certificate, key

    @classmethod
    def create(cls, common_name: str, *, now: datetime | None = None) -> Authority:
        """Create a self-signed authority, valid for ten years."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = _subject(common_name, ())
        builder = _builder(name, name, key.public_key(), now, _CA_LIFE)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
        builder = builder.add_extension(_key_usage(ca=True), True)
        identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        builder = builder.add_extension(identifier, False)
        return cls(builder.sign(key, hashes.SHA256()), key)

    @classmethod
    def load(
        cls,
        certificate_pem: bytes,
        key_pem: bytes,
        *,
        certificate_what: str = "the CA certificate",
        key_what: str = "the CA key",
    ) -> Authority:
        """
        Load an authority from its PEM texts.

        :param certificate_what: name of the certificate in errors.
        :param key_what: name of the key in errors.
        :raises TLSConfigError: one is malformed, they do not match, or the certificate is not a
            CA's.
        """
        certificate = pem.certificates(certificate_pem, certificate_what)[0]
        key = pem.private_key(key_pem, key_what)
        if certificate.public_key() != key.public_key():
            raise TLSConfigError(f"{key_what} does not belong to {certificate_what}")
        try:
            basic = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
        except (x509.ExtensionNotFound, ValueError):
            raise TLSConfigError(f"{certificate_what} is not a CA's") from None
        if not basic.value.ca:
            raise TLSConfigError(f"{certificate_what} is not a CA's")
        return cls(certificate, key)

    def has_issued(self, certificate: x509.Certificate) -> bool:
        """Return whether a certificate is signed with this authority's key."""
        return pem.has_issued(self._certificate, certificate)

    @property
    def certificate_pem(self) -> bytes:
        """The CA certificate, for clients and servers to trust."""
        return pem.pem_of([self._certificate])

    @property
    def key_pem(self) -> bytes:
        """The CA's private key."""
        return pem.pem_of_key(self._key)

    def issue_server(
        self,
        names: Sequence[str],
        *,
        common_name: str = "",
        now: datetime | None = None,
        life: timedelta = _LEAF_LIFE,
    ) -> Issued:
        """
        Issue a server's certificate.

        :param names: DNS names and IP addresses, one or more.
        :param common_name: the subject, such as a poollet's pool; empty for the first of ``names``.
        :raises TLSConfigError: a name is malformed, or the common name is too long.
        """
        if not names:
            raise TLSConfigError("a server certificate needs a name: a DNS name or an IP address")
        alternatives = x509.SubjectAlternativeName([_general_name(name) for name in names])
        subject = _subject(common_name or names[0][:LONGEST_COMMON_NAME], ())
        return self._issue(
            subject, ExtendedKeyUsageOID.SERVER_AUTH, now=now, life=life, names=alternatives
        )

    def issue_client(
        self,
        user: str,
        groups: Sequence[str] = (),
        *,
        now: datetime | None = None,
        life: timedelta = _LEAF_LIFE,
    ) -> Issued:
        """
        Issue a client's certificate: common name ``user``, one organization per group.

        :raises TLSConfigError: the user or a group is empty or longer than 64 characters.
        """
        subject = _subject(user, groups)
        return self._issue(subject, ExtendedKeyUsageOID.CLIENT_AUTH, now=now, life=life)

    def issue_recorder(
        self, name: str, *, now: datetime | None = None, life: timedelta = _LEAF_LIFE
    ) -> Issued:
        """
        Issue a certificate that signs recordings, and cannot open or serve connections.

        :raises TLSConfigError: the name is empty or longer than 64 characters.
        """
        return self._issue(_subject(name, ()), DOCUMENT_SIGNING, now=now, life=life)

    def certify(
        self,
        key: CertificatePublicKeyTypes,
        user: str,
        groups: Sequence[str],
        names: Sequence[str] = (),
        *,
        now: datetime,
        life: timedelta,
    ) -> bytes:
        """
        Issue a certificate for another party's public key; return it as PEM.

        It expires no later than the authority's own certificate.

        :param names: DNS names and IP addresses of a server; empty for a client's certificate.
        :raises TLSConfigError: the authority has expired, or a name is malformed.
        """
        life = min(life, self._certificate.not_valid_after_utc - now)
        if life <= timedelta(0):
            raise TLSConfigError("the CA's own certificate has expired: issue a new one")
        usage = ExtendedKeyUsageOID.SERVER_AUTH if names else ExtendedKeyUsageOID.CLIENT_AUTH
        alternatives = x509.SubjectAlternativeName([_general_name(name) for name in names])
        subject = _subject(user, groups)
        certificate = self._certified(
            key, subject, usage, now=now, life=life, names=alternatives if names else None
        )
        return pem.pem_of([certificate])

    def _issue(
        self,
        subject: x509.Name,
        usage: x509.ObjectIdentifier,
        *,
        now: datetime | None,
        life: timedelta,
        names: x509.SubjectAlternativeName | None = None,
    ) -> Issued:
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._certified(
            key.public_key(), subject, usage, now=now, life=life, names=names
        )
        return Issued(pem.pem_of([certificate]), pem.pem_of_key(key))

    def _certified(
        self,
        public: CertificatePublicKeyTypes,
        subject: x509.Name,
        usage: x509.ObjectIdentifier,
        *,
        now: datetime | None,
        life: timedelta,
        names: x509.SubjectAlternativeName | None,
    ) -> x509.Certificate:
        builder = _builder(subject, self._certificate.subject, public, now, life)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), True)
        builder = builder.add_extension(_key_usage(ca=False), True)
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), False)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = builder.add_extension(issuer, False)
        if names is not None:
            builder = builder.add_extension(names, False)
        algorithm = hashes.SHA256() if _wants_hash(self._key) else None
        return builder.sign(self._key, algorithm)


def request_server(common_name: str, organizations: Sequence[str], names: Sequence[str]) -> Issued:
    """
    Return a new key with a request (PKCS #10) for a server's certificate in place of the
    certificate.

    :param names: DNS names and IP addresses, one or more.
    :raises TLSConfigError: a name is malformed or too long.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    alternatives = x509.SubjectAlternativeName([_general_name(name) for name in names])
    builder = x509.CertificateSigningRequestBuilder(_subject(common_name, organizations))
    request = builder.add_extension(alternatives, False).sign(key, hashes.SHA256())
    return Issued(request.public_bytes(Encoding.PEM), pem.pem_of_key(key))


def request_client(common_name: str, organizations: Sequence[str]) -> Issued:
    """
    Return a new key with a request (PKCS #10) for a client's certificate in place of the
    certificate.

    :raises TLSConfigError: a name is too long.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    builder = x509.CertificateSigningRequestBuilder(_subject(common_name, organizations))
    request = builder.sign(key, hashes.SHA256())
    return Issued(request.public_bytes(Encoding.PEM), pem.pem_of_key(key))


def new_key_pem() -> bytes:
    """Return a new private key as PEM, to sign something other than certificates."""
    return pem.pem_of_key(ec.generate_private_key(ec.SECP256R1()))


def _wants_hash(key: pem.PrivateKey) -> bool:
    return not type(key).__name__.startswith("Ed")


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: CertificatePublicKeyTypes,
    now: datetime | None,
    life: timedelta,
) -> x509.CertificateBuilder:
    start = now or datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(start - _CLOCK_SKEW)
        .not_valid_after(start + life)
    )


def _key_usage(*, ca: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=ca,
        crl_sign=ca,
        encipher_only=False,
        decipher_only=False,
    )


def _subject(common_name: str, organizations: Sequence[str]) -> x509.Name:
    for text in (common_name, *organizations):
        if not 1 <= len(text) <= LONGEST_COMMON_NAME:
            raise TLSConfigError(
                f"a certificate can name {text!r} only if it has 1 to "
                f"{LONGEST_COMMON_NAME} characters; it has {len(text)}"
            )
        if pem.has_controls(text):
            raise TLSConfigError(f"a certificate cannot name {text!r}: it has control characters")
    # One RDN per organization, as Go writes and reads them.
    attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, each) for each in organizations]
    return x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _general_name(text: str) -> x509.GeneralName:
    wildcard = "*." if text.startswith("*.") else ""
    name = server_name(text.removeprefix(wildcard))
    if isinstance(name, str):
        return x509.DNSName(wildcard + name)
    if wildcard:
        raise TLSConfigError(f"{text!r} is no DNS name or IP address")
    return x509.IPAddress(name)


def write_private(path: str, content: bytes) -> None:
    """
    Write a file of mode 0600 so that a reader sees the old content or all of the new.

    :raises TLSConfigError: it cannot be written.
    """
    try:
        # mkstemp creates the file with mode 0600, whatever the umask.
        descriptor, temporary = tempfile.mkstemp(prefix=".", dir=os.path.dirname(path) or ".")
        try:
            with open(descriptor, "wb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as problem:
        why = os.strerror(problem.errno or 0)
        raise TLSConfigError(f"cannot write {path!r}: {why}") from None
