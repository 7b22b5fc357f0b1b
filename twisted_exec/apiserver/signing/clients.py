"""
The signer of client certificates of people and poollets.

The rules are those of Kubernetes (``pkg/controller/certificates``), and for poollets those of ironcore.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cryptography import x509
from zope.interface import implementer

from twisted_exec.api.agents import AGENTS, is_agent
from twisted_exec.api.dialects import Dialect
from twisted_exec.api.kinds.certificates import (
    CLIENT_AUTH,
    DIGITAL_SIGNATURE,
    KEY_ENCIPHERMENT,
)
from twisted_exec.api.users import MASTERS, NODE_SERVERS
from twisted_exec.apiserver.signing.interfaces import AGENT, ISigner, SignerDefaults
from twisted_exec.apiserver.signing.nodes import is_node
from twisted_exec.apiserver.signing.poollets import PoolletClient
from twisted_exec.apiserver.signing.requests import (
    RequestedSubject,
    key_problem,
    names_problem,
    subject_of,
)
from twisted_exec.auth.interfaces import IAuthorizer
from twisted_exec.tls import pem
from twisted_exec.tls.pki.names import LONGEST_COMMON_NAME

_USAGES = {CLIENT_AUTH, DIGITAL_SIGNATURE, KEY_ENCIPHERMENT}


@implementer(ISigner)
class Clients(SignerDefaults):
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
    if is_agent(subject.common_name) or AGENTS in subject.organizations:
        return f"it is an agent's: {AGENT} signs those"
    if is_node(subject.common_name) or NODE_SERVERS in subject.organizations:
        return "it is a node server's: kubernetes.io/kube-apiserver-client-kubelet signs those"
    return names_problem(subject, serving=False)
