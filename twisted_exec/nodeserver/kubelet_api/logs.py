"""
``/containerLogs``: the log of a container, as a kubelet returns it.

The request goes to ``pods/log`` of the leaf's API server, with the same options in its form, and
the answer is relayed as it arrives (:mod:`twisted_exec.streaming.text.relay`).  The options are
parsed and rebuilt: an absent option stays absent, 0 stays 0, and unknown ones are dropped, as are
those that a client must not set (such as skipping TLS verification).

Errors are plain text, never JSON: a root's API server copies the body of a refusal into a message
of its own.

Followed logs share HTTP/2 connections to the leaf: a thousand silent logs cost little more than
their readers' connections.

A kubelet answers a follow request only when there is output, and so does a leaf: the response
header of a silent log has no timeout.

Sources: ``getContainerLogs`` of ``pkg/kubelet/server/server.go``, ``ValidatePodLogOptions`` of
``pkg/apis/core/validation`` and ``GenericHttpResponseChecker`` of ``k8s.io/apiserver``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote_plus

from zope.interface import implementer

from twisted_exec.api.fields import forbidden
from twisted_exec.api.logs import Args, LogOptions, check, decode, follows
from twisted_exec.api.status import Invalid
from twisted_exec.nodeserver.kubelet_api.hop import Hop
from twisted_exec.nodeserver.kubelet_api.routes import Route, of_pod
from twisted_exec.nodeserver.kubelet_api.upstream import find, to_leaf
from twisted_exec.program.tasks import as_deferred
from twisted_exec.streaming.context import RequestContext
from twisted_exec.streaming.interfaces import IStreamLocator, Location
from twisted_exec.streaming.text.relay import Relay

ALL_STREAMS = "All"
STREAMS = (ALL_STREAMS, "Stdout", "Stderr")

ANSWER_SECONDS = 30.0
"""Timeout for a log that is not followed: a leaf's API server asks its kubelet, which opens files."""


def options_of(args: Args, pod: str) -> LogOptions:
    """
    Return the log options of a request to a kubelet.

    :param args: as ``request.args``; ``tail`` is an older name of ``tailLines``, and ``tail=all``
        sets none.
    :param pod: its name, for messages.
    :raises BadRequest: a value cannot be parsed.
    :raises Invalid: the values contradict each other.
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


@implementer(IStreamLocator)
@dataclass(frozen=True)
class LogLocator:
    """
    Finds the log of a Pod's container in its leaf.

    :param shares: use a connection that others share.
    """

    hop: Hop
    shares: bool = False

    @as_deferred
    async def locate(self, context: RequestContext) -> Location:
        """See :meth:`IStreamLocator.locate`."""
        target, pod = await find(self.hop, context)
        options = options_of(context.request.args, target.pod).query()
        query = b"container=" + quote_plus(target.container).encode("ascii")
        query += b"&" + options if options else b""
        return await to_leaf(self.hop, context.subject, pod, "log", query, shares=self.shares)


def log_routes(hop: Hop) -> list[Route]:
    """Return the routes of ``/containerLogs``, with and without the Pod's UID."""
    about: dict[str, Any] = {
        "sessions": hop.sessions,
        "clock": hop.clock,
        "connect_seconds": hop.connect_seconds,
        "tells_loss": True,
    }
    reading = Relay(LogLocator(hop), **about, answer_seconds=ANSWER_SECONDS)
    following = Relay(
        LogLocator(hop, shares=True), **about, answer_seconds=None, keeps_connections=False
    )

    async def answer(context: RequestContext) -> None:
        relay = following if follows(context.request.args) else reading
        await relay.handle(context)

    return list(of_pod("containerLogs", answer, ("GET",), "log", plain=True))
