"""
The collaborators of the node server's routes.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from twisted.web.iweb import IRequest

from twisted_exec.api.reasons import REASON_HEADER
from twisted_exec.api.status import Forbidden
from twisted_exec.kube.upstream import CONNECT_SECONDS
from twisted_exec.nodeserver.interfaces import ILeaves, IRootPods
from twisted_exec.nodeserver.kubelet_api.gate import NodeAccess, subresources_of, verb_of
from twisted_exec.nodeserver.recordings.service import PodRecordings
from twisted_exec.streaming.context import RequestContext
from twisted_exec.streaming.sessions.registry import Sessions
from twisted_exec.streaming.text.shared_downloads import SharedDownloads

HOP = "nodeserver"
"""Name of this hop in audit records and logs."""


@dataclass(frozen=True)
class Hop:
    """
    The collaborators of routes and locators.

    :param clock: the reactor.
    :param shared: the connections that followed logs share.
    :param connect_seconds: time limit for a connection to a leaf, TLS included.
    :param requires_reason: refuse commands without a declared reason.
    :param recordings: of sessions in Pods, if there are any.
    """

    access: NodeAccess
    root_pods: IRootPods
    leaves: ILeaves
    sessions: Sessions
    clock: Any
    shared: SharedDownloads
    connect_seconds: float = CONNECT_SECONDS
    requires_reason: bool = False
    recordings: PodRecordings | None = None

    async def admit(self, context: RequestContext, node: str | None = None) -> str:
        """
        Authorize a request that concerns no single Pod.

        :param node: the requested Node; by default, the one that its ``Host`` names.
        :return: the Node; empty for all of ours.
        :raises Forbidden: the user has no permission.
        :raises APIError: the permission cannot be checked.
        """
        request = context.request
        if node is None:
            node = asked_node(request, self.leaves.nodes())
        verb = verb_of(request.method, "")
        await self.access.authorize(context.user, node, subresources_of(request.path), verb)
        return node

    def check_reason(self, context: RequestContext) -> None:
        """
        Check that a session that can change something has a declared reason, if that is required.

        :raises Forbidden: it has none.
        """
        subject = context.subject
        if self.requires_reason and subject.subresource in _COMMANDS and not subject.reason:
            name = subject.machine
            raise Forbidden(
                f'pod "{name}": this node server requires a reason: for the console of a machine use '
                f"kubectl exec -it {name} -- console --reason TEXT; for other Pods the client must send "
                f"the header {REASON_HEADER.decode()}, which kubectl cannot"
            )


_COMMANDS = ("exec", "attach", "run")
"""Subresources that need a reason."""


def asked_node(request: IRequest, nodes: Collection[str]) -> str:
    """
    Return the Node of a request without a Pod.

    All our Nodes may share one address.  If each has a host name, such as
    ``NODE.nodes.example.com``, then ``Host`` selects the Node.

    :param nodes: the names of our Nodes.
    :return: a name; that of the only Node, if there is just one; or empty for all of them.
    """
    if len(nodes) == 1:
        return next(iter(nodes))
    host = request.getRequestHostname().decode("ascii", "replace").lower()
    fitting = [node for node in nodes if host == node or host.startswith(f"{node}.")]
    return max(fitting, key=len, default="")
