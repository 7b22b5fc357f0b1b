"""Logs of Pods, from their leaves."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote_plus

from zope.interface import implementer

from twisted_exec.api.fields import forbidden
from twisted_exec.api.logs import Args, LogOptions, check, decode, follows
from twisted_exec.api.status import Invalid
from twisted_exec.nodeserver.kubelet_api.routes import (
    KubeletCollaborators,
    Route,
    find,
    of_pod,
    to_leaf,
)
from twisted_exec.nodeserver.kubelet_api.streams import ALL_STREAMS, ANSWER_SECONDS, STREAMS
from twisted_exec.program.tasks import as_deferred
from twisted_exec.streaming.context import RequestContext
from twisted_exec.streaming.location import IStreamAdmission, Location
from twisted_exec.streaming.text.relay import Relay


def options_of(args: Args, pod: str) -> LogOptions:
    """
    Return the log options of a request to a kubelet.

    :param args: as ``request.args``; ``tail`` is an older name of ``tailLines``.
    :raises BadRequest: a value cannot be parsed.
    :raises Invalid: a value is not supported, or two of them contradict each other.
    """
    renamed = dict(args)
    tail = renamed.get(b"tail", [b""])[0]
    if tail == b"all":
        renamed.pop(b"tailLines", None)
    elif tail:
        renamed[b"tailLines"] = [tail]
    options = decode(renamed)
    check(options, pod, STREAMS)
    if options.since_seconds is not None and b"sinceTime" in renamed:  # even an empty one
        problem = "at most one of `sinceTime` or `sinceSeconds` may be specified"
        raise Invalid("PodLogOptions", pod, [forbidden("[]", problem)], group="")
    # A leaf returns both streams by default; an older one refuses the parameter.
    return replace(options, stream=None) if options.stream == ALL_STREAMS else options


@implementer(IStreamAdmission)
@dataclass(frozen=True)
class PodLogAdmission:
    """
    Admits users to the log of a Pod's container in its leaf.

    The options are parsed and rebuilt, without those that a client must not set (such as skipping
    TLS verification).

    Sources: ``getContainerLogs`` of ``pkg/kubelet/server/server.go``, ``ValidatePodLogOptions`` of
    ``pkg/apis/core/validation`` and ``GenericHttpResponseChecker`` of ``k8s.io/apiserver``.
    """

    collaborators: KubeletCollaborators

    @as_deferred
    async def admit(self, context: RequestContext) -> Location:
        target, pod = await find(self.collaborators, context)
        options = options_of(context.request.args, target.pod).query()
        query = b"container=" + quote_plus(target.container).encode("ascii")
        query += b"&" + options if options else b""
        return await to_leaf(self.collaborators, pod, "log", query)


def log_routes(collaborators: KubeletCollaborators) -> list[Route]:
    """Return the routes of ``/containerLogs``."""
    about: dict[str, Any] = {
        "sessions": collaborators.sessions,
        "clock": collaborators.clock,
        "connect_seconds": collaborators.connect_seconds,
        "tells_loss": True,
    }
    admission = PodLogAdmission(collaborators)
    reading = Relay(admission, **about, answer_seconds=ANSWER_SECONDS)
    following = Relay(admission, **about, answer_seconds=None, keeps_connections=False)

    async def answer(context: RequestContext) -> None:
        relay = following if follows(context.request.args) else reading
        await relay.handle(context)

    return list(of_pod("containerLogs", answer, ("GET",), "log", plain=True))
