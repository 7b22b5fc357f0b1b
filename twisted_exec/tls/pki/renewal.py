"""
Renewal of the certificates and the authorities of a PKI directory.

A *renewed* authority signs with a new key, and its file holds the new certificate followed by the
previous ones, so that hosts with that file trust both. After certificates are issued anew and every
host has them, the previous authorities are *retired*: removed from the file.

The certificate in the file that belongs to the key signs. The files of all authorities are written
before the first key, so after an interrupted renewal each authority still signs, with its old key or its
new key, and :func:`is_interrupted` finds those whose new key is lost.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from twisted_exec.tls import pem
from twisted_exec.tls.errors import TLSConfigError
from twisted_exec.tls.files import read_file
from twisted_exec.tls.pki.authority import CLOCK_SKEW, Authority, Issued
from twisted_exec.tls.pki.directory import AUTHORITIES, PKI, Pair
from twisted_exec.tls.private_files import write_in_order, write_private
from twisted_exec.tls.usages import DOCUMENT_SIGNING


def replace_authorities(pki: PKI, now: datetime) -> None:
    """
    Renew all authorities, or those that an interrupted replacement has left out.

    :raises TLSConfigError: their files cannot be used or written.
    """
    if is_interrupted(pki) or not is_being_replaced(pki):
        names = [name for name in AUTHORITIES if len(_authorities(pki, name)) == 1]
        renew_authorities(pki, names, now)


def renew_authorities(pki: PKI, names: Sequence[str], now: datetime) -> None:
    """
    Give authorities new keys; their old keys stay trusted until they are retired.

    :param names: keys of :data:`.AUTHORITIES`.
    :raises TLSConfigError: their files cannot be used or written.
    """
    certificates, keys = [], []
    for name in names:
        pair = pki.pair(name)
        before = [each for each in _authorities(pki, name) if each.not_valid_after_utc > now]
        renewed = Authority.create(AUTHORITIES[name], now=now)
        certificates.append((pair.certificate, renewed.certificate_pem + pem.pem_of(before)))
        keys.append((pair.key, renewed.key_pem))
    # The certificates of both keys come first: whichever key is in place after a crash can sign. Those
    # of all authorities come first: if one has its new key, those without have unused certificates.
    write_in_order(*certificates, *keys)


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


def is_interrupted(pki: PKI) -> bool:
    """
    Return whether a replacement of several authorities was interrupted when some had their new keys.
    """
    return is_being_replaced(pki) and any(
        len(_bundle(pki.pair(name))) > len(_authorities(pki, name)) for name in AUTHORITIES
    )


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
    for pair in pki.pairs():
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
        life = certificate.not_valid_after_utc - certificate.not_valid_before_utc - CLOCK_SKEW
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
