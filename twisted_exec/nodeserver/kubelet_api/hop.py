"""
What every route of the node server works with.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from twisted.web.iweb import IRequest

from twisted_exec.nodeserver.interfaces import ILeaves, IRootPods
from twisted_exec.nodeserver.kubelet_api.gate import Gate, subresources_of, verb_of
from twisted_exec.streaming.http.site import Request
from twisted_exec.streaming.sessions.registry import Sessions
from twisted_exec.streaming.text.shared_downloads import SharedDownloads

HOP = "nodeserver"
"""What this hop is called, in the audit and in the log."""


@dataclass(frozen=True)
class Hop:
    """
    The collaborators of routes and locators.

    :param clock: the reactor.
    :param shared: the connections that followed logs share.
    """

    gate: Gate
    root_pods: IRootPods
    leaves: ILeaves
    sessions: Sessions
    clock: Any
    shared: SharedDownloads

    async def admit(self, request: Request) -> str:
        """
        Let a request in that is about no Pod.

        :return: the Node that it is about; empty for all of ours.
        :raises Unauthorized: nobody whom we know.
        :raises Forbidden: they may not.
        :raises APIError: it could not be found out.
        """
        node = asked_node(request, self.leaves.nodes())
        user = await self.gate.who(request)
        await self.gate.may(user, node, subresources_of(request.path), verb_of(request.method, ""))
        return node


def asked_node(request: IRequest, nodes: Collection[str]) -> str:
    """
    Which Node a request without a Pod is about.

    All Nodes of ours may have one address.  Where each has a name of its own, such as
    ``NODE.nodes.example.com``, ``Host`` says which one is meant.

    :param nodes: the names of ours.
    :return: its name; the only one's, where there is one; or empty for all of them.
    """
    if len(nodes) == 1:
        return next(iter(nodes))
    host = request.getRequestHostname().decode("ascii", "replace").lower()
    fitting = [node for node in nodes if host == node or host.startswith(f"{node}.")]
    return max(fitting, key=len, default="")
