"""
Signers of poollets' certificates.

``twisted-exec.dev/poollet-serving`` signs serving certificates.  They name the pool (common name)
and its addresses (subject alternative names).  The server approves a request of the pool's own
poollet when its MachinePool reports all of the names.  A pool that has reported none yet, as at its
poollet's first start, gets names that no other pool reports: first come, first served, and no
poollet can take the address of another.  Names of the API server itself are never approved where
one CA signs both: a poollet with such a certificate could impersonate the API server.  Everything
else waits for ``kubectl certificate approve``.

``kubernetes.io/kube-apiserver-client`` signs client certificates of poollets.  The first one is
requested by a user with ``create`` on ``certificatesigningrequests/machinepoolclient``; later the
poollet renews its own.

As ironcore's ``internal/controllers/core/certificate/compute``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from cryptography import x509
from zope.interface import implementer

from twisted_exec.api.dialects import Dialect
from twisted_exec.api.kinds import CERTIFICATESIGNINGREQUESTS
from twisted_exec.apiserver.signing.csr import (
    SERVING,
    ISigner,
    Object,
    Subject,
    addresses_of,
    is_named,
    key_problem,
    names_problem,
    subject_of,
    usage_problem,
)
from twisted_exec.auth.interfaces import Attributes, IAuthorizer, User
from twisted_exec.storage.interfaces import IStorage


@implementer(ISigner)
class PoolletServing:
    """
    Signs serving certificates of poollets.

    :param storage: holds the pools.
    :param own_names: the API server's own names in certificates of the same CA.
    """

    def __init__(
        self,
        dialects: Sequence[Dialect],
        storage: IStorage,
        own_names: Callable[[], Collection[str]],
    ) -> None:
        self._dialects, self._storage, self._own_names = dialects, storage, own_names

    def shape_problem(self, csr: Mapping[str, Any], request: x509.CertificateSigningRequest) -> str:
        """As :meth:`ISigner.shape_problem`."""
        return shape_problem(csr, request, self._dialects)

    async def refusal(self, csr: Mapping[str, Any], subject: Subject) -> str:
        """As :meth:`ISigner.refusal`."""
        dialect = _dialect(subject, self._dialects)
        pool = dialect.pool_of(subject.common_name) or ""
        pools = (await self._storage.list(dialect.pool)).items
        ours = self._own_names()
        return own_problem(csr, subject, dialect) or serving_refusal(subject, pool, pools, ours)

    def organizations(self, subject: Subject) -> Sequence[str]:
        """As :meth:`ISigner.organizations`."""
        return [_dialect(subject, self._dialects).pool_identity_group]


@implementer(ISigner)
class PoolletClient:
    """Signs client certificates of poollets."""

    def __init__(self, dialects: Sequence[Dialect], authorizer: IAuthorizer) -> None:
        self._dialects, self._authorizer = dialects, authorizer

    def shape_problem(self, csr: Mapping[str, Any], request: x509.CertificateSigningRequest) -> str:
        """As :meth:`ISigner.shape_problem`."""
        return shape_problem(csr, request, self._dialects)

    async def refusal(self, csr: Mapping[str, Any], subject: Subject) -> str:
        """As :meth:`ISigner.refusal`."""
        dialect = _dialect(subject, self._dialects)
        if dialect_of(csr["spec"].get("username", ""), self._dialects):
            return own_problem(csr, subject, dialect)
        subresource = f"{dialect.pool.kind.lower()}client"
        return await asking_refusal(csr, subresource, self._authorizer)

    def organizations(self, subject: Subject) -> Sequence[str]:
        """As :meth:`ISigner.organizations`."""
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


def shape_problem(
    csr: Mapping[str, Any],
    request: x509.CertificateSigningRequest,
    dialects: Sequence[Dialect],
) -> str:
    """Why the named signer never signs the request; empty when its shape is acceptable."""
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


def _dialect(subject: Subject, dialects: Sequence[Dialect]) -> Dialect:
    dialect = dialect_of(subject.common_name, dialects)
    assert dialect is not None  # its shape says so
    return dialect


def dialect_of(user: str, dialects: Sequence[Dialect]) -> Dialect | None:
    """The dialect whose poollets have such user names."""
    return next((each for each in dialects if each.pool_of(user)), None)


def own_problem(csr: Mapping[str, Any], subject: Subject, dialect: Dialect) -> str:
    """Why the requester is not the poollet named in the request; empty when it is."""
    spec = csr["spec"]
    member = dialect.pool_identity_group in spec.get("groups", [])
    if spec.get("username") != subject.common_name or not member:
        return f"only the poollet that it names, {subject.common_name}, may ask for it"
    return ""


def serving_refusal(
    subject: Subject, pool: str, pools: Iterable[Object], ours: Collection[str] = ()
) -> str:
    """
    Why the server does not approve these names; empty when it does.

    :param pool: the pool of the requesting poollet.
    :param pools: all pools of the dialect.
    :param ours: the API server's own names.
    """
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
