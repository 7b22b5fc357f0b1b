"""Names in certificates: subjects, DNS names and IP addresses."""

from __future__ import annotations

from collections.abc import Sequence

from cryptography import x509
from cryptography.x509.oid import NameOID

from twisted_exec.tls import pem
from twisted_exec.tls.errors import TLSConfigError
from twisted_exec.tls.pem import server_name

LONGEST_COMMON_NAME = 64
"""The most characters of a common name in X.509."""


def subject_name(common_name: str, organizations: Sequence[str]) -> x509.Name:
    """
    Return the subject of a user, whose groups are the organizations, or of a server.

    :raises TLSConfigError: a name is empty, too long, or has control characters.
    """
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


def alternative_names(names: Sequence[str]) -> x509.SubjectAlternativeName:
    """
    Return the names of a server.

    :param names: DNS names and IP addresses; ``*.`` may begin a DNS name.
    :raises TLSConfigError: a name is neither.
    """
    return x509.SubjectAlternativeName([_general_name(name) for name in names])


def alternative_uris(uris: Sequence[str]) -> x509.SubjectAlternativeName | None:
    """Return the URIs of a client, which are ASCII; ``None`` without any."""
    if not uris:
        return None
    return x509.SubjectAlternativeName([x509.UniformResourceIdentifier(uri) for uri in uris])


def _general_name(text: str) -> x509.GeneralName:
    wildcard = "*." if text.startswith("*.") else ""
    name = server_name(text.removeprefix(wildcard))
    if isinstance(name, str):
        return x509.DNSName(wildcard + name)
    if wildcard:
        raise TLSConfigError(f'"{text}" is no DNS name or IP address')
    return x509.IPAddress(name)
