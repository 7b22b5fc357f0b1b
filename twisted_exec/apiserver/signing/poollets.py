"""
The signers of client and serving certificates of poollets.

The rules are those of ironcore.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from cryptography import x509
from zope.interface import implementer

from twisted_exec.api.dialects import Dialect
from twisted_exec.apiserver.signing.interfaces import SERVING, ISigner, SignerDefaults
from twisted_exec.apiserver.signing.requests import (
    Object,
    RequestedSubject,
    addresses_of,
    asking_refusal,
    is_named,
    key_problem,
    names_problem,
    reported_names,
    subject_of,
    usage_problem,
)
from twisted_exec.auth.interfaces import IAuthorizer
from twisted_exec.storage.interfaces import IStorage


@implementer(ISigner)
class PoolletServing(SignerDefaults):
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
class PoolletClient(SignerDefaults):
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
            return f"pool {pool} does not report the address {missing[0]}: {reported_names(own)}"
        return ""
    conflicting = next((name for name in subject.names if name in others), None)
    if conflicting:
        return f"pool {pool} reports no address yet, and {conflicting} is one of pool {others[conflicting]}"
    return ""
