"""
The verbs over HTTP: the routes of a kind, and warnings to clients in the header ``Warning``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import Any

from twisted_exec.api import bodies, patch, strategy
from twisted_exec.api.kinds import Kind, Object
from twisted_exec.api.status import MethodNotAllowed, NotFound, one_line
from twisted_exec.apiserver.serving.bodies import delete_options, patch_type, read_body, work_of
from twisted_exec.apiserver.serving.costs import cost_of_json
from twisted_exec.apiserver.serving.encoding import list_pieces, object_json
from twisted_exec.apiserver.serving.fairness import FairQueue, Work
from twisted_exec.apiserver.serving.query import (
    LIST,
    OBJECT,
    YAML,
    ListOptions,
    Query,
    ResponseForm,
    WriteOptions,
    accepted,
    announces,
    list_options,
    patch_options,
    selectors_of,
    watch_options,
    write_options,
)
from twisted_exec.apiserver.serving.request_limits import RequestLimits
from twisted_exec.apiserver.serving.requests import APIRequest, request_of, respond_document
from twisted_exec.apiserver.serving.target import RequestTarget, attributes_of
from twisted_exec.apiserver.serving.verbs import ObjectPage, Verbs
from twisted_exec.apiserver.serving.watches.watches import Watches
from twisted_exec.auth.dispatcher import GatedRoutes
from twisted_exec.auth.gate import Gate
from twisted_exec.auth.interfaces import IVisibility, User
from twisted_exec.streaming.context import RequestContext
from twisted_exec.streaming.http.paced import respond_pieces
from twisted_exec.streaming.http.responses import respond_json
from twisted_exec.streaming.http.routes import RouteMatch
from twisted_exec.streaming.http.site import Request

_LAID_OUT_ITEMS = 500
_LAID_OUT_BYTES = 2 << 20
_LAID_OUT_VALUES = 1 << 15
"""Longer answers are neither indented nor converted to YAML."""

_Action = Callable[[RequestContext, RequestTarget], Awaitable[None]]

_WARNING_CHARACTERS = 256
_WARNINGS_CHARACTERS = 4096


def root_of(kind: Kind) -> str:
    """``/apis/GROUP/VERSION``, or ``/api/v1`` for the core group."""
    resource = kind.resource
    if resource.group:
        return f"/apis/{resource.group}/{resource.version}"
    return f"/api/{resource.version}"


class REST:
    """Serves kinds whose objects are stored."""

    def __init__(
        self,
        verbs: Verbs,
        watches: Watches,
        gate: Gate,
        limits: RequestLimits,
        now: Callable[[], float],
        queue: FairQueue,
    ) -> None:
        self._verbs, self._watches, self._gate = verbs, watches, gate
        self._limits, self._now, self._queue = limits, now, queue

    def add_to(self, routes: GatedRoutes, kind: Kind) -> None:
        """Add the routes of a kind's objects and of their status, but of no other subresources."""
        root, plural = root_of(kind), kind.resource.plural
        scope = "/namespaces/{namespace}" if kind.resource.namespaced else ""
        collection, item = f"{root}{scope}/{plural}", f"{root}{scope}/{plural}/{{name}}"
        add = partial(self._add, routes, kind)
        add("GET", collection, self._list)
        if scope:
            add("GET", f"{root}/{plural}", self._list)
        add("GET", item, self._short(self._get))
        for status in kind.status_subresources:
            add("GET", f"{item}/{status}", self._short(self._get), status)
        if kind.read_only:
            return
        add("DELETE", collection, self._delete_collection)
        add("DELETE", item, self._short(self._delete))
        if kind.server_made:
            for method, path in (("POST", collection), ("PUT", item), ("PATCH", item)):
                add(method, path, _not_by_hand)
            return
        add("POST", collection, self._short(self._create))
        for path, status in ((item, ""), *((f"{item}/{s}", s) for s in kind.status_subresources)):
            add("PUT", path, self._short(self._update), status)
            add("PATCH", path, self._short(self._patch), status)

    def _short(self, action: _Action) -> _Action:
        async def counted(context: RequestContext, target: RequestTarget) -> None:
            with self._limits.short(context.user):
                await action(context, target)

        return counted

    def _add(
        self,
        routes: GatedRoutes,
        kind: Kind,
        method: str,
        pattern: str,
        action: _Action,
        subresource: str = "",
    ) -> None:
        def target(match: RouteMatch[Any]) -> RequestTarget:
            values = match.values
            return RequestTarget(
                kind, values.get("namespace", ""), values.get("name", ""), subresource
            )

        async def handle(context: RequestContext) -> None:
            await action(context, context.target)

        routes.add([method], pattern, handle, target=target)

    async def _list(self, context: RequestContext, target: RequestTarget) -> None:
        request = request_of(context)
        query, user = request.query, context.user
        if query.flag("watch"):
            await self._watch(context, target, query)
            return
        chosen = list_options(query)
        with self._limits.short(user):
            visibility = await self._visibility(user, "list", target, chosen)
            form = _form(request, query, (LIST,))
            page = await self._verbs.through(visibility).list(target, chosen, user.name)
        # Not counted as a short request: a slow reader must not block others.
        await self._respond_list(context, target.kind, page, form)

    async def _watch(self, context: RequestContext, target: RequestTarget, query: Query) -> None:
        request = request_of(context)
        if request.method == b"HEAD":
            # A client takes the head for the whole response, and would reuse a busy connection.
            raise MethodNotAllowed("HEAD is not allowed here: a watch has no end")
        user, chosen = context.user, selectors_of(query)
        with self._limits.short(user):
            visibility = await self._visibility(user, "watch", target, chosen)
        form = _form(request, query, (OBJECT, LIST), tables=not announces(query), yaml=False)
        options = watch_options(query, form)
        with self._limits.long(user, chosen.terms):
            await self._watches.run(request, user, target, options, visibility)

    async def _visibility(
        self, user: User, verb: str, target: RequestTarget, chosen: ListOptions
    ) -> IVisibility | None:
        # A selector for one name asks for no more than that object, and needs no other right.
        name = chosen.fields.required("metadata.name") or ""
        named = RequestTarget(target.kind, target.namespace, name)
        attributes = attributes_of(user, verb, named, chosen.fields)
        return await self._gate.authorize_visible(attributes)

    async def _authorized(self, user: User, verb: str, target: RequestTarget) -> Verbs:
        visibility = await self._gate.authorize_visible(attributes_of(user, verb, target))
        return self._verbs.through(visibility)

    async def _get(self, context: RequestContext, target: RequestTarget) -> None:
        request = request_of(context)
        verbs = await self._authorized(context.user, "get", target)
        query = request.query
        form, at_least = _form(request, query), query.version()
        obj = await verbs.get(target, at_least)
        await self._respond(context, 200, target.kind, obj, form)

    async def _create(self, context: RequestContext, target: RequestTarget) -> None:
        request = request_of(context)
        verbs = await self._authorized(context.user, "create", target)
        query = request.query
        options = write_options(query, "CreateOptions", agent=_agent(request))
        form, work = _form(request, query), work_of(context, self._queue)
        with advised(request, options):
            obj = await read_body(request, target.kind, options, work, bodies.OBJECT)
            obj = await verbs.create(context.user, target, obj, options, work)
        await self._respond(context, 201, target.kind, obj, form, options)

    async def _update(self, context: RequestContext, target: RequestTarget) -> None:
        request = request_of(context)
        verbs = await self._authorized(context.user, "update", target)
        query = request.query
        options = write_options(query, "UpdateOptions", agent=_agent(request))
        form, work = _form(request, query), work_of(context, self._queue)
        with advised(request, options):
            obj = await read_body(request, target.kind, options, work, bodies.OBJECT)
            obj = await verbs.update(context.user, target, obj, options, work)
        await self._respond(context, 200, target.kind, obj, form, options)

    async def _patch(self, context: RequestContext, target: RequestTarget) -> None:
        request = request_of(context)
        verbs = await self._authorized(context.user, "patch", target)
        query, media_type = request.query, patch_type(request)
        applying = media_type == patch.APPLY
        options = patch_options(query, agent=_agent(request), applying=applying)
        form, work = _form(request, query), work_of(context, self._queue)
        with advised(request, options):
            if applying:
                obj, created = await self._apply(context, verbs, target, query, options, work)
            else:
                schema = strategy.full_schema(target.kind)
                raw, duplicates = request.content.getvalue(), options.duplicates
                make = await work.run(patch.reader, media_type, raw, duplicates, schema)
                obj = await verbs.patch(context.user, target, make, options, work)
                created = False
        code = 201 if created else 200
        await self._respond(context, code, target.kind, obj, form, options)

    async def _apply(
        self,
        context: RequestContext,
        verbs: Verbs,
        target: RequestTarget,
        query: Query,
        options: WriteOptions,
        work: Work,
    ) -> tuple[Object, bool]:
        """
        Server-side apply.

        An existing object that is deleted meanwhile is not created again: the user was not
        authorized to create it.
        """
        content = context.request.content.getvalue()
        config = await work.run(patch.configuration, content, options.duplicates)
        try:
            await verbs.get(target)
            may_create = False
        except NotFound:
            await self._authorized(context.user, "create", target)
            may_create = True
        return await verbs.apply(
            context.user,
            target,
            config,
            options,
            force=query.flag("force"),
            may_create=may_create,
            work=work,
        )

    async def _delete(self, context: RequestContext, target: RequestTarget) -> None:
        request = request_of(context)
        verbs = await self._authorized(context.user, "delete", target)
        submitted = await delete_options(request, work_of(context, self._queue))
        options = write_options(request.query, "DeleteOptions", submitted)
        with advised(request, options):
            obj, deleted = await verbs.delete(
                context.user, target, options, submitted.get("preconditions") or {}
            )
        request.changed = obj
        if deleted:
            respond_json(request, 200, _deleted(target.kind, obj))
        else:
            respond_json(request, 200, obj)

    async def _delete_collection(self, context: RequestContext, target: RequestTarget) -> None:
        request = request_of(context)
        user, query = context.user, request.query
        with self._limits.short(user):
            chosen = list_options(query)
            attributes = attributes_of(user, "deletecollection", target, chosen.fields)
            verbs = self._verbs.through(await self._gate.authorize_visible(attributes))
            submitted = await delete_options(request, work_of(context, self._queue))
            options = write_options(query, "DeleteOptions", submitted)
            with advised(request, options):
                page = await verbs.delete_collection(user, target, chosen, options)
        await self._respond_list(context, target.kind, page, ResponseForm())

    async def _respond_list(
        self, context: RequestContext, kind: Kind, page: ObjectPage, form: ResponseForm
    ) -> None:
        metadata: Object = {"resourceVersion": str(page.version)}
        if page.next:
            metadata["continue"] = page.next
        if page.remaining is not None:
            metadata["remainingItemCount"] = page.remaining
        request = request_of(context)
        pieces = list_pieces(kind, page.items, metadata, form, self._now())
        if request.layout is not None and len(page.items) <= _LAID_OUT_ITEMS:
            start, size = [], 0
            for piece in pieces:
                start.append(piece)
                size += len(piece)
                if size > _LAID_OUT_BYTES:
                    break
            else:
                await self._respond_json(context, 200, b"".join(start))
                return
            pieces = chain(start, pieces)
        content_type = YAML if request.is_yaml else "application/json"
        await respond_pieces(request, 200, pieces, content_type, gzip=request.accepts_gzip)

    async def _respond_json(self, context: RequestContext, code: int, encoded: bytes) -> None:
        request = request_of(context)
        layout = request.layout
        if layout is not None and bodies.most_values(encoded) <= _LAID_OUT_VALUES:
            work = Work(self._queue, context.user, cost_of_json(encoded))
            encoded = await work.run(layout, encoded)
            request.is_laid_out = True
        await respond_document(request, code, encoded, "application/json")

    async def _respond(
        self,
        context: RequestContext,
        code: int,
        kind: Kind,
        obj: Object,
        form: ResponseForm,
        options: WriteOptions | None = None,
    ) -> None:
        if options is not None:
            request_of(context).changed = obj
        for warning in warning_headers(options.warnings) if options is not None else ():
            context.request.responseHeaders.addRawHeader(b"Warning", warning)
        await self._respond_json(context, code, object_json(kind, obj, form, self._now()) + b"\n")


async def _not_by_hand(context: RequestContext, target: RequestTarget) -> None:
    request = context.request
    request.setHeader(b"Allow", b"DELETE, GET")
    method = request.method.decode("ascii", "replace")
    raise MethodNotAllowed(f"{method} is not allowed here: {target.kind.server_made}")


def _form(
    request: APIRequest,
    query: Query,
    partial: Sequence[str] = (OBJECT,),
    *,
    tables: bool = True,
    yaml: bool = True,
) -> ResponseForm:
    include = query.text("includeObject")
    form = accepted(request.accept, include, tables=tables, partial=partial, yaml=yaml)
    request.is_yaml = form.is_yaml
    return form


def _agent(request: Request) -> str:
    return request.requestHeaders.getRawHeaders(b"user-agent", [b""])[0].decode("utf-8", "replace")


def _deleted(kind: Kind, obj: Object) -> Object:
    resource, metadata = kind.resource, obj["metadata"]
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {
            "name": metadata["name"],
            "group": resource.group,
            "kind": resource.plural,
            "uid": metadata["uid"],
        },
    }


@contextmanager
def advised(request: Request, options: WriteOptions) -> Iterator[None]:
    """Send admission's advice with the response, whether the write succeeds or not."""
    try:
        yield
    finally:
        for warning in warning_headers(dict.fromkeys(options.advice)):
            request.responseHeaders.addRawHeader(b"Warning", warning)


def warning_headers(warnings: Iterable[str]) -> Iterator[bytes]:
    """Format warnings for the ``Warning`` header, as far as there is room."""
    room = _WARNINGS_CHARACTERS
    for warning in warnings:
        text = one_line(warning)
        if len(text) > _WARNING_CHARACTERS:
            text = f"{text[: _WARNING_CHARACTERS - 3]}..."
        room -= len(text)
        if room < 0:
            return
        escaped = text.replace("\\", "\\\\").replace('"', '\\"')
        yield b'299 - "%s"' % escaped.encode("ascii", "replace")
