"""
A small certificate authority, and the directory of certificates that it issues and renews.

The authority issues certificates of servers, clients (with a user and groups) and recorders.

The directory (:class:`PKI`) has three authorities and their certificates, under fixed names:

============================  ==================================================

``ca.crt``, ``.key``          CA of serving certificates and recorders
``client-ca.crt``, ``.key``   CA of users and poollets, for the API server
``requestheader-ca.crt``,     CA of proxies that may forward the identity of a user
``.key``
``apiserver.crt``, ``.key``   the API server's serving certificate
``apiserver-forwarding.*``    the API server's client certificate for poollets
``poollet-POOL.*``            a poollet's serving certificate
``poollet-POOL-client.*``     a poollet's client certificate for the API server
``runtime-NAME.*``            a runtime's serving certificate
``recorder-NAME.*``           a certificate that signs recordings
``user-USER.*``               a person's client certificate
``service-account.key``       key that signs tokens of ServiceAccounts
============================  ==================================================

:func:`renew` renews certificates that expire soon.

A *renewed* authority signs with a new key, and its file holds the new certificate followed by the
previous ones, so that hosts with that file trust both. After certificates are issued anew and every
host has them, the previous authorities are *retired*: removed from the file.

The certificate in the file that belongs to the key signs. The file is written before the key, so after
an interrupted renewal the previous authority still signs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from twisted_exec.api.dialects import DEFAULT, Dialect
from twisted_exec.api.users import FORWARDING_USER
from twisted_exec.tls import pem
from twisted_exec.tls.errors import TLSConfigError
from twisted_exec.tls.files import read_file
from twisted_exec.tls.pem import server_name
from twisted_exec.tls.private_files import write_in_order, write_private
from twisted_exec.tls.unix import private_directory
from twisted_exec.tls.usages import DOCUMENT_SIGNING

_CA_LIFE = timedelta(days=3650)
_LEAF_LIFE = timedelta(days=365)
_CLOCK_SKEW = timedelta(minutes=5)  # for hosts whose clocks are behind
LONGEST_COMMON_NAME = 64
"""The most characters of a common name in X.509."""

# They must differ: otherwise the holder of the user CA could issue itself a certificate that forwards
# any identity.
SERVING, CLIENT, FORWARDING = "ca", "client-ca", "requestheader-ca"
APISERVER = "apiserver"
"""File name of the API server's serving certificate."""

AUTHORITIES = {
    SERVING: "twisted-exec serving CA",
    CLIENT: "twisted-exec user CA",
    FORWARDING: "twisted-exec forwarding CA",
}
"""File names of the authorities, with their common names."""


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


@dataclass(frozen=True)
class CertificateRequest:
    """A request for a certificate (PKCS #10) and the private key that it is for, as PEM."""

    request_pem: bytes
    key_pem: bytes = field(repr=False)


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
        life: timedelta = _LEAF_LIFE,
    ) -> Issued:
        """
        Issue a server's certificate.

        :param names: DNS names and IP addresses, one or more.
        :param common_name: the subject, by default the first of ``names``.
        :raises TLSConfigError: there are no names, or one cannot be used.
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
        Issue a client's certificate.

        :raises TLSConfigError: a name is empty, too long, or has control characters.
        """
        subject = _subject(user, groups)
        return self._issue(subject, ExtendedKeyUsageOID.CLIENT_AUTH, now=now, life=life)

    def issue_recorder(
        self, name: str, *, now: datetime | None = None, life: timedelta = _LEAF_LIFE
    ) -> Issued:
        """
        Issue a certificate that signs recordings, and cannot open or serve connections.

        :raises TLSConfigError: the name is empty, too long, or has control characters.
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
        Issue a certificate for another party's public key, as PEM.

        It expires no later than the authority's own certificate.

        :param names: DNS names and IP addresses of a server; empty for a client's certificate.
        :raises TLSConfigError: the authority has expired, or a name cannot be used.
        """
        life = min(life, self.expires - now)
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
        # cryptography wants no hash for Ed25519 and Ed448, which have their own.
        algorithm = hashes.SHA256() if _wants_hash(self._key) else None
        return builder.sign(self._key, algorithm)


def request_server(
    common_name: str, organizations: Sequence[str], names: Sequence[str]
) -> CertificateRequest:
    """
    Return a request for a server's certificate, with a new key.

    :param names: DNS names and IP addresses, one or more.
    :raises TLSConfigError: a name cannot be used.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    alternatives = x509.SubjectAlternativeName([_general_name(name) for name in names])
    builder = x509.CertificateSigningRequestBuilder(_subject(common_name, organizations))
    request = builder.add_extension(alternatives, False).sign(key, hashes.SHA256())
    return CertificateRequest(request.public_bytes(Encoding.PEM), pem.pem_of_key(key))


def request_client(common_name: str, organizations: Sequence[str]) -> CertificateRequest:
    """
    Return a request for a client's certificate, with a new key.

    :raises TLSConfigError: a name is empty, too long, or has control characters.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    builder = x509.CertificateSigningRequestBuilder(_subject(common_name, organizations))
    request = builder.sign(key, hashes.SHA256())
    return CertificateRequest(request.public_bytes(Encoding.PEM), pem.pem_of_key(key))


def new_key_pem() -> bytes:
    """Return a new private key as PEM."""
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
                f'a certificate can name "{text}" only if it has 1 to '
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
        raise TLSConfigError(f'"{text}" is no DNS name or IP address')
    return x509.IPAddress(name)


@dataclass(frozen=True)
class Pair:
    """Paths of a certificate and its key."""

    certificate: str
    key: str

    @property
    def exists(self) -> bool:
        return os.path.lexists(self.certificate) or os.path.lexists(self.key)


class PKI:
    """
    The certificates in one directory, from :func:`create_pki` or :func:`open_pki`.

    An ``issue`` method writes certificates with their keys (mode 0600) and returns the paths.  It
    raises :class:`TLSConfigError` if a file exists and ``replace`` is false, or cannot be written.
    """

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def pair(self, name: str) -> Pair:
        """Return the paths under a name."""
        stem = os.path.join(self.directory, name)
        return Pair(f"{stem}.crt", f"{stem}.key")

    @property
    def serving_ca(self) -> str:
        return self.pair(SERVING).certificate

    @property
    def client_ca(self) -> str:
        return self.pair(CLIENT).certificate

    @property
    def forwarding_ca(self) -> str:
        return self.pair(FORWARDING).certificate

    def issue_apiserver(
        self, names: Sequence[str], *, replace: bool = False, now: datetime | None = None
    ) -> tuple[Pair, Pair]:
        """
        Issue the API server's two certificates.

        :return: the serving pair and the forwarding pair.
        """
        serving = self.authority(SERVING).issue_server(names, now=now)
        forwarding = self.authority(FORWARDING).issue_client(FORWARDING_USER, now=now)
        first, second = self._write_all(
            (APISERVER, serving), ("apiserver-forwarding", forwarding), replace=replace
        )
        return first, second

    def issue_poollet(
        self,
        pool: str,
        names: Sequence[str],
        *,
        dialect: Dialect = DEFAULT,
        replace: bool = False,
        now: datetime | None = None,
    ) -> tuple[Pair, Pair]:
        """
        Issue a poollet's two certificates.

        :param pool: name of its pool; X.509 limits its length.
        :return: the serving pair and the client pair.
        """
        user = dialect.pool_identity(_file_name(pool, "pool"))
        if len(user) > LONGEST_COMMON_NAME:
            room = LONGEST_COMMON_NAME - len(dialect.pool_identity_prefix)
            raise TLSConfigError(
                f'pool name "{pool}" has {len(pool)} characters; a certificate has room for {room}'
            )
        serving = self.authority(SERVING).issue_server(names, common_name=user, now=now)
        client = self.authority(CLIENT).issue_client(user, [dialect.pool_identity_group], now=now)
        first, second = self._write_all(
            (f"poollet-{pool}", serving), (f"poollet-{pool}-client", client), replace=replace
        )
        return first, second

    def issue_runtime(self, runtime: str, names: Sequence[str], *, replace: bool = False) -> Pair:
        """Issue a runtime's serving certificate."""
        name = f"runtime-{_file_name(runtime, 'runtime')}"
        issued = self.authority(SERVING).issue_server(names)
        return self._write_all((name, issued), replace=replace)[0]

    def issue_recorder(
        self, recorder: str, *, replace: bool = False, now: datetime | None = None
    ) -> Pair:
        """Issue a certificate that signs recordings."""
        name = f"recorder-{_file_name(recorder, 'recorder')}"
        issued = self.authority(SERVING).issue_recorder(recorder, now=now)
        return self._write_all((name, issued), replace=replace)[0]

    def issue_user(
        self,
        user: str,
        groups: Sequence[str],
        *,
        replace: bool = False,
        now: datetime | None = None,
        days: int | None = None,
    ) -> Pair:
        """
        Issue a person's client certificate.

        :param days: its lifetime, by default a year.
        :raises TLSConfigError: also if the authority expires earlier than in so many days.
        """
        name = f"user-{_file_name(user, 'user')}"
        authority, life = self.authority(CLIENT), _LEAF_LIFE
        if days is not None:
            life = timedelta(days=days)
            left = authority.expires - (now or datetime.now(UTC))
            if life > left:
                raise TLSConfigError(
                    f"the user CA expires in {max(0, left.days)} days, so no certificate can be valid for "
                    f"{days}: ask for fewer days, or replace the CA: twisted-exec pki renew "
                    f"{self.directory} --authorities"
                )
        issued = authority.issue_client(user, groups, now=now, life=life)
        return self._write_all((name, issued), replace=replace)[0]

    @property
    def account_key(self) -> str:
        """Path of the key that signs tokens of ServiceAccounts."""
        return os.path.join(self.directory, "service-account.key")

    def make_account_key(self) -> None:
        """
        Create :attr:`account_key` if it is missing.  It is never replaced.

        :raises TLSConfigError: it cannot be written.
        """
        if not os.path.lexists(self.account_key):
            write_private(self.account_key, new_key_pem())

    def authority(self, name: str) -> Authority:
        """
        Return one of the three authorities.

        :raises TLSConfigError: it is missing or cannot be used.
        """
        pair = self.pair(name)
        return Authority.load(
            read_file(pair.certificate, "CA certificate"),
            read_file(pair.key, "CA key"),
            certificate_what=f'CA certificate "{pair.certificate}"',
            key_what=f'CA key "{pair.key}"',
            remedy="put the key that belongs to it back, or, if that is lost, create new authorities: "
            f"twisted-exec pki renew {self.directory} --authorities",
        )

    def _write_all(self, *named: tuple[str, Issued], replace: bool) -> tuple[Pair, ...]:
        pairs = self._writable(*(name for name, _issued in named), replace=replace)
        files = []
        for pair, (_name, issued) in zip(pairs, named, strict=True):
            files.append((pair.key, issued.key_pem))
            files.append((pair.certificate, issued.certificate_pem))
        write_in_order(*files)
        return pairs

    def _writable(self, *names: str, replace: bool) -> tuple[Pair, ...]:
        pairs = tuple(map(self.pair, names))
        paths = [path for pair in pairs for path in (pair.certificate, pair.key)]
        existing = [path for path in paths if os.path.lexists(path)]
        if existing and not replace:
            raise TLSConfigError(f'"{existing[0]}" exists already: give --force to replace it')
        return pairs


def create_pki(directory: str, *, replace: bool = False, now: datetime | None = None) -> PKI:
    """
    Create a private directory with three new authorities.

    :raises TLSConfigError: the directory holds authorities already and ``replace`` is false, or it
        cannot be written or made private.
    """
    pki = PKI(private_directory(directory))
    named = [(name, Authority.create(title, now=now)) for name, title in AUTHORITIES.items()]
    issued = [(name, Issued(each.certificate_pem, each.key_pem)) for name, each in named]
    pki._writable(*AUTHORITIES, replace=replace)
    # The last authority's certificate comes last: open_pki() refuses a directory without it.
    pki.make_account_key()
    pki._write_all(*issued, replace=replace)
    return pki


def open_pki(directory: str) -> PKI:
    """
    Open a directory that :func:`create_pki` created.

    :raises TLSConfigError: it is not one.
    """
    pki = PKI(os.path.abspath(directory))
    for name in AUTHORITIES:
        if not os.path.isfile(pki.pair(name).certificate):
            raise TLSConfigError(
                f'"{directory}" is no PKI directory ({name}.crt is missing): '
                f'make one with "twisted-exec pki init {directory}"'
            )
    return pki


def _file_name(name: str, what: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._:@-]*", name):
        raise TLSConfigError(
            f'{what} name "{name}": letters, digits and . _ : @ - only, and a letter or digit first'
        )
    return name


def renew_authority(pki: PKI, name: str, now: datetime) -> None:
    """
    Give an authority a new key; the old key stays trusted until it is retired.

    :param name: a key of :data:`~twisted_exec.tls.pki.authority.AUTHORITIES`.
    :raises TLSConfigError: its files cannot be used or written.
    """
    pair = pki.pair(name)
    before = [each for each in _authorities(pki, name) if each.not_valid_after_utc > now]
    renewed = Authority.create(AUTHORITIES[name], now=now)
    # The certificates of both keys come first: whichever key is in place after a crash can sign.
    write_in_order(
        (pair.certificate, renewed.certificate_pem + pem.pem_of(before)),
        (pair.key, renewed.key_pem),
    )


def retire_authority(pki: PKI, name: str) -> bool:
    """
    Remove all certificates of an authority but the one that signs from its file.

    :return: whether there were any.
    :raises TLSConfigError: the file cannot be used or written.
    """
    pair = pki.pair(name)
    has_others = len(_bundle(pair)) > 1
    if has_others:
        write_private(pair.certificate, pem.pem_of(_authorities(pki, name)[:1]))
    return has_others


def is_being_replaced(pki: PKI) -> bool:
    """Return whether a previous authority is still trusted."""
    return any(len(_authorities(pki, name)) > 1 for name in AUTHORITIES)


def is_of_previous(pki: PKI, pair: Pair) -> bool:
    """
    Return whether a previous authority has signed a certificate.

    :raises TLSConfigError: it cannot be read, or is not from an authority of this directory.
    """
    certificate = _bundle(pair)[0]
    issuer = _issuer(pki, certificate, pair)
    return not pem.has_issued(_authorities(pki, issuer)[0], certificate)


def renew(
    pki: PKI, now: datetime, within: timedelta | None, *, waiting: Pair | None = None
) -> list[Pair]:
    """
    Renew certificates that expire soon, that a previous authority has signed, or whose key in the
    directory is another's, as after a crash.

    :param within: time to the expiry; ``None`` renews all but ``waiting``.
    :param waiting: a certificate that is renewed only if it expires soon.
    :return: the renewed certificates.
    :raises TLSConfigError: a certificate cannot be renewed.
    """
    done = []
    for pair in pairs(pki):
        certificate = _bundle(pair)[0]
        issuer = _issuer(pki, certificate, pair)
        is_due = pair != waiting and (
            within is None or is_of_previous(pki, pair) or _has_other_key(pair, certificate)
        )
        if is_due or certificate.not_valid_after_utc < now + (within or timedelta()):
            _again(pki.authority(issuer), certificate, pair, now).write(
                pair.certificate, pair.key, replace=True
            )
            done.append(pair)
    return done


def pairs(pki: PKI) -> Iterator[Pair]:
    """
    Yield the certificates of the directory, other than the authorities', in order of their names.
    """
    for name in sorted(os.listdir(pki.directory)):
        stem, extension = os.path.splitext(name)
        if extension == ".crt" and stem not in AUTHORITIES and not name.startswith("."):
            yield pki.pair(stem)


def _again(
    authority: Authority, certificate: x509.Certificate, pair: Pair, now: datetime
) -> Issued:
    try:
        common, groups = (
            [str(each.value) for each in certificate.subject.get_attributes_for_oid(oid)]
            for oid in (NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME)
        )
        usages = _usages(certificate)
        if DOCUMENT_SIGNING in usages:
            return authority.issue_recorder(common[0], now=now)
        if ExtendedKeyUsageOID.SERVER_AUTH in usages:
            return authority.issue_server(_names(certificate), common_name=common[0], now=now)
        # A certificate that was issued for a week is renewed for a week.
        life = certificate.not_valid_after_utc - certificate.not_valid_before_utc - _CLOCK_SKEW
        return authority.issue_client(common[0], groups, now=now, life=life)
    except (x509.ExtensionNotFound, IndexError, *pem.UNREADABLE):
        raise TLSConfigError(
            f'"{pair.certificate}" does not say what it is for, and whose it is'
        ) from None


def _names(certificate: x509.Certificate) -> list[str]:
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    return [str(each.value) for each in names.value]


def _usages(certificate: x509.Certificate) -> list[x509.ObjectIdentifier]:
    return list(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)


def _bundle(pair: Pair) -> list[x509.Certificate]:
    return pem.certificates(read_file(pair.certificate), f'certificate "{pair.certificate}"')


def _authorities(pki: PKI, name: str) -> list[x509.Certificate]:
    """Return the certificates of an authority: the one that signs, then the previous ones."""
    pair = pki.pair(name)
    bundle = _bundle(pair)
    try:
        key = pem.private_key(read_file(pair.key, "CA key"), f'CA key "{pair.key}"')
    except TLSConfigError:
        return bundle  # the key may be kept elsewhere; PKI.authority() reports it when it is needed
    # Certificates before the one that signs are from interrupted renewals. Their keys never signed.
    signing = (number for number, each in enumerate(bundle) if pem.is_key_of(key, each))
    return bundle[next(signing, 0) :]


def _has_other_key(pair: Pair, certificate: x509.Certificate) -> bool:
    if not os.path.lexists(pair.key):
        return False  # the key is kept elsewhere
    key = pem.private_key(read_file(pair.key, "key"), f'key "{pair.key}"')
    return not pem.is_key_of(key, certificate)


def _issuer(pki: PKI, certificate: x509.Certificate, pair: Pair) -> str:
    for name in AUTHORITIES:
        if any(pem.has_issued(each, certificate) for each in _bundle(pki.pair(name))):
            return name
    raise TLSConfigError(
        f'"{pair.certificate}" is of none of this directory\'s authorities: issue it with the '
        "command for its kind, and --force"
    )
