"""
Signers of CertificateSigningRequests: which exist, and what each allows.

The rules are those of Kubernetes' signers (``pkg/apis/certificates/helpers.go`` and
``pkg/controller/certificates``), and for poollets those of ironcore.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import NameOID
from zope.interface import Interface, implementer

from twisted_exec.api.dialects import Dialect
from twisted_exec.api.kinds import CERTIFICATESIGNINGREQUESTS, NODES
from twisted_exec.api.kinds.certificates import (
    CLIENT_AUTH,
    DIGITAL_SIGNATURE,
    KEY_ENCIPHERMENT,
    SERVER_AUTH,
)
from twisted_exec.api.kinds.validation import address_of
from twisted_exec.api.names import dns_subdomain
from twisted_exec.api.users import MASTERS, NODE_SERVERS
from twisted_exec.auth.interfaces import IAuthorizer, User
from twisted_exec.auth.rules import Attributes
from twisted_exec.storage.interfaces import IStorage
from twisted_exec.tls import pem
from twisted_exec.tls.errors import TLSConfigError
from twisted_exec.tls.pem import server_name
from twisted_exec.tls.pki import LONGEST_COMMON_NAME

Object = dict[str, Any]

SERVING = "twisted-exec.dev/poollet-serving"
"""Serving certificates of poollets."""
CLIENT = "kubernetes.io/kube-apiserver-client"
"""Client certificates of people and poollets."""
NODE_SERVING = "kubernetes.io/kubelet-serving"
"""Serving certificates of node servers."""
NODE_CLIENT = "kubernetes.io/kube-apiserver-client-kubelet"
"""Client certificates of node servers."""

FOR_SERVERS = (SERVING, NODE_SERVING)

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

    def told(oid: x509.ObjectIdentifier) -> tuple[str, ...]:
        return tuple(str(each.value) for each in request.subject.get_attributes_for_oid(oid))

    try:
        common = told(NameOID.COMMON_NAME)
        alternatives = list(_alternatives(request))
    except (x509.DuplicateExtension, x509.UnsupportedGeneralNameType, TypeError) as problem:
        raise ValueError(str(problem)) from None
    hosts = [each for each in alternatives if isinstance(each, x509.DNSName | x509.IPAddress)]
    names = [name for each in hosts if (name := _as_asked(str(each.value)))]
    single = common[0] if len(common) == 1 else ""
    organizations = told(NameOID.ORGANIZATION_NAME)
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


class ISigner(Interface):
    """The rules of one signer."""

    def shape_problem(csr: Mapping[str, Any], request: x509.CertificateSigningRequest) -> str:
        """Why this signer never signs the request; empty when its shape is acceptable."""

    async def refusal(csr: Mapping[str, Any], subject: RequestedSubject) -> str:
        """Why the server does not approve a request of acceptable shape; empty when it does."""

    def organizations(subject: RequestedSubject) -> Sequence[str]:
        """The organizations in the certificate."""


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


_USAGES = {CLIENT_AUTH, DIGITAL_SIGNATURE, KEY_ENCIPHERMENT}


@implementer(ISigner)
class Clients:
    """
    Signs client certificates of people and poollets.

    The server approves no certificates for people. Membership in ``system:masters`` is never
    granted this way: it bypasses RBAC and could not be revoked. A request with a poollet's name or
    group must have the shape of a poollet's request.

    :param authorizer: decides who may obtain the first certificate of a poollet.
    """

    def __init__(self, dialects: Sequence[Dialect], authorizer: IAuthorizer) -> None:
        self._dialects = dialects
        self._poollets = PoolletClient(dialects, authorizer)

    def shape_problem(self, csr: Mapping[str, Any], request: x509.CertificateSigningRequest) -> str:
        try:
            subject = subject_of(request)
        except ValueError:
            return "its extensions cannot be read"
        if self._is_poollet(subject):
            return self._poollets.shape_problem(csr, request)
        return person_problem(csr, subject) or key_problem(request)

    async def refusal(self, csr: Mapping[str, Any], subject: RequestedSubject) -> str:
        if self._is_poollet(subject):
            return await self._poollets.refusal(csr, subject)
        groups = f" of {', '.join(subject.organizations)}" if subject.organizations else ""
        return f"it makes a user {subject.common_name}{groups}, which people have to approve"

    def organizations(self, subject: RequestedSubject) -> Sequence[str]:
        return subject.organizations

    def _is_poollet(self, subject: RequestedSubject) -> bool:
        return any(
            subject.common_name.startswith(each.pool_identity_prefix)
            or each.pool_identity_group in subject.organizations
            for each in self._dialects
        )


def person_problem(csr: Mapping[str, Any], subject: RequestedSubject) -> str:
    """Why the request for a person is never signed; empty when it may be."""
    usages = set(csr["spec"].get("usages", []))
    if CLIENT_AUTH not in usages or usages - _USAGES:
        return f"its usages must be {CLIENT_AUTH}, and perhaps {DIGITAL_SIGNATURE} and {KEY_ENCIPHERMENT}"
    if not 0 < len(subject.common_name) <= LONGEST_COMMON_NAME:
        return f"it must have one common name of 1 to {LONGEST_COMMON_NAME} characters"
    if not all(0 < len(each) <= LONGEST_COMMON_NAME for each in subject.organizations):
        return f"its organizations must have 1 to {LONGEST_COMMON_NAME} characters each"
    if any(map(pem.has_controls, (subject.common_name, *subject.organizations))):
        return "its names must not contain control characters"
    if MASTERS in subject.organizations:
        return f"membership in {MASTERS} is never granted by a request"
    if is_node(subject.common_name) or NODE_SERVERS in subject.organizations:
        return "it is a node server's: kubernetes.io/kube-apiserver-client-kubelet signs those"
    return names_problem(subject, serving=False)


NODE_PREFIX = "system:node:"


def is_node(user: str) -> bool:
    """Return whether the user name is that of a node server."""
    return user.startswith(NODE_PREFIX)


def node_of(user: str) -> str:
    """The Node of a node server's user name; empty for other users."""
    name = user.removeprefix(NODE_PREFIX)
    return name if is_node(user) and name and not dns_subdomain(name) else ""


@implementer(ISigner)
class NodeClient:
    """
    Signs client certificates of node servers.

    The server approves requests for users with ``create`` on
    ``certificatesigningrequests/nodeclient``, and for the node server itself with ``create`` on
    ``certificatesigningrequests/selfnodeclient``.
    """

    def __init__(self, authorizer: IAuthorizer) -> None:
        self._authorizer = authorizer

    def shape_problem(self, csr: Mapping[str, Any], request: x509.CertificateSigningRequest) -> str:
        return node_shape_problem(csr, request)

    async def refusal(self, csr: Mapping[str, Any], subject: RequestedSubject) -> str:
        is_own = csr["spec"].get("username") == subject.common_name
        if is_own and not await asking_refusal(csr, "selfnodeclient", self._authorizer):
            return ""
        return await asking_refusal(csr, "nodeclient", self._authorizer)

    def organizations(self, subject: RequestedSubject) -> Sequence[str]:
        return [NODE_SERVERS]


@implementer(ISigner)
class NodeServing:
    """
    Signs serving certificates of node servers.

    The server approves a node server's own request when its Node reports every requested name, and
    no other Node any of them.

    :param own_names: the API server's own names in certificates of the same CA, which the server
        never approves.
    """

    def __init__(self, storage: IStorage, own_names: Callable[[], Collection[str]]) -> None:
        self._storage, self._own_names = storage, own_names

    def shape_problem(self, csr: Mapping[str, Any], request: x509.CertificateSigningRequest) -> str:
        return node_shape_problem(csr, request)

    async def refusal(self, csr: Mapping[str, Any], subject: RequestedSubject) -> str:
        nodes = (await self._storage.list(NODES.resource)).items
        return own_node_problem(csr, subject) or node_serving_refusal(
            subject, nodes, self._own_names()
        )

    def organizations(self, subject: RequestedSubject) -> Sequence[str]:
        return [NODE_SERVERS]


def node_shape_problem(csr: Mapping[str, Any], request: x509.CertificateSigningRequest) -> str:
    """Why the named signer never signs the request; empty when it may."""
    try:
        subject = subject_of(request)
    except ValueError:
        return "its extensions cannot be read"
    serving = csr["spec"]["signerName"] == NODE_SERVING
    if subject.organizations != (NODE_SERVERS,):
        return f"its organization must be {NODE_SERVERS} and no other"
    if not node_of(subject.common_name):
        return f"its common name must be {NODE_PREFIX}NODE"
    if problem := usage_problem(csr["spec"].get("usages", []), serving=serving):
        return problem
    return names_problem(subject, serving=serving) or key_problem(request)


def own_node_problem(csr: Mapping[str, Any], subject: RequestedSubject) -> str:
    """Why the requester is not the node server named in the request; empty when it is."""
    spec = csr["spec"]
    if spec.get("username") != subject.common_name or NODE_SERVERS not in spec.get("groups", []):
        return f"only the node server that it names, {subject.common_name}, may ask for it"
    return ""


def node_serving_refusal(
    subject: RequestedSubject, nodes: Iterable[Object], ours: Collection[str] = ()
) -> str:
    """Why the server does not approve these names; empty when it does."""
    if mine := next((name for name in subject.names if is_named(name, ours)), None):
        return f"{mine} is the API server's own, whose certificate is of the same CA"
    name = node_of(subject.common_name)
    own: set[str] = set()
    others: dict[str, str] = {}
    for node in nodes:
        if node["metadata"]["name"] == name:
            own = addresses_of(node)
        else:
            others |= dict.fromkeys(addresses_of(node), node["metadata"]["name"])
    if not own:
        return f"node {name} reports no address yet"
    if missing := [each for each in subject.names if each not in own]:
        reported = f"it reports {', '.join(sorted(own))}"
        return f"node {name} does not report the address {missing[0]}: {reported}"
    if conflicting := next((each for each in subject.names if each in others), None):
        return f"{conflicting} is reported by node {others[conflicting]}, too"
    return ""


@implementer(ISigner)
class PoolletServing:
    """
    Signs serving certificates of poollets.

    The server approves a request of the pool's own poollet when its MachinePool reports all of the
    names. A pool that has reported none yet gets names that no other pool of its dialect reports:
    first come, first served.

    :param own_names: the API server's own names in certificates of the same CA, which the server
        never approves: a poollet could impersonate the API server.
    """

    def __init__(
        self,
        dialects: Sequence[Dialect],
        storage: IStorage,
        own_names: Callable[[], Collection[str]],
    ) -> None:
        self._dialects, self._storage, self._own_names = dialects, storage, own_names

    def shape_problem(self, csr: Mapping[str, Any], request: x509.CertificateSigningRequest) -> str:
        return poollet_shape_problem(csr, request, self._dialects)

    async def refusal(self, csr: Mapping[str, Any], subject: RequestedSubject) -> str:
        dialect = _dialect(subject, self._dialects)
        pool = dialect.pool_of(subject.common_name) or ""
        pools = (await self._storage.list(dialect.pool)).items
        ours = self._own_names()
        return own_pool_problem(csr, subject, dialect) or poollet_serving_refusal(
            subject, pool, pools, ours
        )

    def organizations(self, subject: RequestedSubject) -> Sequence[str]:
        return [_dialect(subject, self._dialects).pool_identity_group]


@implementer(ISigner)
class PoolletClient:
    """
    Signs client certificates of poollets.

    The first certificate is requested by a user with ``create`` on
    ``certificatesigningrequests/machinepoolclient``, or a like subresource of another dialect;
    later the poollet renews its own.
    """

    def __init__(self, dialects: Sequence[Dialect], authorizer: IAuthorizer) -> None:
        self._dialects, self._authorizer = dialects, authorizer

    def shape_problem(self, csr: Mapping[str, Any], request: x509.CertificateSigningRequest) -> str:
        return poollet_shape_problem(csr, request, self._dialects)

    async def refusal(self, csr: Mapping[str, Any], subject: RequestedSubject) -> str:
        dialect = _dialect(subject, self._dialects)
        if dialect_of(csr["spec"].get("username", ""), self._dialects):
            return own_pool_problem(csr, subject, dialect)
        subresource = f"{dialect.pool.kind.lower()}client"
        return await asking_refusal(csr, subresource, self._authorizer)

    def organizations(self, subject: RequestedSubject) -> Sequence[str]:
        return [_dialect(subject, self._dialects).pool_identity_group]


async def asking_refusal(csr: Mapping[str, Any], subresource: str, authorizer: IAuthorizer) -> str:
    """Why the requester may not have the request approved automatically; empty when it may."""
    spec = csr["spec"]
    extra = {key: tuple(values) for key, values in spec.get("extra", {}).items()}
    user = User(
        spec.get("username", ""),
        tuple(spec.get("groups", ())),
        uid=spec.get("uid", ""),
        extra=extra,
    )
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


def poollet_shape_problem(
    csr: Mapping[str, Any],
    request: x509.CertificateSigningRequest,
    dialects: Sequence[Dialect],
) -> str:
    """Why the named signer never signs the request; empty when it may."""
    try:
        subject = subject_of(request)
    except ValueError:
        return "its extensions cannot be read"
    serving = csr["spec"]["signerName"] == SERVING
    dialect = dialect_of(subject.common_name, dialects)
    if dialect is None:
        examples = ", ".join(f"{each.pool_identity_prefix}POOL" for each in dialects)
        return f"its common name must be that of a pool's poollet: {examples}"
    groups = (dialect.pool_identity_group,)
    if subject.organizations != groups and not (serving and not subject.organizations):
        return f"its organization must be {dialect.pool_identity_group} and no other"
    if problem := usage_problem(csr["spec"].get("usages", []), serving=serving):
        return problem
    return names_problem(subject, serving=serving) or key_problem(request)


def _dialect(subject: RequestedSubject, dialects: Sequence[Dialect]) -> Dialect:
    dialect = dialect_of(subject.common_name, dialects)
    assert dialect is not None  # its shape says so
    return dialect


def dialect_of(user: str, dialects: Sequence[Dialect]) -> Dialect | None:
    """The dialect whose poollets have such user names."""
    return next((each for each in dialects if each.pool_of(user)), None)


def own_pool_problem(csr: Mapping[str, Any], subject: RequestedSubject, dialect: Dialect) -> str:
    """Why the requester is not the poollet named in the request; empty when it is."""
    spec = csr["spec"]
    member = dialect.pool_identity_group in spec.get("groups", [])
    if spec.get("username") != subject.common_name or not member:
        return f"only the poollet that it names, {subject.common_name}, may ask for it"
    return ""


def poollet_serving_refusal(
    subject: RequestedSubject, pool: str, pools: Iterable[Object], ours: Collection[str] = ()
) -> str:
    """Why the server does not approve these names; empty when it does."""
    if mine := next((name for name in subject.names if is_named(name, ours)), None):
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
    conflicting = next((name for name in subject.names if name in others), None)
    if conflicting:
        return f"pool {pool} reports no address yet, and {conflicting} is one of pool {others[conflicting]}"
    return ""


def _listed(names: Collection[str]) -> str:
    return f"it reports {', '.join(sorted(names))}"
