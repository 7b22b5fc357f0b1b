"""
What may be signed: the rules of the signers, without I/O.

A signer has two questions.  Of every request: has it the *shape* of what this signer signs?
What has not is never signed, whoever approved it.  Of one that nobody decided on: may the
server approve it by itself?

``twisted-exec.dev/poollet-serving`` signs what poollets show.  Its certificates name the pool
(common name) and where it is reached (subject alternative names).  The server approves one
that the pool's own poollet asks for when the names are all among the addresses that its
MachinePool reports.  A pool that has reported none yet, as at its poollet's first start, gets
what no other pool reports: the first to come has it, as nobody knows better, and nobody can
take what is another's.  Names of the API server itself it never approves where one CA has signed
both: a poollet that showed them could be the API server to its users.  What else is asked for waits
for ``kubectl certificate approve``.

``kubernetes.io/kube-apiserver-client`` signs what poollets are known by here: those that
have none yet ask as someone who may create ``certificatesigningrequests/machinepoolclient``,
and those that have one renew it for themselves.

As Kubernetes' signers for kubelets (``pkg/apis/certificates/helpers.go``) and ironcore's
``internal/controllers/core/certificate/compute``.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import NameOID

from twisted_exec.api.dialects import Dialect
from twisted_exec.api.kinds.causes import address_of
from twisted_exec.api.kinds.certificates import (
    CLIENT_AUTH,
    DIGITAL_SIGNATURE,
    KEY_ENCIPHERMENT,
    SERVER_AUTH,
)

Object = dict[str, Any]

SERVING = "twisted-exec.dev/poollet-serving"
CLIENT = "kubernetes.io/kube-apiserver-client"

_SHORTEST_RSA_BITS = 2048
_SHORTEST_EC_BITS = 256


@dataclass(frozen=True)
class Subject:
    """What a request asks to be called."""

    common_name: str
    organizations: tuple[str, ...]
    names: tuple[str, ...]
    """DNS names in lower case, and IP addresses."""
    other_names: int = 0
    """How many alternative names of other kinds there are."""


NOBODY = Subject("", (), ())


def subject_of(request: x509.CertificateSigningRequest) -> Subject:
    """
    What a request asks to be called.

    :raises ValueError: its extensions cannot be read.
    """

    def told(oid: x509.ObjectIdentifier) -> tuple[str, ...]:
        return tuple(str(each.value) for each in request.subject.get_attributes_for_oid(oid))

    common = told(NameOID.COMMON_NAME)
    names, others = [], 0
    try:
        found = list(_alternatives(request))
    except (x509.DuplicateExtension, x509.UnsupportedGeneralNameType, TypeError) as problem:
        raise ValueError(str(problem)) from None
    for name in found:
        if isinstance(name, x509.DNSName):
            names.append(name.value.lower())
        elif isinstance(name, x509.IPAddress):
            names.append(str(name.value))
        else:
            others += 1
    single = common[0] if len(common) == 1 else ""
    return Subject(single, told(NameOID.ORGANIZATION_NAME), tuple(names), others)


def server_names(certificate: x509.Certificate) -> frozenset[str]:
    """
    What a server is called by its certificate, as :class:`Subject` has names.

    Without those that every host has for itself, which lead nobody else to it.
    """
    try:
        found = list(_alternatives(certificate))
    except (x509.DuplicateExtension, x509.UnsupportedGeneralNameType, TypeError, ValueError):
        return frozenset()
    names = {name.value.lower() for name in found if isinstance(name, x509.DNSName)}
    addresses = {name.value for name in found if isinstance(name, x509.IPAddress)}
    others = {str(each) for each in addresses if not _is_loopback(each)}
    return frozenset(names - {"localhost"}) | others


def _is_loopback(address: Any) -> bool:
    known = isinstance(address, ipaddress.IPv4Address | ipaddress.IPv6Address)
    return known and bool(address.is_loopback)


def _alternatives(
    holder: x509.CertificateSigningRequest | x509.Certificate,
) -> Iterable[x509.GeneralName]:
    try:
        return holder.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()


def shape_problem(
    csr: Mapping[str, Any],
    request: x509.CertificateSigningRequest,
    dialects: Sequence[Dialect],
) -> str:
    """Why this is nothing that the signer it names signs; empty when it is."""
    try:
        subject = subject_of(request)
    except ValueError:
        return "its extensions cannot be read"
    serving = csr["spec"]["signerName"] == SERVING
    dialect = dialect_of(subject.common_name, dialects)
    if dialect is None:
        told = ", ".join(f"{each.pool_identity_prefix}POOL" for each in dialects)
        return f"its common name must be that of a pool's poollet: {told}"
    groups = (dialect.pool_identity_group,)
    if subject.organizations != groups and not (serving and not subject.organizations):
        return f"its organization must be {dialect.pool_identity_group} and no other"
    if problem := _usage_problem(csr["spec"].get("usages", []), serving=serving):
        return problem
    return _names_problem(subject, serving=serving) or key_problem(request)


def _usage_problem(usages: Sequence[str], *, serving: bool) -> str:
    wanted = {DIGITAL_SIGNATURE, SERVER_AUTH if serving else CLIENT_AUTH}
    if set(usages) - {KEY_ENCIPHERMENT} != wanted:
        return f"its usages must be {', '.join(sorted(wanted))} and perhaps {KEY_ENCIPHERMENT}"
    return ""


def _names_problem(subject: Subject, *, serving: bool) -> str:
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


def dialect_of(user: str, dialects: Sequence[Dialect]) -> Dialect | None:
    """The dialect of which this is a poollet's name."""
    return next((each for each in dialects if each.pool_of(user)), None)


def own_problem(csr: Mapping[str, Any], subject: Subject, dialect: Dialect) -> str:
    """Why it is not by the poollet that it names; empty when it is."""
    spec = csr["spec"]
    member = dialect.pool_identity_group in spec.get("groups", [])
    if spec.get("username") != subject.common_name or not member:
        return f"only the poollet that it names, {subject.common_name}, may ask for it"
    return ""


def serving_refusal(
    subject: Subject, pool: str, pools: Iterable[Object], ours: Collection[str] = ()
) -> str:
    """
    Why the server does not approve of these names by itself; empty when it does.

    :param pool: whose poollet asks.
    :param pools: all of the dialect.
    :param ours: names by which users know the API server.
    """
    if mine := next((name for name in subject.names if name in ours), None):
        return f"{mine} is the API server's own, whose certificate is of the same CA"
    own: set[str] = set()
    others: dict[str, str] = {}
    for each in pools:
        name, reported = each["metadata"]["name"], addresses_of(each)
        if name == pool:
            own = reported
        else:
            others |= dict.fromkeys(reported, name)
    if own:
        missing = [name for name in subject.names if name not in own]
        if missing:
            return f"pool {pool} does not report the address {missing[0]}: {_listed(own)}"
        return ""
    taken = next((name for name in subject.names if name in others), None)
    if taken:
        return f"pool {pool} reports no address yet, and {taken} is one of pool {others[taken]}"
    return ""


def _listed(names: Collection[str]) -> str:
    return f"it reports {', '.join(sorted(names))}"


def addresses_of(pool: Mapping[str, Any]) -> set[str]:
    """What a pool reports to be reached at, as :class:`Subject` has names."""
    reported = pool.get("status", {}).get("addresses", [])
    return {_plain(str(each.get("address", ""))) for each in reported} - {""}


def _plain(address: str) -> str:
    known = address_of(address)
    return address.lower() if known is None else str(known)
