"""
The signers of client and serving certificates of Nodes.

The rules are those of Kubernetes (``pkg/apis/certificates/helpers.go`` and
``pkg/controller/certificates``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from cryptography import x509
from zope.interface import implementer

from twisted_exec.api.kinds import NODES
from twisted_exec.api.names import dns_subdomain
from twisted_exec.api.users import NODE_SERVERS
from twisted_exec.apiserver.signing.interfaces import NODE_SERVING, ISigner, SignerDefaults
from twisted_exec.apiserver.signing.requests import (
    Object,
    RequestedSubject,
    addresses_of,
    asking_refusal,
    is_named,
    key_problem,
    names_problem,
    subject_of,
    usage_problem,
)
from twisted_exec.auth.interfaces import IAuthorizer
from twisted_exec.storage.interfaces import IStorage

NODE_PREFIX = "system:node:"


def is_node(user: str) -> bool:
    """Return whether the user name is that of a node server."""
    return user.startswith(NODE_PREFIX)


def node_of(user: str) -> str:
    """The Node of a node server's user name; empty for other users."""
    name = user.removeprefix(NODE_PREFIX)
    return name if is_node(user) and name and not dns_subdomain(name) else ""


@implementer(ISigner)
class NodeClient(SignerDefaults):
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
class NodeServing(SignerDefaults):
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
