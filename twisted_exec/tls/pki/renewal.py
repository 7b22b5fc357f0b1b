"""
Renewal of certificates that expire soon, and replacement of authorities.

A renewed certificate has the same names and usages, a new key, and is signed by the current
authority.

An authority is replaced in steps, so that every host trusts every certificate in between.
*Renewed*, it signs with a new key, and its file holds the new certificate followed by the previous
ones: hosts with the new file trust both.  Kubeconfigs contain that file, and users cannot be asked
to replace theirs at one moment: so the API server's certificate is issued anew only when every
kubeconfig trusts both.  After all certificates are issued anew and every host has them, the
previous authorities are *retired*: removed from the file.  Expired ones disappear at the next
renewal.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from twisted_exec.tls import pem
from twisted_exec.tls.errors import TLSConfigError
from twisted_exec.tls.files import read_file
from twisted_exec.tls.pki.authority import Authority, Issued, write_private
from twisted_exec.tls.pki.directory import AUTHORITIES, PKI, Pair
from twisted_exec.tls.usages import DOCUMENT_SIGNING


def renew_authority(pki: PKI, name: str, now: datetime) -> None:
    """
    Give an authority a new key; certificates of the old key stay trusted until it is retired.

    :param name: a key of :data:`~twisted_exec.tls.pki.directory.AUTHORITIES`.
    :raises TLSConfigError: its files cannot be used or written.
    """
    pair = pki.pair(name)
    before = [each for each in _bundle(pair) if each.not_valid_after_utc > now]
    renewed = Authority.create(AUTHORITIES[name], now=now)
    write_private(pair.key, renewed.key_pem)
    write_private(pair.certificate, renewed.certificate_pem + pem.pem_of(before))


def retire_authority(pki: PKI, name: str) -> bool:
    """
    Remove the previous certificates of an authority from its file.

    :return: whether there were any.
    """
    pair = pki.pair(name)
    newest, *before = _bundle(pair)
    if before:
        write_private(pair.certificate, pem.pem_of([newest]))
    return bool(before)


def is_being_replaced(pki: PKI) -> bool:
    """Return whether a previous authority is still trusted."""
    return any(len(_bundle(pki.pair(name))) > 1 for name in AUTHORITIES)


def is_of_previous(pki: PKI, pair: Pair) -> bool:
    """
    Return whether a previous authority has signed a certificate.

    :raises TLSConfigError: it is malformed, or not from an authority of this directory.
    """
    certificate = _bundle(pair)[0]
    issuer = _issuer(pki, certificate, pair)
    return not pem.has_issued(_bundle(pki.pair(issuer))[0], certificate)


def renew(
    pki: PKI, now: datetime, within: timedelta | None, *, waiting: Pair | None = None
) -> list[Pair]:
    """
    Renew certificates that expire soon, or that a previous authority has signed.

    :param within: time to the expiry; ``None`` renews all.
    :param waiting: a certificate of a previous authority that clients trust, and the new one not
        yet.  It is renewed only if it expires soon.
    :return: the renewed certificates.
    :raises TLSConfigError: a certificate is malformed, or not from an authority of this directory.
    """
    done = []
    for pair in pairs(pki):
        certificate = _bundle(pair)[0]
        issuer = _issuer(pki, certificate, pair)
        is_due = pair != waiting and (within is None or is_of_previous(pki, pair))
        if is_due or certificate.not_valid_after_utc < now + (within or timedelta()):
            _again(pki.authority(issuer), certificate, pair, now).write(
                pair.certificate, pair.key, replace=True
            )
            done.append(pair)
    return done


def pairs(pki: PKI) -> Iterator[Pair]:
    """Return the certificates of the directory, other than the authorities', in order of their names."""
    for name in sorted(os.listdir(pki.directory)):
        stem, extension = os.path.splitext(name)
        if extension == ".crt" and stem not in AUTHORITIES and not name.startswith("."):
            yield pki.pair(stem)


def _again(
    authority: Authority, certificate: x509.Certificate, pair: Pair, now: datetime
) -> Issued:
    """Issue a certificate with the names and usages of another and a new key."""
    common, groups = (
        [str(each.value) for each in certificate.subject.get_attributes_for_oid(oid)]
        for oid in (NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME)
    )
    try:
        usages = _usages(certificate)
        if DOCUMENT_SIGNING in usages:
            return authority.issue_recorder(common[0], now=now)
        if ExtendedKeyUsageOID.SERVER_AUTH in usages:
            return authority.issue_server(_names(certificate), common_name=common[0], now=now)
        return authority.issue_client(common[0], groups, now=now)
    except (x509.ExtensionNotFound, x509.DuplicateExtension, ValueError, IndexError):
        raise TLSConfigError(
            f"{pair.certificate!r} does not say what it is for, and whose it is"
        ) from None


def _names(certificate: x509.Certificate) -> list[str]:
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    return [str(each.value) for each in names.value]


def _usages(certificate: x509.Certificate) -> list[x509.ObjectIdentifier]:
    return list(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)


def _bundle(pair: Pair) -> list[x509.Certificate]:
    return pem.certificates(read_file(pair.certificate), f"certificate {pair.certificate!r}")


def _issuer(pki: PKI, certificate: x509.Certificate, pair: Pair) -> str:
    for name in AUTHORITIES:
        if any(pem.has_issued(each, certificate) for each in _bundle(pki.pair(name))):
            return name
    raise TLSConfigError(
        f"{pair.certificate!r} is of none of this directory's authorities: issue it with the "
        "command for its kind, and --force"
    )
