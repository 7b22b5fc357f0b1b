"""
``/containerLogs``: what a container of a Pod printed, as a kubelet tells it.

The leaf's API server is asked for ``pods/log`` of the Pod there, with the same options in its own
words, and what it answers passes as it comes (:mod:`twisted_exec.streaming.text.relay`).  The options are read
and written anew: what was not told is not told on, 0 is 0 and not nothing, and whatever a kubelet does not
know (or must not: who is verified is no business of whoever asks) stays here.

Nobody is told an error as JSON: a root's API server puts the body of a refusal, as it is, into a
message of its own.

Those that are followed share connections to the leaf, where it speaks HTTP/2: a thousand that
have nothing to say hold little more than what their readers' connections do.

A kubelet answers a follow only when there is something to tell, and so does a leaf: the head of a
silent container's log is waited for as long as it takes.

Sources: ``getContainerLogs`` of ``pkg/kubelet/server/server.go``, ``ValidatePodLogOptions`` of
``pkg/apis/core/validation`` and ``GenericHttpResponseChecker`` of ``k8s.io/apiserver``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast
from urllib.parse import quote_plus

from twisted.internet.defer import Deferred
from twisted.web.iweb import IRequest
from zope.interface import implementer

from twisted_exec.api.fields import forbidden
from twisted_exec.api.logs import Args, LogOptions, check, decode, follows
from twisted_exec.api.status import Invalid
from twisted_exec.nodeserver.kubelet_api.hop import Hop
from twisted_exec.nodeserver.kubelet_api.routes import Route, of_pod
from twisted_exec.nodeserver.kubelet_api.upstream import find, to_leaf
from twisted_exec.streaming.http.site import Request
from twisted_exec.streaming.interfaces import IStreamLocator, Location
from twisted_exec.streaming.text.relay import Relay

ALL_STREAMS = "All"
STREAMS = (ALL_STREAMS, "Stdout", "Stderr")

ANSWER_SECONDS = 30.0
"""Of a log that is not followed: a leaf's API server asks its kubelet, which looks for files."""


def options_of(args: Args, pod: str) -> LogOptions:
    """
    What is asked for, in a kubelet's words.

    :param args: as ``request.args``; ``tail`` is an older name of ``tailLines``, and ``tail=all`` is none.
    :param pod: its name, for messages.
    :raises BadRequest: a value cannot be read.
    :raises Invalid: the values make no sense.
    """
    renamed = dict(args)
    tail = renamed.get(b"tail", [b""])[0]
    if tail == b"all":
        renamed.pop(b"tailLines", None)
    elif tail:
        renamed[b"tailLines"] = [tail]
    options = decode(renamed)
    check(options, pod, STREAMS)
    if options.since_seconds is not None and b"sinceTime" in renamed:  # also one that is empty
        problem = "at most one of `sinceTime` or `sinceSeconds` may be specified"
        raise Invalid("PodLogOptions", pod, [forbidden("[]", problem)], group="")
    # Both is what a leaf gives by itself; one that knows no streams would refuse the word.
    return replace(options, stream=None) if options.stream == ALL_STREAMS else options


@implementer(IStreamLocator)
@dataclass(frozen=True)
class LogLocator:
    """
    Finds the log of a Pod's container in its leaf.

    :param shares: over a connection that others use as well.
    """

    hop: Hop
    shares: bool = False

    def locate(self, request: IRequest) -> Deferred[Location]:
        """See :meth:`IStreamLocator.locate`."""
        return Deferred.fromCoroutine(self._locate(cast(Request, request)))

    async def _locate(self, request: Request) -> Location:
        target, pod = await find(self.hop, request)
        options = options_of(request.args, target.pod).query()
        query = b"container=" + quote_plus(target.container).encode("ascii")
        query += b"&" + options if options else b""
        return await to_leaf(self.hop, request.subject, pod, "log", query, shares=self.shares)


def log_routes(hop: Hop) -> list[Route]:
    """``/containerLogs``, with and without the Pod's UID."""
    about: dict[str, Any] = {"sessions": hop.sessions, "clock": hop.clock, "tells_loss": True}
    reading = Relay(LogLocator(hop), **about, answer_seconds=ANSWER_SECONDS)
    following = Relay(
        LogLocator(hop, shares=True), **about, answer_seconds=None, keeps_connections=False
    )

    async def answer(request: Request, names: Mapping[str, str]) -> None:
        relay = following if follows(request.args) else reading
        await relay.handle(request)

    return list(of_pod("containerLogs", answer, ("GET",), "log", plain=True))
