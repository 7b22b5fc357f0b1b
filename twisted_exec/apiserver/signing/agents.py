"""
The signer of client certificates of agents, which people request for their own agents.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cryptography import x509
from zope.interface import implementer

from twisted_exec.api.agents import (
    AGENTS,
    LONGEST_SECONDS,
    agent_name,
    label_problem,
    person_problem,
)
from twisted_exec.api.kinds.certificates import request_of
from twisted_exec.api.status import Forbidden
from twisted_exec.apiserver.signing.interfaces import AGENT, ISigner, SignerDefaults
from twisted_exec.apiserver.signing.requests import (
    RequestedSubject,
    asking_refusal,
    key_problem,
    names_problem,
    requester_of,
    subject_of,
    usage_problem,
)
from twisted_exec.auth.agent_certificates import LONGEST_URI, person_uri
from twisted_exec.auth.interfaces import IAuthorizer, User
from twisted_exec.tls import pem
from twisted_exec.tls.pki.names import LONGEST_COMMON_NAME

ASKING = "agentclient"
"""
The subresource of CertificateSigningRequests that users may ``create`` whose requests need no approval by others.
"""


@implementer(ISigner)
class AgentClient(SignerDefaults):
    """
    Signs certificates of agents.

    An agent is named after the user who has created the request, and its certificate has this user's groups.
    """

    longest_seconds = LONGEST_SECONDS

    def __init__(self, authorizer: IAuthorizer) -> None:
        self._authorizer = authorizer

    def shape_problem(self, csr: Mapping[str, Any], request: x509.CertificateSigningRequest) -> str:
        try:
            subject = subject_of(request)
        except ValueError:
            return "its extensions cannot be read"
        person = requester_of(csr)
        if problem := person_problem(person):
            return problem
        label = subject.common_name.rpartition(":")[2]
        if problem := label_problem(label):
            return problem
        name = agent_name(person.name, label)
        if subject.common_name != name:
            return f"its common name must be {agent_name(person.name, 'NAME')}: the agent is its requester's"
        if len(name) > LONGEST_COMMON_NAME or pem.has_controls(name):
            return f"its common name must have at most {LONGEST_COMMON_NAME} characters, and no control characters"
        if subject.organizations not in ((), (AGENTS,)):
            return f"its organization must be {AGENTS}, or none"
        if len(person_uri(person, label)) > LONGEST_URI:
            return "its requester is in too many groups for a certificate"
        if problem := usage_problem(csr["spec"].get("usages", []), serving=False):
            return problem
        return names_problem(subject, serving=False) or key_problem(request)

    async def refusal(self, csr: Mapping[str, Any], subject: RequestedSubject) -> str:
        return await asking_refusal(csr, ASKING, self._authorizer)

    def organizations(self, subject: RequestedSubject) -> Sequence[str]:
        return ()  # see auth.agent_certificates

    def uris(self, csr: Mapping[str, Any]) -> Sequence[str]:
        subject = subject_of(request_of(csr))
        return [person_uri(requester_of(csr), subject.common_name.rpartition(":")[2])]


def check_requester(csr: Mapping[str, Any], user: User) -> None:
    """
    Refuse a new request for an agent by a user who can have none.

    :raises Forbidden: the user is an agent, a program, or impersonated.
    """
    if csr["spec"].get("signerName") == AGENT and (problem := person_problem(user)):
        raise Forbidden(
            f'certificatesigningrequests "{csr["metadata"].get("name", "")}" is forbidden: {problem}'
        )
