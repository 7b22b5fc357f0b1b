"""A client of one API server: the Kubernetes verbs over HTTP."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar
from urllib.parse import urlencode

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IStreamClientEndpoint
from zope.interface import implementer

from twisted_exec.api.resource import Resource
from twisted_exec.api.status import APIError, BadGateway
from twisted_exec.kube.answers import WatchEvents, is_object, object_of
from twisted_exec.kube.interfaces import IKubeClient, Object
from twisted_exec.kube.kubeconfig.client_config import ClientConfig
from twisted_exec.kube.kubeconfig.expiry import explain_refusal
from twisted_exec.kube.late_credentials import LateCredentials
from twisted_exec.kube.transport import USER_AGENT, HTTPTransport, IdleConnections, Request

T = TypeVar("T")

PAGE = 500
MAX_PAGES = 400
MAX_BODY_BYTES = 32 << 20
MAX_LIST_BYTES = 256 << 20
"""Limit for one list of a server of others, so that it cannot exhaust a program's memory."""

_BYTES_OF_VALUE = 16
"""Bytes of an answer's limit for each value that it may have."""

# A connection that dies without a FIN goes unnoticed until the watch ends: for 80 s at most.
WATCH_SECONDS = 50
WATCH_GRACE_SECONDS = 10.0

# A review is a POST that changes nothing, so it may be repeated.
_REVIEW_GROUPS = ("authentication.k8s.io", "authorization.k8s.io")

MakeKubeClient = Callable[[LateCredentials], "KubeClient"]
"""Creates the client of a server whose credentials may arrive later."""


@implementer(IKubeClient)
class KubeClient:
    """
    Client of one API server.

    :param config: the server and our credentials, or :class:`.LateCredentials`.
    :param timeout_seconds: for one request; of a watch, until its answer begins.
    :param renew: returns the configuration for each request; not with late credentials.
    :param list_bytes: limit for all pages of a list together.
    :param body_bytes: limit for one answer other than a watch, decompressed.
    :param reactor: a real reactor (sockets and time).
    :param server: the endpoint, instead of the one that ``config`` names.
    :param agent: the program's name for ``User-Agent``.
    :param connections: those of several clients, which :meth:`close` leaves open.
    """

    def __init__(
        self,
        config: ClientConfig | LateCredentials,
        reactor: Any,
        *,
        timeout_seconds: float = 30.0,
        server: IStreamClientEndpoint | None = None,
        renew: Callable[[], ClientConfig] | None = None,
        agent: str = USER_AGENT,
        list_bytes: int | None = None,
        body_bytes: int = MAX_BODY_BYTES,
        connections: IdleConnections | None = None,
    ) -> None:
        self._timeout_seconds, self._list_bytes = timeout_seconds, list_bytes
        self._body_bytes = body_bytes
        self._late = config if isinstance(config, LateCredentials) else None
        self._http: HTTPTransport | None = None
        self._transport = partial(
            HTTPTransport, reactor=reactor, server=server, agent=agent, connections=connections
        )
        if isinstance(config, ClientConfig):
            self._http = self._transport(config, renew=renew)
        self._random = random.Random()

    @property
    def config(self) -> ClientConfig:
        """
        The configuration in use.

        :raises APIError: late credentials have not arrived.
        """
        return self._current_http().config

    def close(self) -> Deferred[None]:
        """Close idle connections; requests under way go on."""
        return succeed(None) if self._http is None else self._http.close()

    def _current_http(self) -> HTTPTransport:
        if self._http is None:
            assert self._late is not None
            self._http = self._transport(self._late.config(), renew=self._late.config)
        return self._http

    def look(self) -> int:
        return 0 if self._http is None else self._http.look()

    def groups(self) -> Deferred[list[str]]:
        return Deferred.fromCoroutine(self._discovered("/apis", "groups"))

    async def resources(self, group: str, version: str) -> list[str]:
        """
        Return the resources of one group and version.

        :raises APIError: the request failed, with 404 if the server does not have the version.
        """
        return await self._discovered(f"/apis/{group}/{version}", "resources")

    async def _discovered(self, path: str, key: str) -> list[str]:
        document = await self._request("GET", path, repeatable=True)
        listed = document.get(key)
        if listed is None:  # as Go writes an empty list
            return []
        if isinstance(listed, list):
            names = [each["name"] for each in listed if _is_named(each)]
            if len(names) == len(listed):
                return names
        raise BadGateway(f"{self.config.server}{path}: its {key} are not a list of names")

    def get(self, resource: Resource, name: str, namespace: str = "") -> Deferred[Object]:
        return self._request("GET", resource.path(namespace, name), repeatable=True)

    def read(
        self, resource: Resource, name: str, namespace: str, subresource: str, query: bytes = b""
    ) -> Deferred[Object]:
        """Return the document of a subresource, such as a screen."""
        path = resource.path(namespace, name, subresource)
        target = f"{path}?{query.decode('ascii')}" if query else path
        return self._request("GET", target, repeatable=True)

    def list(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        field_selector: str = "",
        label_selector: str = "",
        trim: Callable[[Object], Object] | None = None,
    ) -> Deferred[Object]:
        path = resource.path(namespace)
        query = _selectors(field_selector, label_selector)
        return Deferred.fromCoroutine(self._list(path, query, trim))

    async def list_first(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        most: int,
        label_selector: str = "",
        trim: Callable[[Object], Object] | None = None,
    ) -> Sequence[Object]:
        """Return the first objects of a list; one more than ``most`` says that there are more."""
        path, query = resource.path(namespace), _selectors("", label_selector)
        received = self._counter(path)
        items: Sequence[Object] = ()
        following = ""
        while len(items) <= most:
            limits = {"limit": str(most + 1 - len(items))}
            if following:
                limits["continue"] = following
            page = await self._page(path, query | limits, trim, received)
            items = [*items, *page["items"]]
            following = page["metadata"].get("continue", "")
            if not following or not page["items"]:
                break
        return items[: most + 1]

    def create(
        self,
        resource: Resource,
        obj: Object,
        namespace: str = "",
        *,
        subresource: str = "",
        name: str = "",
    ) -> Deferred[Object]:
        path = resource.path(namespace, name if subresource else "", subresource)
        repeatable = resource.group in _REVIEW_GROUPS
        return self._request("POST", path, obj, repeatable=repeatable)

    def update(
        self, resource: Resource, obj: Object, namespace: str = "", *, subresource: str = ""
    ) -> Deferred[Object]:
        return self._request(
            "PUT", resource.path(namespace, obj["metadata"]["name"], subresource), obj
        )

    def patch(
        self,
        resource: Resource,
        name: str,
        patch: Mapping[str, Any],
        namespace: str = "",
        *,
        subresource: str = "",
        content_type: str = "application/merge-patch+json",
    ) -> Deferred[Object]:
        path = resource.path(namespace, name, subresource)
        return self._request("PATCH", path, patch, content_type=content_type)

    def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        version: str = "",
        grace_seconds: int | None = None,
    ) -> Deferred[Object]:
        """
        See :meth:`IKubeClient.delete`.

        :param version: precondition, or empty.
        """
        options: Object = {"kind": "DeleteOptions", "apiVersion": "v1"}
        conditions = {"uid": uid, "resourceVersion": version}
        if conditions := {key: value for key, value in conditions.items() if value}:
            options["preconditions"] = conditions
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        return self._request("DELETE", resource.path(namespace, name), options)

    def watch(
        self,
        resource: Resource,
        on_event: Callable[[str, Object], None],
        namespace: str = "",
        *,
        resource_version: str,
        field_selector: str = "",
        label_selector: str = "",
        on_open: Callable[[], None] = lambda: None,
    ) -> Deferred[None]:
        # Spread, so that many watchers do not renew in the same second.
        seconds = WATCH_SECONDS + self._random.randrange(20)
        query = {
            "watch": "true",
            # Without changes bookmarks raise the version, so that the server still has it for the
            # next watch (Kubernetes API concepts, "Watch bookmarks").
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(seconds),
            **_selectors(field_selector, label_selector),
        }
        target = f"{resource.path(namespace)}?{urlencode(query)}"
        return Deferred.fromCoroutine(self._watch(target, on_event, on_open, seconds))

    def _request(
        self,
        method: str,
        target: str,
        body: Mapping[str, Any] | None = None,
        *,
        content_type: str = "application/json",
        repeatable: bool = False,
    ) -> Deferred[Object]:
        encoded = b"" if body is None else json.dumps(body, separators=(",", ":")).encode()
        request = Request(method, target, encoded, content_type, repeatable)
        return Deferred.fromCoroutine(self._collect(request))

    async def _collect(
        self, request: Request, received: Callable[[int], None] = lambda _: None
    ) -> Object:
        return await self._attempt(lambda: self._collect_once(request, received))

    async def _collect_once(self, request: Request, received: Callable[[int], None]) -> Object:
        http = self._current_http()
        code, headers, body = await http.collect(
            request, timeout_seconds=self._timeout_seconds, limit_bytes=self._body_bytes
        )
        received(len(body))
        try:
            return object_of(code, headers, body, self._body_bytes // _BYTES_OF_VALUE)
        except APIError as refused:
            raise explain_refusal(refused, http.config) from None

    async def _attempt(
        self,
        send: Callable[[], Coroutine[Any, Any, T]],
        may_repeat: Callable[[], bool] = lambda: True,
    ) -> T:
        if self._late is None:
            return await send()
        return await self._late.attempt(lambda: Deferred.fromCoroutine(send()), may_repeat)

    async def _list(
        self, path: str, query: dict[str, str], trim: Callable[[Object], Object] | None
    ) -> Object:
        received = self._counter(path)
        whole = await self._page(path, query | {"limit": str(PAGE)}, trim, received)
        for _ in range(MAX_PAGES):
            more = whole["metadata"].pop("continue", "")
            if not more:
                return whole
            try:
                following = query | {"limit": str(PAGE), "continue": more}
                page = await self._page(path, following, trim, received)
            except APIError as gone:
                if gone.code != 410:
                    raise
                # The pages' common version was compacted: one large answer instead.
                return await self._page(path, query, trim, received)
            whole["items"] += page["items"]
            whole["metadata"] = page["metadata"]
        raise BadGateway(f"{path}: more than {PAGE * MAX_PAGES} objects")

    def _counter(self, path: str) -> Callable[[int], None]:
        size = 0

        def received(page_bytes: int) -> None:
            nonlocal size
            size += page_bytes
            if self._list_bytes is not None and size > self._list_bytes:
                raise BadGateway(f"{path}: the list is larger than {self._list_bytes} bytes")

        return received

    async def _page(
        self,
        path: str,
        query: dict[str, str],
        trim: Callable[[Object], Object] | None,
        received: Callable[[int], None],
    ) -> Object:
        target = f"{path}?{urlencode(query)}" if query else path
        page = await self._collect(Request("GET", target, repeatable=True), received)
        items, metadata = page.get("items"), page.get("metadata")
        # As Go writes an empty list.
        if items is None:
            page["items"] = []
        if (
            not isinstance(page["items"], list)
            or not isinstance(metadata, dict)
            or not all(is_object(item) for item in page["items"])
        ):
            raise BadGateway(f"{path}: the API server's answer is not a list of objects")
        if trim is not None:
            page["items"] = [trim(item) for item in page["items"]]
        return page

    async def _watch(
        self,
        target: str,
        on_event: Callable[[str, Object], None],
        on_open: Callable[[], None],
        seconds: float,
    ) -> None:
        is_open = False

        def begun() -> None:
            nonlocal is_open
            is_open = True
            on_open()

        async def once() -> None:
            events = WatchEvents(on_event)
            code, headers, body = await self._current_http().stream(
                Request("GET", target),
                events.receive,
                begun=begun,
                head_seconds=self._timeout_seconds,
                total_seconds=seconds + WATCH_GRACE_SECONDS,
                limit_bytes=MAX_BODY_BYTES,
            )
            if code != 200:
                object_of(code, headers, body)
                raise BadGateway(f"the API server answered a watch with {code}")

        # A 401 inside an open watch ends it: repeated, it would deliver its first events twice.
        await self._attempt(once, lambda: not is_open)


def _is_named(entry: Any) -> bool:
    return isinstance(entry, dict) and isinstance(entry.get("name"), str)


def _selectors(field_selector: str, label_selector: str) -> dict[str, str]:
    chosen = {"fieldSelector": field_selector, "labelSelector": label_selector}
    return {key: value for key, value in chosen.items() if value}


def kube_client_factory(reactor: Any, agent: str) -> MakeKubeClient:
    """Return a factory of clients of others' servers over the network."""
    return partial(KubeClient, reactor=reactor, agent=agent, list_bytes=MAX_LIST_BYTES)
