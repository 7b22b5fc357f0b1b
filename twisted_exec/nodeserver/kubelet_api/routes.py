"""
The paths of a kubelet, and in which order a request is looked at.

Who asks comes first, for every path and every method, known or not, upgrade or not: whoever shows no
credentials learns nothing else.  Then comes the route; all else (which Pod, may they, is it there)
is the route's own, for it alone knows what is asked about.

A root's API server makes a message for its user of what it gets: of the body of a stream's refusal
it reads a ``Status``, of anything else's it takes the text.  So streams are refused in JSON,
and whatever is read in plain text, as by a kubelet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from prometheus_client import CollectorRegistry

from twisted_exec.api.status import APIError, Unauthorized
from twisted_exec.nodeserver.kubelet_api.hop import Hop
from twisted_exec.observe.metrics import CONTENT_TYPE, metrics_text
from twisted_exec.streaming.http.routes import Handler, Routes
from twisted_exec.streaming.http.site import (
    Dispatcher,
    Request,
    respond,
    respond_status,
    respond_text,
)

RESOURCE = "pods"
NOUN = "pod"

_SESSIONS = frozenset({b"exec", b"attach", b"portForward", b"run", b"containerLogs"})


@dataclass(frozen=True)
class Route:
    """
    One path of a kubelet.

    :param methods: upper case; the others get 405.
    :param pattern: as in :meth:`Routes.add`.  ``{namespace}`` and ``{pod}`` become the subject's.
    :param handler: answers a request whose user is known, but not what they may.
    :param subresource: of the Pod, for the subject; empty for what is about no Pod.
    :param plain: it is refused in plain text, not with a ``Status``.
    """

    methods: Sequence[str]
    pattern: str
    handler: Handler
    subresource: str = ""
    plain: bool = True


def of_pod(
    word: str,
    handler: Handler,
    methods: Sequence[str],
    subresource: str,
    *,
    container: bool = True,
    plain: bool = False,
) -> Iterable[Route]:
    """
    The two forms of a path about a Pod: ``/WORD/NAMESPACE/POD[/UID][/CONTAINER]``.

    :param container: the path ends with one (all but ``portForward`` do).
    """
    last = "/{container}" if container else ""
    for uid in ("", "/{uid}"):
        pattern = f"/{word}/{{namespace}}/{{pod}}{uid}{last}"
        yield Route(methods, pattern, handler, subresource, plain)


class NodeRoutes(Dispatcher):
    """
    The resource of a node server.

    :param routes: of those who answer; the paths that are about the server itself are here.
    """

    def __init__(self, hop: Hop, registry: CollectorRegistry, routes: Iterable[Route]) -> None:
        super().__init__()
        self._hop, self._registry = hop, registry
        self._routes = Routes()
        for route in (
            *routes,
            Route(["GET"], "/healthz", self._healthz),
            Route(["GET"], "/metrics", self._metrics),
        ):
            self._add(route)

    def _add(self, route: Route) -> None:
        async def answer(request: Request, names: Mapping[str, str]) -> None:
            await self._answered(route, request, names)

        self._routes.add(route.methods, route.pattern, answer)

    async def dispatch(self, request: Request) -> None:
        """See :meth:`Dispatcher.dispatch`."""
        try:
            await self._admitted(request)
        except Unauthorized as error:
            _refuse(request, error)
            self._record(request, error)
        except APIError as error:
            _refuse(request, error)

    async def _admitted(self, request: Request) -> None:
        user = await self._hop.gate.who(request)
        request.subject = replace(request.subject, user=user.name)
        handler, names = self._routes.match(request.method, _path(request), request)
        await handler(request, names)

    async def _answered(self, route: Route, request: Request, names: Mapping[str, str]) -> None:
        if route.subresource:
            request.subject = replace(
                request.subject,
                namespace=names["namespace"],
                machine=names["pod"],
                resource=RESOURCE,
                noun=NOUN,
                subresource=route.subresource,
            )
        try:
            await route.handler(request, names)
        except APIError as error:
            if route.plain or isinstance(error, Unauthorized):
                raise
            respond_status(request, error)

    def _record(self, request: Request, error: APIError) -> None:
        """Who was not even known is on record where a session was asked for."""
        word, *_ = request.path[1:].split(b"/")
        if word in _SESSIONS and not request.subject.resource:
            subresource = "log" if word == b"containerLogs" else word.decode("ascii").lower()
            subject = replace(
                request.subject, resource=RESOURCE, noun=NOUN, subresource=subresource
            )
            self._hop.sessions.refused(subject, error.code, error.message)

    async def _healthz(self, request: Request, names: Mapping[str, str]) -> None:
        await self._hop.admit(request)
        respond_text(request, 200, "ok")

    async def _metrics(self, request: Request, names: Mapping[str, str]) -> None:
        await self._hop.admit(request)
        respond(request, 200, metrics_text(self._registry), CONTENT_TYPE)


def _path(request: Request) -> bytes:
    """Without a last slash: ``/runningpods/`` is what a kubelet calls one of its paths."""
    path = request.path
    return path[:-1] if len(path) > 1 and path.endswith(b"/") else path


def _refuse(request: Request, error: APIError) -> None:
    """
    Refuse in plain text.

    When the answer has already begun, only closing tells the client.
    """
    if request.gone or request.finished:
        return
    if request.startedWriting:
        request.channel.transport.abortConnection()
        return
    if error.retry_after_seconds is not None:
        request.setHeader(b"Retry-After", b"%d" % error.retry_after_seconds)
    respond_text(request, error.code, error.message)
