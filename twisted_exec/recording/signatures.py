"""
Signatures of recordings, by certificates for the signing of documents (RFC 9336).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from twisted_exec.recording.proof_lines import HeadContent, InvalidRecording
from twisted_exec.tls.usages import DOCUMENT_SIGNING

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class UnusableCertificate(Exception):
    """A certificate or a key cannot sign recordings; the message says why."""


class HeadSigner:
    """
    Signs heads with one certificate.

    :raises UnusableCertificate: the certificate and the key cannot sign recordings.
    """

    def __init__(self, certificate: x509.Certificate, key: object) -> None:
        if not isinstance(key, ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey):
            raise UnusableCertificate("the key is neither an elliptic curve key nor Ed25519")
        if certificate.public_key() != key.public_key():
            raise UnusableCertificate("the key does not belong to the certificate")
        if not _is_for_recordings(certificate):
            raise UnusableCertificate(
                "the certificate is not for recordings: issue one with 'twisted-exec pki recorder'"
            )
        self._certificate, self._key = certificate, key

    @property
    def certificate(self) -> bytes:
        return self._certificate.public_bytes(Encoding.DER)

    def require_valid(self, time: int) -> None:
        """
        Check the certificate.

        :param time: milliseconds since the epoch.
        :raises UnusableCertificate: it is not valid then.
        """
        if not _is_valid(self._certificate, _moment(time)):
            begin, end = (
                self._certificate.not_valid_before_utc,
                self._certificate.not_valid_after_utc,
            )
            raise UnusableCertificate(
                f"the certificate of the recorder is valid from {begin:%Y-%m-%d} to {end:%Y-%m-%d}, "
                "and not now: renew it with 'twisted-exec pki renew', or set the clock"
            )

    def sign(self, head: HeadContent) -> bytes:
        if isinstance(self._key, ed25519.Ed25519PrivateKey):
            return self._key.sign(head.content)
        return self._key.sign(head.content, ec.ECDSA(hashes.SHA256()))


@dataclass(frozen=True)
class _Recorder:
    certificate: x509.Certificate
    name: str
    issuers: Sequence[x509.Certificate]


class TrustedRecorders:
    """The certificate authorities of trusted recorders, several while one is replaced."""

    def __init__(self, authorities: Sequence[x509.Certificate]) -> None:
        self._authorities = authorities
        self._known: tuple[bytes, _Recorder] | None = None

    def verify(self, head: HeadContent, signature: bytes, certificate: bytes) -> str:
        """
        Verify a signed head; return the name of the signer.

        The certificates must have been valid at the time of the signature, not at present.

        :raises InvalidRecording: the signature, or its certificate, is not valid.
        """
        # Nearly all heads of a recording have the certificate of the previous head.
        if self._known is None or self._known[0] != certificate:
            self._known = certificate, self._recorder(certificate)
        recorder, time = self._known[1], _moment(head.time)
        name, signer = recorder.name, recorder.certificate
        if not any(_is_valid(issuer, time) for issuer in recorder.issuers):
            raise InvalidRecording(
                f"none of the given authorities has issued the certificate of {name!r}: give the CA "
                "of that recorder"
            )
        if not _is_valid(signer, time):
            raise InvalidRecording(
                f"the certificate of {name!r} was not valid at the time of its signature, "
                f"{time:%Y-%m-%d %H:%M:%S} UTC"
            )
        key = signer.public_key()
        try:
            if isinstance(key, ed25519.Ed25519PublicKey):
                key.verify(signature, head.content)
            elif isinstance(key, ec.EllipticCurvePublicKey):
                key.verify(signature, head.content, ec.ECDSA(hashes.SHA256()))
            else:
                raise InvalidSignature
        except (InvalidSignature, UnsupportedAlgorithm):
            raise InvalidRecording(f"a signature is not by {name!r}, or of other content") from None
        return name

    def _recorder(self, certificate: bytes) -> _Recorder:
        try:
            signer = x509.load_der_x509_certificate(certificate)
            name = _name(signer)
            is_usable = _is_for_recordings(signer)
        except ValueError:
            raise InvalidRecording("the certificate of a signature cannot be read") from None
        if not is_usable:
            raise InvalidRecording(f"the certificate of {name!r} is not for recordings")
        issuers = [each for each in self._authorities if _has_issued(each, signer)]
        return _Recorder(signer, name, issuers)


def _is_for_recordings(certificate: x509.Certificate) -> bool:
    try:
        usages = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return False
    # Not "any usage": a recorder's certificate must not open connections either.
    return list(usages) == [DOCUMENT_SIGNING]


def _has_issued(issuer: x509.Certificate, certificate: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(issuer)
        basic = issuer.extensions.get_extension_for_class(x509.BasicConstraints).value
    except (InvalidSignature, UnsupportedAlgorithm, x509.ExtensionNotFound, TypeError, ValueError):
        return False
    return basic.ca


def _is_valid(certificate: x509.Certificate, time: datetime) -> bool:
    return certificate.not_valid_before_utc <= time <= certificate.not_valid_after_utc


def _name(certificate: x509.Certificate) -> str:
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(names[0].value) if names else ""


def _moment(time: int) -> datetime:
    try:
        return _EPOCH + timedelta(milliseconds=time)
    except OverflowError:
        raise InvalidRecording("the time of a signed head is not a time") from None
