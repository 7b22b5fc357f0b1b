"""
Parsers of PEM texts and server names, and OpenSSL contexts from them.

The parameter ``what`` is the name of the source for errors.
"""

from __future__ import annotations

import ipaddress
import re
import unicodedata
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from weakref import WeakKeyDictionary

import idna
from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from OpenSSL import SSL
from OpenSSL.crypto import X509, X509Store
from OpenSSL.crypto import Error as CryptoError

from twisted_exec.tls.errors import TLSConfigError, VerificationError

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

UNREADABLE = (
    ValueError,
    TypeError,
    x509.InvalidVersion,
    x509.DuplicateExtension,
    x509.UnsupportedGeneralNameType,
)
"""Errors for malformed certificates. Names and extensions are parsed when they are first read."""

_KNOWN = 128
_leaves: WeakKeyDictionary[SSL.Connection, x509.Certificate] = WeakKeyDictionary()

# Host names must not have underscores, but names in DNS do.
_LABEL = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)")

PrivateKey = (
    rsa.RSAPrivateKey
    | ec.EllipticCurvePrivateKey
    | ed25519.Ed25519PrivateKey
    | ed448.Ed448PrivateKey
)

_BEGIN, _END = b"-----BEGIN CERTIFICATE-----", b"-----END CERTIFICATE-----"

# The cipher suites of TLS 1.2 with forward secrecy and authenticated encryption; TLS 1.3 has
# no others.
_CIPHERS = b"ECDHE+AESGCM:ECDHE+CHACHA20"


def server_name(text: str) -> Address | str:
    """
    Return an IP address, or a DNS name in ASCII without its final dot.

    :param text: an address, with or without brackets, or a DNS name.
    :raises TLSConfigError: the text is neither.
    """
    try:
        return ipaddress.ip_address(text.removeprefix("[").removesuffix("]"))
    except ValueError:
        pass
    try:
        name = text if text.isascii() else idna.encode(text, uts46=True).decode("ascii")
    except idna.IDNAError:
        name = ""
    name = name.removesuffix(".")
    if len(name) > 253 or not all(_LABEL.fullmatch(label) for label in name.split(".")):
        raise TLSConfigError(f"{text!r} is no DNS name or IP address")
    return name


def certificates(pem: bytes, what: str) -> list[x509.Certificate]:
    """
    Return the certificates of a text, at least 1, in order.  Their extensions are not checked.

    :raises TLSConfigError: the text has no certificate, or a malformed or incomplete one.
    """
    try:
        certificates = x509.load_pem_x509_certificates(pem)
    except (ValueError, x509.InvalidVersion):
        raise TLSConfigError(f"{what} holds no PEM certificate that can be read") from None
    if _is_cut(pem):
        raise TLSConfigError(f"{what} ends in the middle of a certificate: is it being written?")
    return certificates


def _is_cut(pem: bytes) -> bool:
    if pem.count(_BEGIN) > pem.count(_END):
        return True
    rest = pem[pem.rfind(_END) + len(_END) :].strip()
    return bool(rest) and _BEGIN.startswith(rest)


def is_key_of(key: PrivateKey | x509.Certificate, certificate: x509.Certificate) -> bool:
    """Return whether a certificate is for this key, or for the key of another certificate."""
    try:
        return certificate.public_key() == key.public_key()
    except (ValueError, UnsupportedAlgorithm):
        return False


def has_issued(issuer: x509.Certificate, certificate: x509.Certificate) -> bool:
    """Return whether ``certificate`` names ``issuer`` and is signed with its key."""
    try:
        certificate.verify_directly_issued_by(issuer)
    except (InvalidSignature, UnsupportedAlgorithm, TypeError, ValueError):
        return False
    return True


def has_controls(text: str) -> bool:
    """
    Return whether a name contains control, end-of-line or invisible characters.

    Invisible characters (Cf) can make a name look like another user's.
    """
    return any(unicodedata.category(mark) in ("Cc", "Cf", "Zl", "Zp") for mark in text)


def names_of(certificate: x509.Certificate) -> Iterator[str]:
    """
    Yield each text of the subject and of the subject alternative names.

    :raises VerificationError: the names cannot be parsed.
    """
    try:
        subjects = [certificate.subject]
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        alternatives = list(extension.value)
    except x509.ExtensionNotFound:
        alternatives = []
    except UNREADABLE:
        raise VerificationError("the certificate's names cannot be read") from None
    for each in alternatives:
        if isinstance(each, x509.DirectoryName):
            subjects.append(each.value)
        elif isinstance(each.value, str):
            yield each.value
    for subject in subjects:
        yield from (part.value for part in subject if isinstance(part.value, str))


def validity_problem(pem: bytes, what: str) -> str:
    """
    Return why a certificate is outside its validity period, or an empty string.

    :param pem: the certificate; may be empty.
    """
    try:
        own = certificates(pem, what)[0]
    except TLSConfigError:
        return ""
    begin, end, now = own.not_valid_before_utc, own.not_valid_after_utc, datetime.now(UTC)
    if end < now:
        return f"{what} ended on {end:%Y-%m-%d at %H:%M:%S} UTC"
    if now < begin:
        return f"{what} begins on {begin:%Y-%m-%d at %H:%M:%S} UTC only: is the clock right?"
    return ""


def private_key(pem: bytes, what: str) -> PrivateKey:
    """
    Return an unencrypted private key.

    :raises TLSConfigError: TLS cannot use the key.
    """
    try:
        key = load_pem_private_key(pem, password=None)
    except TypeError:
        raise TLSConfigError(f"{what} is encrypted: give one without a passphrase") from None
    except (ValueError, UnsupportedAlgorithm):
        # The parser's message could quote the key, so it is left out.
        raise TLSConfigError(f"{what} holds no usable PEM private key") from None
    if not isinstance(key, PrivateKey):
        raise TLSConfigError(f"{what} is of a kind that TLS cannot use")
    return key


def pem_of_key(key: PrivateKey) -> bytes:
    """Return a private key as PEM."""
    # fabric8 reads EC keys only in SEC 1 (RFC 5915), and Go, OpenSSL and Python read both forms.
    is_ec = isinstance(key, ec.EllipticCurvePrivateKey)
    form = PrivateFormat.TraditionalOpenSSL if is_ec else PrivateFormat.PKCS8
    return key.private_bytes(Encoding.PEM, form, NoEncryption())


def pem_of(chain: Sequence[x509.Certificate]) -> bytes:
    """Return certificates as PEM."""
    return b"".join(each.public_bytes(Encoding.PEM) for each in chain)


def use_certificate(
    context: SSL.Context, chain_pem: bytes, key_pem: bytes, chain_what: str, key_what: str
) -> None:
    """
    Set the certificate, the intermediates and the key of a context.

    :raises TLSConfigError: a text cannot be used.
    """
    leaf, *intermediates = certificates(chain_pem, chain_what)
    key = private_key(key_pem, key_what)
    if not is_key_of(key, leaf):
        raise TLSConfigError(
            f"{key_what} does not belong to {chain_what}: give the pair that was issued together"
        )
    try:
        context.use_certificate(leaf)
        for intermediate in intermediates:
            context.add_extra_chain_cert(intermediate)
        context.use_privatekey(key)
    except SSL.Error as problem:
        raise TLSConfigError(f"{chain_what} cannot be used: {openssl_reason(problem)}") from None


def trust(store: X509Store | None, ca_pem: bytes, what: str) -> None:
    """
    Add CAs to a store.

    :raises TLSConfigError: a certificate is missing or malformed.
    """
    assert store is not None  # typed optional by Context.get_cert_store
    for authority in certificates(ca_pem, what):
        try:
            store.add_cert(X509.from_cryptography(authority))
        except CryptoError as problem:
            raise TLSConfigError(f"{what} cannot be used: {problem}") from None


def new_context(method: int, *, tickets: bool = False) -> SSL.Context:
    """
    Return a context with the settings that clients and servers share.

    :param tickets: a server's clients may resume sessions.
    """
    context = SSL.Context(method)
    context.set_min_proto_version(SSL.TLS1_2_VERSION)
    context.set_cipher_list(_CIPHERS)
    # Resumption skips OpenSSL's verification of certificates, and few clients use it.
    no_tickets = 0 if tickets else SSL.OP_NO_TICKET
    context.set_options(SSL.OP_NO_COMPRESSION | SSL.OP_NO_RENEGOTIATION | no_tickets)
    context.set_session_cache_mode(SSL.SESS_CACHE_OFF)
    context.set_mode(SSL.MODE_RELEASE_BUFFERS)
    return context


def peer_leaf(connection: SSL.Connection) -> x509.Certificate | None:
    """
    Return the peer's own certificate, once its handshake is over; ``None`` without one.

    It is parsed at the first call. Our contexts refuse renegotiation, so it does not change.

    :raises: one of :data:`UNREADABLE`.
    """
    leaf = _leaves.get(connection)
    if leaf is None:
        leaf = connection.get_peer_certificate(as_cryptography=True)
        if leaf is not None:
            leaf = _leaves[connection] = _first_of(leaf)
    return leaf


@lru_cache(_KNOWN)
def _first_of(leaf: x509.Certificate) -> x509.Certificate:
    """Return the first of equal certificates, so that a thousand connections share it."""
    return leaf


def openssl_reason(problem: SSL.Error) -> str:
    """Return the last reason in an OpenSSL error."""
    queue = problem.args[0] if problem.args else None
    if isinstance(queue, list) and queue:
        return str(queue[-1][-1]) or "unknown reason"
    if isinstance(problem, SSL.SysCallError):
        return str(problem.args[-1])
    return "unexpected end of the connection"
