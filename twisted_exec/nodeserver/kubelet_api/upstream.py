"""
From a request to the Pod in its leaf: authorization, lookup, and the meaning of a leaf's refusals.

The order protects secrets: a client without permission for a Node learns nothing about its Pods,
not even whether there are any.  Only the root decides which Pods and containers exist; the server
asks a leaf only for Pods of the root.

A leaf's refusals are of two kinds.  If it concerns the request (no such container, too many
requests), the user gets it unchanged, since a kubelet would say the same.  If it concerns *our
credentials*, it must not be passed on: a 401 would tell the root's API server that its own
credentials are bad, and its operator would mend the wrong ones.  That becomes a 502 that says what
to mend, and where.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import replace

from twisted.logger import Logger

from twisted_exec.api.kinds.pods.node_pods import CONTAINER_LISTS
from twisted_exec.api.status import (
    APIError,
    BadGateway,
    Forbidden,
    NotFound,
    ServiceUnavailable,
    Unauthorized,
    one_line,
)
from twisted_exec.kube.interfaces import Object
from twisted_exec.kube.kubeconfig.client_config import KubeConfigError
from twisted_exec.kube.upstream import Upstream, sharing
from twisted_exec.nodeserver.interfaces import ILeaf, LeafPod
from twisted_exec.nodeserver.kubelet_api.hop import Hop
from twisted_exec.nodeserver.kubelet_api.query import KubeletTarget, path
from twisted_exec.streaming.context import RequestContext
from twisted_exec.streaming.interfaces import Location, Subject
from twisted_exec.wire.channel import Channel

_ABOUT_US = re.compile(r'\bUser "[^"]*" cannot \w+ ')
"""
Matches the refusal of an authorizer, but not of an admission plugin (``ForbiddenMessage`` of
``k8s.io/apiserver/pkg/endpoints/handlers/responsewriters``).
"""

_RULES = (
    "it needs get on pods and pods/log, and create and get on pods/exec, pods/attach and"
    " pods/portforward there"
)

_log = Logger()


async def find(hop: Hop, context: RequestContext) -> tuple[KubeletTarget, LeafPod]:
    """
    Find the Pod of a request in its leaf, and authorize the user for its Node.

    :raises Forbidden: the user has no permission for that Node.
    :raises NotFound: the root has no such Pod or container, its Node is not ours, or the leaf has
        no Pod of ours.
    :raises APIError: that cannot be determined.
    """
    target: KubeletTarget = context.target
    root = await _root_pod(hop, target)
    node = str(root["spec"]["nodeName"]) if root else ""
    uid = str(root["metadata"]["uid"]) if root else ""
    context.learn(pool=node, uid=uid)
    was_seen = hop.root_pods.by_uid(uid) is not None
    await hop.access.authorize_session(context, node)
    if root is None or (target.uid and target.uid != uid):
        raise NotFound("pods", target.pod)
    leaf = hop.leaves.of_node(node)
    _check_container(root, target)
    try:
        leaf_pod = await leaf.pod(root)
    except APIError as error:
        raise refused(error, leaf) from None
    is_gone = was_seen and hop.root_pods.by_uid(uid) is None
    if is_gone or hop.leaves.of_node(node) is not leaf:
        # The Pod was deleted meanwhile, when there was no session yet to end.
        raise NotFound("pods", target.pod)
    return target, leaf_pod


async def to_leaf(
    hop: Hop,
    subject: Subject,
    pod: LeafPod,
    subresource: str,
    query: bytes,
    streams: Collection[Channel] | None = None,
    *,
    shares: bool = False,
) -> Location:
    """
    Return the location of a subresource of a leaf's Pod, with our current credentials.

    :param query: in the form of an API server.
    :param shares: it is a download, which may share a connection with others.
    :raises APIError: our credentials for that leaf are unusable.
    """
    leaf = pod.leaf
    way = Upstream(leaf.config, f'leaf "{leaf.name}"', hop.clock)
    if shares:
        way = replace(way, connect_seconds=hop.connect_seconds, connecting=sharing(hop.shared))
    try:
        location = await way.to(
            subject, path(pod.namespace, pod.name, subresource), query=query, streams=streams
        )
    except KubeConfigError as error:
        _log.warn("no credentials for leaf {leaf}: {why}", leaf=leaf.name, why=str(error))
        raise ServiceUnavailable(
            f'the credentials for leaf "{leaf.name}" cannot be used; the node server\'s log says why'
        ) from None
    return replace(location, whole=True, ends_here=True, refusal=lambda error: refused(error, leaf))


def refused(error: APIError, leaf: ILeaf) -> APIError:
    """Translate a leaf's refusal for the client: unchanged, unless it is about our credentials."""
    if error.code == Unauthorized.code:
        _log.warn(
            "leaf {leaf} does not accept the node server's credentials{whose}",
            leaf=leaf.name,
            whose=_whose(leaf),
        )
        return BadGateway(
            f'leaf "{leaf.name}" does not accept this node server\'s credentials: renew those that it'
            " is registered with; the node server's log says where they are from"
        )
    if error.code == Forbidden.code and _ABOUT_US.search(error.message):
        reason = one_line(error.message)
        return BadGateway(
            f'leaf "{leaf.name}" does not let this node server in: {reason}; {_RULES}'
        )
    return error


def _whose(leaf: ILeaf) -> str:
    """
    Return the origin of the credentials, for operators who have to renew them.

    Only for the log: paths on this host are none of the root's users' business.
    """
    try:
        return f" ({leaf.config().source})"
    except APIError:
        return ""


async def _root_pod(hop: Hop, target: KubeletTarget) -> Object | None:
    """Return the Pod with that UID, however new it is; otherwise the current Pod of that name."""
    for uid in dict.fromkeys((target.uid, "")):
        try:
            return await hop.root_pods.get(target.namespace, target.pod, uid)
        except NotFound:
            continue
    return None


def _check_container(root: Object, target: KubeletTarget) -> None:
    """
    :raises NotFound: the Pod has no such container, of any kind.
    """
    if not target.container:
        return
    containers = [each["name"] for kind in CONTAINER_LISTS for each in root["spec"].get(kind) or ()]
    if target.container not in containers:
        raise NotFound(
            "pods", target.pod, message=f'container not found ("{one_line(target.container)}")'
        )
