"""
What is signed for node servers: what they show, and what they are known by.

A node server is the user ``system:node:NAME`` of the group ``system:nodes``, as a kubelet is.

``kubernetes.io/kube-apiserver-client-kubelet`` signs what it is known by.  The server approves
for whoever may create ``certificatesigningrequests/nodeclient``, and for a node server itself, of
its own name, when it may create ``certificatesigningrequests/selfnodeclient``.

``kubernetes.io/kubelet-serving`` signs what it shows.  Kubernetes leaves all of these to people.
Here the server approves what the node server itself asks for when every name is one of the
addresses that its Node reports, and no other Node does: whoever may say where a node is reached is
asked for it there anyway.  Names of the API server itself it never approves.

Shapes: ``ValidateKubeletServingCSR`` and ``ValidateKubeletClientCSR`` of
``pkg/apis/certificates/helpers.go``; approval: ``pkg/controller/certificates/approver``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from cryptography import x509
from zope.interface import implementer

from twisted_exec.api.kinds import NODES
from twisted_exec.api.names import dns_subdomain
from twisted_exec.apiserver.signing.csr import (
    NODE_SERVING,
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
from twisted_exec.apiserver.signing.poollets import asking_refusal
from twisted_exec.auth.groups import NODE_SERVERS
from twisted_exec.auth.interfaces import IAuthorizer
from twisted_exec.storage.interfaces import IStorage

NODE_PREFIX = "system:node:"


def is_node(user: str) -> bool:
    """Whether this is how a node server is called."""
    return user.startswith(NODE_PREFIX)


def node_of(user: str) -> str:
    """The Node whose server has this name; empty when it is none's."""
    name = user.removeprefix(NODE_PREFIX)
    return name if is_node(user) and name and not dns_subdomain(name) else ""


@implementer(ISigner)
class NodeClient:
    """Signs what node servers are known by."""

    def __init__(self, authorizer: IAuthorizer) -> None:
        self._authorizer = authorizer

    def shape_problem(self, csr: Mapping[str, Any], request: x509.CertificateSigningRequest) -> str:
        """As :meth:`ISigner.shape_problem`."""
        return shape_problem(csr, request)

    async def refusal(self, csr: Mapping[str, Any], subject: Subject) -> str:
        """As :meth:`ISigner.refusal`."""
        is_own = csr["spec"].get("username") == subject.common_name
        if is_own and not await asking_refusal(csr, "selfnodeclient", self._authorizer):
            return ""
        return await asking_refusal(csr, "nodeclient", self._authorizer)

    def organizations(self, subject: Subject) -> Sequence[str]:
        """As :meth:`ISigner.organizations`."""
        return [NODE_SERVERS]


@implementer(ISigner)
class NodeServing:
    """
    Signs what node servers show.

    :param storage: has the Nodes.
    :param own_names: what the API server itself is called by a certificate of the same CA.
    """

    def __init__(self, storage: IStorage, own_names: Callable[[], Collection[str]]) -> None:
        self._storage, self._own_names = storage, own_names

    def shape_problem(self, csr: Mapping[str, Any], request: x509.CertificateSigningRequest) -> str:
        """As :meth:`ISigner.shape_problem`."""
        return shape_problem(csr, request)

    async def refusal(self, csr: Mapping[str, Any], subject: Subject) -> str:
        """As :meth:`ISigner.refusal`."""
        nodes = (await self._storage.list(NODES.resource)).items
        return own_problem(csr, subject) or serving_refusal(subject, nodes, self._own_names())

    def organizations(self, subject: Subject) -> Sequence[str]:
        """As :meth:`ISigner.organizations`."""
        return [NODE_SERVERS]


def shape_problem(csr: Mapping[str, Any], request: x509.CertificateSigningRequest) -> str:
    """Why this is nothing that the signer it names signs for node servers; empty when it is."""
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


def own_problem(csr: Mapping[str, Any], subject: Subject) -> str:
    """Why it is not by the node server that it names; empty when it is."""
    spec = csr["spec"]
    if spec.get("username") != subject.common_name or NODE_SERVERS not in spec.get("groups", []):
        return f"only the node server that it names, {subject.common_name}, may ask for it"
    return ""


def serving_refusal(subject: Subject, nodes: Iterable[Object], ours: Collection[str] = ()) -> str:
    """
    Why the server does not approve of these names by itself; empty when it does.

    :param nodes: all that there are.
    :param ours: names by which users know the API server.
    """
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
        told = f"it reports {', '.join(sorted(own))}"
        return f"node {name} does not report the address {missing[0]}: {told}"
    if taken := next((each for each in subject.names if each in others), None):
        return f"{taken} is reported by node {others[taken]}, too"
    return ""
