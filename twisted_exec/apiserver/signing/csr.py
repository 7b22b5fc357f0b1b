"""
What may be signed, without I/O: what all signers ask.

A signer has two questions.  Of every request: has it the *shape* of what this signer signs?
What has not is never signed, whoever approved it.  Of one that nobody decided on: may the
server approve it by itself?  Who is asked for, and what for, is of each signer's own module:
:mod:`.signing_poollets`, :mod:`.signing_nodes` and :mod:`.signing_people`.

As Kubernetes' signers (``pkg/apis/certificates/helpers.go`` and
``pkg/controller/certificates``).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import NameOID
from zope.interface import Interface

from twisted_exec.api.kinds.certificates import (
    CLIENT_AUTH,
    DIGITAL_SIGNATURE,
    KEY_ENCIPHERMENT,
    SERVER_AUTH,
)
from twisted_exec.api.kinds.common.validation import address_of
from twisted_exec.tls.errors import TLSConfigError
from twisted_exec.tls.pem import server_name

Object = dict[str, Any]

SERVING = "twisted-exec.dev/poollet-serving"
"""What poollets show."""
CLIENT = "kubernetes.io/kube-apiserver-client"
"""What people, and poollets, are known by."""
NODE_SERVING = "kubernetes.io/kubelet-serving"
"""What node servers show."""
NODE_CLIENT = "kubernetes.io/kube-apiserver-client-kubelet"
"""What node servers are known by."""

FOR_SERVERS = (SERVING, NODE_SERVING)

_SHORTEST_RSA_BITS = 2048
_SHORTEST_EC_BITS = 256


@dataclass(frozen=True)
class Subject:
    """What a request asks to be called."""

    common_name: str
    organizations: tuple[str, ...]
    names: tuple[str, ...]
    """DNS names and IP addresses, each as it would be signed, and as clients compare it."""
    other_names: int = 0
    """How many alternative names there are that are nothing of this."""


NOBODY = Subject("", (), ())


def subject_of(request: x509.CertificateSigningRequest) -> Subject:
    """
    What a request asks to be called.

    :raises ValueError: its extensions cannot be read.
    """

    def told(oid: x509.ObjectIdentifier) -> tuple[str, ...]:
        return tuple(str(each.value) for each in request.subject.get_attributes_for_oid(oid))

    common = told(NameOID.COMMON_NAME)
    try:
        found = list(_alternatives(request))
    except (x509.DuplicateExtension, x509.UnsupportedGeneralNameType, TypeError) as problem:
        raise ValueError(str(problem)) from None
    hosts = [each for each in found if isinstance(each, x509.DNSName | x509.IPAddress)]
    names = [name for each in hosts if (name := _as_asked(str(each.value)))]
    single = common[0] if len(common) == 1 else ""
    organizations = told(NameOID.ORGANIZATION_NAME)
    return Subject(single, organizations, tuple(names), len(found) - len(names))


def server_names(certificate: x509.Certificate) -> frozenset[str]:
    """
    What a server is called by its certificate, as :class:`Subject` has names.

    Without those that every host has for itself, which lead nobody else to it.
    """
    try:
        found = list(_alternatives(certificate))
    except (x509.DuplicateExtension, x509.UnsupportedGeneralNameType, TypeError, ValueError):
        return frozenset()
    hosts = [each for each in found if isinstance(each, x509.DNSName | x509.IPAddress)]
    names = {_as_known(str(each.value)) for each in hosts} - {"", "localhost"}
    return frozenset(name for name in names if not _is_loopback(name))


def is_named(name: str, names: Collection[str]) -> bool:
    """Whether a server of these names, patterns among them, is called so."""
    return name in names or f"*.{name.partition('.')[2]}" in names


def _is_loopback(name: str) -> bool:
    known = address_of(name)
    return known is not None and known.is_loopback


def _as_asked(name: str) -> str:
    """
    As :func:`_as_known`; but an IPv4 address in an IPv6 one is nothing that is signed: who looks at a
    certificate may take it for that address (Go's ``net.IP.Equal``), or may not (OpenSSL).
    """
    known = _as_known(name)
    return "" if ":" in name and ":" not in known else known


def _as_known(name: str) -> str:
    """
    A DNS name, a pattern of some, or an IP address in the one spelling that counts; empty for what
    is none.

    Whoever signs a name leaves out its final dot: in another spelling nobody may get what is not to
    be had.
    """
    lowered = name.lower()
    pattern = "*." if lowered.startswith("*.") else ""
    try:
        found = server_name(lowered.removeprefix(pattern))
    except TLSConfigError:
        return ""
    if isinstance(found, str):
        return pattern + found
    if pattern:
        return ""
    plain = ipaddress.ip_address(found.packed)  # without a scope, which no certificate has
    mapped = plain.ipv4_mapped if isinstance(plain, ipaddress.IPv6Address) else None
    return str(mapped or plain)


def _alternatives(
    holder: x509.CertificateSigningRequest | x509.Certificate,
) -> Iterable[x509.GeneralName]:
    try:
        return holder.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()


class ISigner(Interface):
    """What one signer signs."""

    def shape_problem(csr: Mapping[str, Any], request: x509.CertificateSigningRequest) -> str:
        """Why this is nothing that it signs; empty when it is."""

    async def refusal(csr: Mapping[str, Any], subject: Subject) -> str:
        """
        Why the server does not approve a request of this shape by itself; empty when it does.

        :raises APIError: that cannot be found out.
        """

    def organizations(subject: Subject) -> Sequence[str]:
        """The organizations of the certificate, for a request of this shape."""


def usage_problem(usages: Sequence[str], *, serving: bool) -> str:
    """Why the key would be for something else; empty when it is for just this."""
    wanted = {DIGITAL_SIGNATURE, SERVER_AUTH if serving else CLIENT_AUTH}
    if set(usages) - {KEY_ENCIPHERMENT} != wanted:
        return f"its usages must be {', '.join(sorted(wanted))} and perhaps {KEY_ENCIPHERMENT}"
    return ""


def names_problem(subject: Subject, *, serving: bool) -> str:
    """Why these are not names of a server, or of a client; empty when they are."""
    if not serving:
        return "it must have no subject alternative names" if _any_names(subject) else ""
    if subject.other_names:
        return "its subject alternative names must be DNS names and IP addresses"
    if not subject.names:
        return "it must have a subject alternative name: a DNS name or an IP address"
    if any("*" in name for name in subject.names):
        return "its subject alternative names must not be patterns"
    return ""


def _any_names(subject: Subject) -> bool:
    return bool(subject.names or subject.other_names)


def key_problem(request: x509.CertificateSigningRequest) -> str:
    """Why its key is no good; empty when it is."""
    key = request.public_key()
    if isinstance(key, rsa.RSAPublicKey):
        short = key.key_size < _SHORTEST_RSA_BITS
        return f"its RSA key must have {_SHORTEST_RSA_BITS} bits or more" if short else ""
    if isinstance(key, ec.EllipticCurvePublicKey):
        short = key.key_size < _SHORTEST_EC_BITS
        return f"its key must have {_SHORTEST_EC_BITS} bits or more" if short else ""
    return "" if isinstance(key, ed25519.Ed25519PublicKey) else "its key is of no known kind"


def addresses_of(holder: Mapping[str, Any]) -> set[str]:
    """What a pool or a node reports to be reached at, as :class:`Subject` has names."""
    reported = holder.get("status", {}).get("addresses", [])
    return {_as_known(str(each.get("address", ""))) for each in reported} - {""}
