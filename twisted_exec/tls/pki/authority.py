"""A certificate authority, which issues certificates of servers, clients and recorders."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes
from cryptography.x509.oid import ExtendedKeyUsageOID

from twisted_exec.tls import pem
from twisted_exec.tls.errors import TLSConfigError
from twisted_exec.tls.pki.names import (
    LONGEST_COMMON_NAME,
    alternative_names,
    alternative_uris,
    subject_name,
)
from twisted_exec.tls.private_files import write_in_order
from twisted_exec.tls.usages import DOCUMENT_SIGNING

_CA_LIFE = timedelta(days=3650)
LEAF_LIFE = timedelta(days=365)
CLOCK_SKEW = timedelta(minutes=5)  # for hosts whose clocks are behind


@dataclass(frozen=True)
class Issued:
    """A certificate and its private key, as PEM."""

    certificate_pem: bytes
    key_pem: bytes = field(repr=False)

    def write(self, certificate_path: str, key_path: str, *, replace: bool = False) -> None:
        """
        Write both files, mode 0600, the key first, or neither if one cannot be written.

        :raises TLSConfigError: a file exists and ``replace`` is false, or cannot be written.
        """
        if not replace:
            for path in (certificate_path, key_path):
                if os.path.lexists(path):
                    raise TLSConfigError(f'"{path}" exists already')
        write_in_order((key_path, self.key_pem), (certificate_path, self.certificate_pem))


class Authority:
    """One certificate authority, in memory."""

    def __init__(self, certificate: x509.Certificate, key: pem.PrivateKey) -> None:
        self._certificate, self._key = certificate, key

    @classmethod
    def create(cls, common_name: str, *, now: datetime | None = None) -> Authority:
        """Create a self-signed authority, valid for ten years."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = subject_name(common_name, ())
        builder = _builder(name, name, key.public_key(), now, _CA_LIFE)
        # It can sign no other CA (RFC 5280 4.2.1.9).
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
        remedy: str = "give the pair that was issued together",
    ) -> Authority:
        """
        Load an authority from its PEM texts.

        :param certificate_pem: one or more certificates; the one for the key signs.
        :param remedy: what to do if none is, for the error.
        :raises TLSConfigError: they cannot be used.
        """
        certificates = pem.certificates(certificate_pem, certificate_what)
        key = pem.private_key(key_pem, key_what)
        certificate = next((each for each in certificates if pem.is_key_of(key, each)), None)
        if certificate is None:
            raise TLSConfigError(f"{key_what} does not belong to {certificate_what}: {remedy}")
        try:
            basic = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
        except (x509.ExtensionNotFound, *pem.UNREADABLE):
            raise TLSConfigError(f"{certificate_what} is not a CA's") from None
        if not basic.value.ca:
            raise TLSConfigError(f"{certificate_what} is not a CA's")
        return cls(certificate, key)

    @property
    def begins(self) -> datetime:
        return self._certificate.not_valid_before_utc

    @property
    def expires(self) -> datetime:
        return self._certificate.not_valid_after_utc

    def has_issued(self, certificate: x509.Certificate) -> bool:
        return pem.has_issued(self._certificate, certificate)

    @property
    def certificate_pem(self) -> bytes:
        return pem.pem_of([self._certificate])

    @property
    def key_pem(self) -> bytes:
        return pem.pem_of_key(self._key)

    def issue_server(
        self,
        names: Sequence[str],
        *,
        common_name: str = "",
        now: datetime | None = None,
        life: timedelta = LEAF_LIFE,
    ) -> Issued:
        """
        Issue a server's certificate.

        :param names: DNS names and IP addresses, one or more.
        :param common_name: the subject, by default the first of ``names``.
        :raises TLSConfigError: there are no names, or one cannot be used.
        """
        if not names:
            raise TLSConfigError("a server certificate needs a name: a DNS name or an IP address")
        alternatives = alternative_names(names)
        subject = subject_name(common_name or names[0][:LONGEST_COMMON_NAME], ())
        return self._issue(
            subject, ExtendedKeyUsageOID.SERVER_AUTH, now=now, life=life, names=alternatives
        )

    def issue_client(
        self,
        user: str,
        groups: Sequence[str] = (),
        *,
        now: datetime | None = None,
        life: timedelta = LEAF_LIFE,
    ) -> Issued:
        """
        Issue a client's certificate.

        :raises TLSConfigError: a name is empty, too long, or has control characters.
        """
        subject = subject_name(user, groups)
        return self._issue(subject, ExtendedKeyUsageOID.CLIENT_AUTH, now=now, life=life)

    def issue_recorder(
        self, name: str, *, now: datetime | None = None, life: timedelta = LEAF_LIFE
    ) -> Issued:
        """
        Issue a certificate that signs recordings, and cannot open or serve connections.

        :raises TLSConfigError: the name is empty, too long, or has control characters.
        """
        return self._issue(subject_name(name, ()), DOCUMENT_SIGNING, now=now, life=life)

    def certify(
        self,
        key: CertificatePublicKeyTypes,
        user: str,
        groups: Sequence[str],
        names: Sequence[str] = (),
        *,
        now: datetime,
        life: timedelta,
        uris: Sequence[str] = (),
    ) -> bytes:
        """
        Issue a certificate for another party's public key, as PEM.

        It expires no later than the authority's own certificate.

        :param names: DNS names and IP addresses of a server; empty for a client's certificate.
        :param uris: for a client's certificate.
        :raises TLSConfigError: the authority has expired, or a name cannot be used.
        """
        life = min(life, self.expires - now)
        if life <= timedelta(0):
            raise TLSConfigError("the CA's own certificate has expired: issue a new one")
        usage = ExtendedKeyUsageOID.SERVER_AUTH if names else ExtendedKeyUsageOID.CLIENT_AUTH
        alternatives = alternative_names(names) if names else alternative_uris(uris)
        subject = subject_name(user, groups)
        certificate = self._certified(key, subject, usage, now=now, life=life, names=alternatives)
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
        # cryptography wants no hash for Ed25519 and Ed448, which have their own.
        algorithm = hashes.SHA256() if _wants_hash(self._key) else None
        return builder.sign(self._key, algorithm)


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
        .not_valid_before(start - CLOCK_SKEW)
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
