"""
Documents about the server itself: discovery, versions, OpenAPI and metrics.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial

from twisted.web import http

from twisted_exec.api.kinds import Object
from twisted_exec.api.status import NotAcceptable
from twisted_exec.apiserver.serving import discovery
from twisted_exec.apiserver.serving.openapi import protobuf
from twisted_exec.apiserver.serving.openapi.documents import OpenAPI, hash_of, path_of
from twisted_exec.apiserver.serving.probes import Probes
from twisted_exec.apiserver.serving.query import JSON_TYPES, YAML, media_ranges
from twisted_exec.apiserver.serving.registry import KindRegistry
from twisted_exec.apiserver.serving.requests import APIRequest, request_of, respond_document
from twisted_exec.auth.dispatcher import GatedRoutes
from twisted_exec.auth.gate import Gate
from twisted_exec.auth.rules import Attributes
from twisted_exec.program.metrics import CONTENT_TYPE, MetricsRegistry
from twisted_exec.streaming.context import RequestContext
from twisted_exec.streaming.http.responses import respond, respond_json
from twisted_exec.streaming.http.routes import not_found

_AGGREGATED = "application/json;g={group};v={version};as=APIGroupDiscoveryList"


class Documents:
    """Documents about the server itself."""

    def __init__(
        self, registry: KindRegistry, gate: Gate, metrics: MetricsRegistry, probes: Probes
    ) -> None:
        self._registry, self._gate, self._metrics = registry, gate, metrics
        self._probes = probes
        self._openapi = OpenAPI(registry)

    def add_to(self, routes: GatedRoutes) -> None:
        """Add the routes."""
        self._add(routes, "/", self._paths)
        self._add_both(routes, "/version", discovery.version_info)
        if self._registry.of("", "v1"):
            self._add_discovery(routes, "/api", discovery.core_versions, core=True)
        self._add_discovery(
            routes, "/apis", lambda: discovery.group_list(self._registry), core=False
        )
        for group, versions in self._registry.groups.items():
            if group:
                self._add_both(routes, f"/apis/{group}", partial(self._group, group))
            for version in versions:
                root = f"/apis/{group}/{version}" if group else f"/api/{version}"
                self._add_both(
                    routes,
                    root,
                    partial(discovery.resource_list, self._registry, group, version),
                )
        self._add(routes, "/openapi/v3", self._openapi.index)
        routes.add(["GET"], "/openapi/v3/apis/{group}/{version}", self._openapi_v3)
        routes.add(["GET"], "/openapi/v3/api/{version}", self._openapi_v3)
        routes.add(["GET"], "/openapi/v2", self._openapi_v2)
        routes.add(["GET"], "/metrics", self._figures)

    def _add(self, routes: GatedRoutes, path: str, document: Callable[[], Object]) -> None:
        async def handle(context: RequestContext) -> None:
            await self._allow(context)
            respond_json(context.request, 200, document())

        routes.add(["GET"], path, handle)

    def _add_both(self, routes: GatedRoutes, path: str, document: Callable[[], Object]) -> None:
        for each in (path, f"{path}/"):
            self._add(routes, each, document)

    def _add_discovery(
        self, routes: GatedRoutes, path: str, document: Callable[[], Object], *, core: bool
    ) -> None:
        async def handle(context: RequestContext) -> None:
            await self._allow(context)
            request = request_of(context)
            version = _aggregated_version(request)
            request.setHeader(b"Vary", b"Accept")
            if not version:
                respond_json(request, 200, document())
                return
            discovered = discovery.aggregated(self._registry, core=core, api_version=version)
            form = _AGGREGATED.format(group=discovery.AGGREGATED, version=version)
            await _respond_tagged(
                request, json.dumps(discovered, separators=(",", ":")).encode(), form
            )

        for each in (path, f"{path}/"):
            routes.add(["GET"], each, handle)

    def _paths(self) -> Object:
        registry = self._registry
        paths = ["/apis", "/metrics", "/openapi/v2", "/openapi/v3", "/version"]
        paths += ["/api"] if registry.of("", "v1") else []
        for name, versions in registry.groups.items():
            paths += [f"/apis/{name}"] if name else []
            for version in versions:
                path = path_of(name, version)
                paths += [f"/{path}", f"/openapi/v3/{path}"]
        return {"paths": sorted([*paths, *self._probes.paths])}

    def _group(self, name: str) -> Object:
        return {"kind": "APIGroup", "apiVersion": "v1", **discovery.group(self._registry, name)}

    async def _openapi_v3(self, context: RequestContext) -> None:
        await self._allow(context)
        request = request_of(context)
        path = request.path.decode("ascii", "replace").removeprefix("/openapi/v3/")
        document = self._openapi.of(path)
        if document is None:
            raise not_found()
        if (request.args or {}).get(b"hash") == [hash_of(document).encode()]:
            # The URL contains a hash of the content: clients may cache it on disk, as kubectl does.
            request.setHeader(b"Cache-Control", b"public, immutable, max-age=31536000")
        await _respond_tagged(request, document, "application/json")

    async def _openapi_v2(self, context: RequestContext) -> None:
        await self._allow(context)
        request = request_of(context)
        request.setHeader(b"Vary", b"Accept")
        for media, _ in media_ranges(request.accept):
            if media in JSON_TYPES:
                await _respond_tagged(request, self._openapi.v2, "application/json")
                return
            if media in (protobuf.CONTENT_TYPE, protobuf.REQUESTED):
                content_type = protobuf.CONTENT_TYPE
                await _respond_tagged(request, self._openapi.v2_binary, content_type)
                return
        raise NotAcceptable(
            f"only the following media types are accepted: application/json, {protobuf.CONTENT_TYPE}"
        )

    async def _figures(self, context: RequestContext) -> None:
        await self._allow(context)
        request = request_of(context)
        respond(request, 200, await self._metrics.scrape(), CONTENT_TYPE)

    async def _allow(self, context: RequestContext) -> None:
        # As the routes read it, not as it was encoded.
        path = "/" + "/".join(context.segments)
        await self._gate.authorize(Attributes(context.user, "get", path=path))


async def _respond_tagged(request: APIRequest, body: bytes, content_type: str) -> None:
    if request.setETag(b'"%s"' % hash_of(body).encode()) is http.CACHED:
        request.finish()
    else:
        await respond_document(request, 200, body, content_type)


def _aggregated_version(request: APIRequest) -> str:
    for media, parameters in media_ranges(request.accept):
        if media == YAML:
            return ""
        if media in JSON_TYPES:
            if "as" not in parameters:
                return ""
            version = parameters.get("v", "")
            if parameters.get("g") == discovery.AGGREGATED and version in ("v2", "v2beta1"):
                return version
    raise NotAcceptable(f"only the following media types are accepted: application/json, {YAML}")
