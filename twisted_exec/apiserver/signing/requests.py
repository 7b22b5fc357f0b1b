"""
Content of CertificateSigningRequests: subject, names, usages, key and requester.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import NameOID

from twisted_exec.api.kinds import CERTIFICATESIGNINGREQUESTS
from twisted_exec.api.kinds.certificates import (
    CLIENT_AUTH,
    DIGITAL_SIGNATURE,
    KEY_ENCIPHERMENT,
    SERVER_AUTH,
)
from twisted_exec.api.kinds.validation import address_of
from twisted_exec.auth.interfaces import IAuthorizer, User
from twisted_exec.auth.rules import Attributes
from twisted_exec.tls.errors import TLSConfigError
from twisted_exec.tls.pem import server_name

Object = dict[str, Any]

_SHORTEST_RSA_BITS = 2048
_SHORTEST_EC_BITS = 256


@dataclass(frozen=True)
class RequestedSubject:
    """The requested subject."""

    common_name: str
    organizations: tuple[str, ...]
    names: tuple[str, ...]
    """DNS names and IP addresses in the one form that is signed and compared."""
    other_names: int = 0
    """Number of subject alternative names of other types."""


NOBODY = RequestedSubject("", (), ())


def subject_of(request: x509.CertificateSigningRequest) -> RequestedSubject:
    """
    Return the subject that a request asks for.

    :raises ValueError: the subject or an extension cannot be parsed.
    """

    def names_of(oid: x509.ObjectIdentifier) -> tuple[str, ...]:
        return tuple(str(each.value) for each in request.subject.get_attributes_for_oid(oid))

    try:
        common = names_of(NameOID.COMMON_NAME)
        alternatives = list(_alternatives(request))
    except (x509.DuplicateExtension, x509.UnsupportedGeneralNameType, TypeError) as problem:
        raise ValueError(str(problem)) from None
    hosts = [each for each in alternatives if isinstance(each, x509.DNSName | x509.IPAddress)]
    names = [name for each in hosts if (name := _as_asked(str(each.value)))]
    single = common[0] if len(common) == 1 else ""
    organizations = names_of(NameOID.ORGANIZATION_NAME)
    return RequestedSubject(single, organizations, tuple(names), len(alternatives) - len(names))


def server_names(certificate: x509.Certificate) -> frozenset[str]:
    """
    Return the names of a server by its certificate, in the form of :class:`RequestedSubject`.

    Loopback names are left out.
    """
    try:
        alternatives = list(_alternatives(certificate))
    except (x509.DuplicateExtension, x509.UnsupportedGeneralNameType, TypeError, ValueError):
        return frozenset()
    hosts = [each for each in alternatives if isinstance(each, x509.DNSName | x509.IPAddress)]
    names = {_as_known(str(each.value)) for each in hosts} - {"", "localhost"}
    return frozenset(name for name in names if not _is_loopback(name))


def is_named(name: str, names: Collection[str]) -> bool:
    """Return whether ``names``, which may contain wildcards, cover the name."""
    return name in names or f"*.{name.partition('.')[2]}" in names


def _is_loopback(name: str) -> bool:
    address = address_of(name)
    return address is not None and address.is_loopback


def _as_asked(name: str) -> str:
    """
    As :func:`_as_known`, but empty for an IPv4-mapped IPv6 address, which some verifiers take for
    the IPv4 address.
    """
    normalized = _as_known(name)
    return "" if ":" in name and ":" not in normalized else normalized


def _as_known(name: str) -> str:
    """
    Normalize a DNS name, wildcard or IP address; empty if it is none of these.

    The final dot of a DNS name is dropped: verifiers ignore it, so a request must not obtain
    another host's name by spelling it differently.
    """
    lowered = name.lower()
    pattern = "*." if lowered.startswith("*.") else ""
    try:
        parsed = server_name(lowered.removeprefix(pattern))
    except TLSConfigError:
        return ""
    if isinstance(parsed, str):
        return pattern + parsed
    if pattern:
        return ""
    plain = ipaddress.ip_address(parsed.packed)  # without a zone: certificates have none
    mapped = plain.ipv4_mapped if isinstance(plain, ipaddress.IPv6Address) else None
    return str(mapped or plain)


def _alternatives(
    holder: x509.CertificateSigningRequest | x509.Certificate,
) -> Iterable[x509.GeneralName]:
    try:
        return holder.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()


def usage_problem(usages: Sequence[str], *, serving: bool) -> str:
    """Why the requested usages are wrong; empty when they are right."""
    required = {DIGITAL_SIGNATURE, SERVER_AUTH if serving else CLIENT_AUTH}
    if set(usages) - {KEY_ENCIPHERMENT} != required:
        return f"its usages must be {', '.join(sorted(required))} and perhaps {KEY_ENCIPHERMENT}"
    return ""


def names_problem(subject: RequestedSubject, *, serving: bool) -> str:
    """Why the subject alternative names do not suit a server or client; empty when they do."""
    if not serving:
        return "it must have no subject alternative names" if _any_names(subject) else ""
    if subject.other_names:
        return "its subject alternative names must be DNS names and IP addresses"
    if not subject.names:
        return "it must have a subject alternative name: a DNS name or an IP address"
    if any("*" in name for name in subject.names):
        return "its subject alternative names must not be patterns"
    return ""


def _any_names(subject: RequestedSubject) -> bool:
    return bool(subject.names or subject.other_names)


def key_problem(request: x509.CertificateSigningRequest) -> str:
    """Why the key is not acceptable; empty when it is."""
    key = request.public_key()
    if isinstance(key, rsa.RSAPublicKey):
        short = key.key_size < _SHORTEST_RSA_BITS
        return f"its RSA key must have {_SHORTEST_RSA_BITS} bits or more" if short else ""
    if isinstance(key, ec.EllipticCurvePublicKey):
        short = key.key_size < _SHORTEST_EC_BITS
        return f"its key must have {_SHORTEST_EC_BITS} bits or more" if short else ""
    return "" if isinstance(key, ed25519.Ed25519PublicKey) else "its key is of no known kind"


def addresses_of(holder: Mapping[str, Any]) -> set[str]:
    """The addresses that a pool or node reports, in the form of :class:`RequestedSubject`."""
    reported = holder.get("status", {}).get("addresses", [])
    return {_as_known(str(each.get("address", ""))) for each in reported} - {""}


def requester_of(csr: Mapping[str, Any]) -> User:
    """Return the user who has created a request."""
    spec = csr["spec"]
    extra = {key: tuple(values) for key, values in spec.get("extra", {}).items()}
    return User(
        spec.get("username", ""),
        tuple(spec.get("groups", ())),
        uid=spec.get("uid", ""),
        extra=extra,
    )


async def asking_refusal(csr: Mapping[str, Any], subresource: str, authorizer: IAuthorizer) -> str:
    """Why the requester may not have the request approved automatically; empty when it may."""
    user = requester_of(csr)
    resource = CERTIFICATESIGNINGREQUESTS.resource
    attributes = Attributes(
        user,
        "create",
        group=resource.group,
        version=resource.version,
        resource=resource.plural,
        subresource=subresource,
    )
    if (await authorizer.authorize(attributes)).allows_everything:
        return ""
    return f"{user.name} may not create {resource.plural}/{subresource}"


def reported_names(names: Collection[str]) -> str:
    """Return the end of a refusal: the names that the agent reports."""
    return f"it reports {', '.join(sorted(names))}"
