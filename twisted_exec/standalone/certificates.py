"""
The certificates of a standalone host.

They are created once and renewed in time: a certificate when it expires within :data:`RENEW_DAYS`,
or cannot be used. Near an authority's expiry, a new authority signs; the old one stays trusted until
it expires.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography import x509
from twisted.logger import Logger

from twisted_exec.api.dialects import Dialect
from twisted_exec.tls import pem
from twisted_exec.tls.errors import TLSConfigError
from twisted_exec.tls.files import read_file
from twisted_exec.tls.pki.authority import Authority
from twisted_exec.tls.pki.directory import (
    AUTHORITIES,
    CLIENT,
    FORWARDING,
    PKI,
    SERVING,
    Pair,
    create_pki,
    open_pki,
)
from twisted_exec.tls.pki.renewal import renew_authorities

POOL = "local"
ADMIN, ADMIN_GROUPS = "admin", ("system:masters",)
LOOPBACK = ("127.0.0.1", "localhost")

RENEW_DAYS = 30
# A leaf is valid for a year, and the authority must outlive it.
_RENEW_AUTHORITY_DAYS = 400

_log = Logger()


@dataclass(frozen=True)
class Certificates:
    """Paths of the certificates of each program."""

    pki: PKI
    apiserver: Pair
    forwarding: Pair
    poollet: Pair
    poollet_client: Pair
    admin: Pair
    recorder: Pair

    def files(self) -> dict[str, str]:
        """Return the paths of all certificates, including authorities, by file name."""
        leaves = (self.apiserver, self.forwarding, self.poollet, self.poollet_client, self.admin)
        pairs = (*leaves, self.recorder, *map(self.pki.pair, AUTHORITIES))
        return {os.path.basename(pair.certificate): pair.certificate for pair in pairs}


def prepare(directory: str, now: datetime, dialect: Dialect) -> Certificates:
    """
    Create or renew certificates as needed.

    :raises TLSConfigError: the directory is not usable.
    """
    pki = _authorities(directory, now)
    certificates = Certificates(
        pki,
        pki.pair("apiserver"),
        pki.pair("apiserver-forwarding"),
        pki.pair(f"poollet-{POOL}"),
        pki.pair(f"poollet-{POOL}-client"),
        pki.pair(f"user-{ADMIN}"),
        pki.pair(f"recorder-{POOL}"),
    )
    if not _good(
        pki, now, (certificates.apiserver, SERVING), (certificates.forwarding, FORWARDING)
    ):
        pki.issue_apiserver(LOOPBACK, replace=True, now=now)
    if not _good(pki, now, (certificates.poollet, SERVING), (certificates.poollet_client, CLIENT)):
        pki.issue_poollet(POOL, LOOPBACK, dialect=dialect, replace=True, now=now)
    if not _good(pki, now, (certificates.admin, CLIENT)):
        pki.issue_user(ADMIN, ADMIN_GROUPS, replace=True, now=now)
    if not _good(pki, now, (certificates.recorder, SERVING)):
        pki.issue_recorder(POOL, replace=True, now=now)
    return certificates


def _authorities(directory: str, now: datetime) -> PKI:
    try:
        pki = open_pki(directory)
    except TLSConfigError:
        _log.info("creating certificates in {directory}", directory=directory)
        return create_pki(directory, replace=True, now=now)
    for name in AUTHORITIES:
        # It raises for a damaged authority, which must not be replaced silently.
        authority = pki.authority(name)
        end = now + timedelta(days=_RENEW_AUTHORITY_DAYS)
        if authority.begins > now or authority.expires < end:
            _log.warn(
                "authority {name} is about to expire, or not valid yet: a new one signs from now on",
                name=name,
            )
            renew_authorities(pki, [name], now)
    return pki


def _good(pki: PKI, now: datetime, *pairs: tuple[Pair, str]) -> bool:
    return all(_is_good(pair, pki.authority(issuer), now) for pair, issuer in pairs)


def _is_good(pair: Pair, issuer: Authority, now: datetime) -> bool:
    certificate = _read(pair)
    if certificate is None or not _is_valid(certificate, now):
        return False
    try:
        key = pem.private_key(read_file(pair.key), "the key")
    except TLSConfigError:
        return False
    return issuer.has_issued(certificate) and key.public_key() == certificate.public_key()


def _read(pair: Pair) -> x509.Certificate | None:
    try:
        chain: Sequence[x509.Certificate] = pem.certificates(
            read_file(pair.certificate), pair.certificate
        )
    except TLSConfigError:
        return None
    return chain[0]


def _is_valid(certificate: x509.Certificate, now: datetime) -> bool:
    end = now + timedelta(days=RENEW_DAYS)
    return certificate.not_valid_before_utc <= now and end <= certificate.not_valid_after_utc
