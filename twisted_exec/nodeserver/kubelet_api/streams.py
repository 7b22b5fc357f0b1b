"""
``/exec``, ``/attach`` and ``/portForward``: routed to the Pod in its leaf.

The bytes are spliced, unless the leaf lacks the client's protocol or the session is recorded
(:mod:`twisted_exec.streaming.remotecommand.translate`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from urllib.parse import parse_qs, quote

from zope.interface import implementer

from twisted_exec.api.declared_reasons import reason_of_command
from twisted_exec.api.status import BadRequest, Forbidden
from twisted_exec.nodeserver.kubelet_api.query import (
    attach_query,
    exec_query,
    forward_query,
    run_query,
)
from twisted_exec.nodeserver.kubelet_api.routes import (
    HOP,
    KubeletCollaborators,
    KubeletTarget,
    Route,
    find,
    of_pod,
    to_leaf,
)
from twisted_exec.program.tasks import as_deferred
from twisted_exec.streaming.context import RequestContext
from twisted_exec.streaming.http.site import Request
from twisted_exec.streaming.http.upgrade_server import requested_protocol
from twisted_exec.streaming.location import IStreamAdmission, Location
from twisted_exec.streaming.proxied import ProxySettings
from twisted_exec.streaming.proxy import Proxy
from twisted_exec.streaming.remotecommand.carriers import require_upgrade
from twisted_exec.streaming.remotecommand.translate import requested_channels
from twisted_exec.streaming.remotecommand.tunnel import tunnelled
from twisted_exec.wire.stream_options import StreamOptions
from twisted_exec.wire.upgrade import WEBSOCKET

ANSWER_SECONDS = 30.0
"""Timeout: a leaf's API server asks its kubelet, and that its runtime, before it answers."""

LEAVE_SECONDS = 1.0
"""How long a leaf may take to close its side after the root's client has left."""

ALL_STREAMS = "All"
STREAMS = (ALL_STREAMS, "Stdout", "Stderr")


@implementer(IStreamAdmission)
@dataclass(frozen=True)
class PodAdmission:
    """Admits users to a stream of a Pod in its leaf."""

    collaborators: KubeletCollaborators

    @as_deferred
    async def admit(self, context: RequestContext) -> Location:
        is_sent = bool(context.subject.reason)
        if not is_sent:
            context.learn(reason=reason_of_command(_command(context.request)))
        target, pod = await find(self.collaborators, context)
        self.collaborators.check_reason(context)
        query, subject = _query(context.request, target), context.subject
        if is_sent:  # a reason in the command reaches the leaf with the command
            query = query + b"&reason=" + quote(subject.reason, safe="").encode("ascii")
        if target.what == "portForward":
            return await to_leaf(self.collaborators, pod, subject.subresource, query)
        options = StreamOptions.of(parse_qs(query))
        location = await to_leaf(
            self.collaborators, pod, subject.subresource, query, requested_channels(options)
        )
        if self.collaborators.recordings is None:
            return location
        command = _command(context.request)
        recorder = self.collaborators.recordings.recorder(
            subject, pod.root, target.container, command, has_terminal=options.tty
        )
        if recorder is None:
            return location
        context.learn(recording=recorder.name)
        return replace(location, recorder=recorder)  # texts, and sessions without one, have none


def _query(request: Request, target: KubeletTarget) -> bytes:
    upgrade = require_upgrade(request)
    raw = request.uri.partition(b"?")[2]
    if target.what == "exec":
        return exec_query(raw, target.container)
    if target.what == "attach":
        return attach_query(raw, target.container)
    needs_ports = upgrade == WEBSOCKET and not tunnelled(request)
    return forward_query(raw, needs_ports=needs_ports)


def _command(request: Request) -> list[str]:
    words = (request.args or {}).get(b"command", [])
    return [word.decode("utf-8", "replace") for word in words]


def stream_routes(collaborators: KubeletCollaborators) -> list[Route]:
    """Return the kubelet's routes that open a stream, except ``/run``."""
    proxy = Proxy(
        PodAdmission(collaborators),
        ProxySettings(
            HOP,
            connect_seconds=collaborators.connect_seconds,
            answer_seconds=ANSWER_SECONDS,
            leave_seconds=LEAVE_SECONDS,
            credential_headers=collaborators.access.gate.credential_headers.current,
        ),
        sessions=collaborators.sessions,
        clock=collaborators.clock,
    )
    answer, methods = proxy.handle, ("GET", "POST")
    return [
        *of_pod("exec", answer, methods, "exec"),
        *of_pod("attach", answer, methods, "attach"),
        *of_pod("portForward", answer, methods, "portforward", container=False),
    ]


async def admit_run(collaborators: KubeletCollaborators, context: RequestContext) -> Location:
    target, pod = await find(collaborators, context)
    collaborators.check_reason(context)
    if collaborators.recordings is not None and collaborators.recordings.selects(pod.root):
        raise Forbidden(f'sessions in pod "{target.pod}" are recorded, and run is not: use exec')
    request = context.request
    if requested_protocol(request):
        raise BadRequest("what is run has no stream; ask for exec")
    query = run_query(request.uri.partition(b"?")[2], target.container)
    return await to_leaf(collaborators, pod, "exec", query)
