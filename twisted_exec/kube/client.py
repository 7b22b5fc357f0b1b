"""
A client of one API server: the Kubernetes verbs over :mod:`.http`.

A watch runs for about a minute and is then renewed by its user; silence
beyond that means that the connection died without saying so.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlencode

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IStreamClientEndpoint
from zope.interface import implementer

from twisted_exec.api.resource import Resource
from twisted_exec.api.status import (
    AlreadyExists,
    APIError,
    BadGateway,
    Conflict,
    Expired,
    NotFound,
    from_code,
    from_status,
)
from twisted_exec.kube.interfaces import IKubeClient, Object
from twisted_exec.kube.kubeconfig.client_config import ClientConfig
from twisted_exec.kube.transport import limits
from twisted_exec.kube.transport.connection import explain_refusal
from twisted_exec.kube.transport.http import USER_AGENT, HTTPTransport, Request

PAGE = 500
MAX_PAGES = 400
MAX_BODY_BYTES = 32 << 20
MAX_EVENT_BYTES = 8 << 20

WATCH_SECONDS = 50
WATCH_GRACE_SECONDS = 10.0

_TYPES: Mapping[int, type[APIError]] = {each.code: each for each in (NotFound, Conflict, Expired)}
"""
Errors about an object, by their codes: whoever asks for one may wait for them.  A 401 or a 403 is
about us, and never to be taken for what is thought of somebody whom we asked about.
"""

# Reviews only look; asking twice is harmless although they are POSTs.
_REVIEW_GROUPS = ("authentication.k8s.io", "authorization.k8s.io")


@implementer(IKubeClient)
class KubeClient:
    """
    Talks to the API server of ``config``.

    :param reactor: a real reactor (sockets and time).
    :param timeout_seconds: for one whole request; watches have their own limit.
    :param server: the endpoint, instead of the one that ``config`` names.
    :param renew: the configuration as it is now, asked for each request, such
        as :meth:`ReloadingConfig.current <twisted_exec.kube.kubeconfig.reloading.ReloadingConfig.current>`.
    :param agent: the program, as its ``User-Agent`` names it; servers keep that as the
        manager of the fields that it writes.
    :param list_bytes: how much the pages of one list may have together, of a server that is not trusted;
        ``None`` where the number of objects is limit enough.
    """

    def __init__(
        self,
        config: ClientConfig,
        reactor: Any,
        *,
        timeout_seconds: float = 30.0,
        server: IStreamClientEndpoint | None = None,
        renew: Callable[[], ClientConfig] | None = None,
        agent: str = USER_AGENT,
        list_bytes: int | None = None,
    ) -> None:
        self._timeout_seconds, self._list_bytes = timeout_seconds, list_bytes
        self._http = HTTPTransport(config, reactor, server=server, renew=renew, agent=agent)
        self._random = random.Random()

    @property
    def config(self) -> ClientConfig:
        """The configuration in use."""
        return self._http.config

    def close(self) -> Deferred[None]:
        """Close idle connections; requests under way go on."""
        return self._http.close()

    async def groups(self) -> list[str]:
        """
        The names of the API groups that there are, the core group aside.

        :raises APIError: that cannot be asked.
        """
        answer = await self._ask("GET", "/apis", repeatable=True)
        return [str(each.get("name")) for each in answer.get("groups") or ()]

    async def resources(self, group: str, version: str) -> list[str]:
        """
        The resources of one group and version, such as ``machines`` and ``machines/exec``.

        :raises APIError: that cannot be asked; 404 when there is no such version.
        """
        answer = await self._ask("GET", f"/apis/{group}/{version}", repeatable=True)
        return [str(each.get("name")) for each in answer.get("resources") or ()]

    def get(self, resource: Resource, name: str, namespace: str = "") -> Deferred[Object]:
        """See :meth:`IKubeClient.get`."""
        return self._ask("GET", resource.path(namespace, name), repeatable=True)

    def list(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        field_selector: str = "",
        label_selector: str = "",
        trim: Callable[[Object], Object] | None = None,
    ) -> Deferred[Object]:
        """See :meth:`IKubeClient.list`; pages are fetched one after another."""
        path = resource.path(namespace)
        query = _selectors(field_selector, label_selector)
        return Deferred.fromCoroutine(self._list(path, query, trim))

    def create(
        self,
        resource: Resource,
        obj: Object,
        namespace: str = "",
        *,
        subresource: str = "",
        name: str = "",
    ) -> Deferred[Object]:
        """See :meth:`IKubeClient.create`."""
        path = resource.path(namespace, name if subresource else "", subresource)
        repeatable = resource.group in _REVIEW_GROUPS
        return self._ask("POST", path, obj, repeatable=repeatable)

    def update(
        self, resource: Resource, obj: Object, namespace: str = "", *, subresource: str = ""
    ) -> Deferred[Object]:
        """See :meth:`IKubeClient.update`."""
        return self._ask("PUT", resource.path(namespace, obj["metadata"]["name"], subresource), obj)

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
        """See :meth:`IKubeClient.patch`."""
        path = resource.path(namespace, name, subresource)
        return self._ask("PATCH", path, patch, content_type=content_type)

    def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        grace_seconds: int | None = None,
    ) -> Deferred[Object]:
        """See :meth:`IKubeClient.delete`."""
        options: Object = {"kind": "DeleteOptions", "apiVersion": "v1"}
        if uid:
            options["preconditions"] = {"uid": uid}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        return self._ask("DELETE", resource.path(namespace, name), options)

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
        """See :meth:`IKubeClient.watch`."""
        # Spread, so that many watchers do not renew in the same second.
        seconds = WATCH_SECONDS + self._random.randrange(20)
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(seconds),
            **_selectors(field_selector, label_selector),
        }
        target = f"{resource.path(namespace)}?{urlencode(query)}"
        return Deferred.fromCoroutine(self._watch(target, on_event, on_open, seconds))

    def _ask(
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
        return Deferred.fromCoroutine(self._asked(request))

    async def _asked(
        self, request: Request, connected: Callable[[int], None] = lambda _: None
    ) -> Object:
        code, headers, body = await self._http.collect(
            request, timeout_seconds=self._timeout_seconds, limit_bytes=MAX_BODY_BYTES
        )
        connected(len(body))
        try:
            return _object(code, headers, body)
        except APIError as refused:
            raise explain_refusal(refused, self.config) from None

    async def _list(
        self, path: str, query: dict[str, str], trim: Callable[[Object], Object] | None
    ) -> Object:
        size = 0

        def taken(more: int) -> None:
            nonlocal size
            size += more
            if self._list_bytes is not None and size > self._list_bytes:
                raise BadGateway(f"{path}: the list is larger than {self._list_bytes} bytes")

        whole = await self._page(path, query | {"limit": str(PAGE)}, trim, taken)
        for _ in range(MAX_PAGES):
            more = whole["metadata"].pop("continue", "")
            if not more:
                return whole
            try:
                following = query | {"limit": str(PAGE), "continue": more}
                page = await self._page(path, following, trim, taken)
            except APIError as gone:
                if gone.code != 410:
                    raise
                # The pages' common version was compacted: one large answer instead.
                return await self._page(path, query, trim, taken)
            whole["items"] += page["items"]
            whole["metadata"] = page["metadata"]
        raise BadGateway(f"{path}: more than {PAGE * MAX_PAGES} objects")

    async def _page(
        self,
        path: str,
        query: dict[str, str],
        trim: Callable[[Object], Object] | None,
        connected: Callable[[int], None],
    ) -> Object:
        target = f"{path}?{urlencode(query)}" if query else path
        page = await self._asked(Request("GET", target, repeatable=True), connected)
        items, metadata = page.get("items"), page.get("metadata")
        if items is None:
            page["items"] = []
        if (
            not isinstance(page["items"], list)
            or not isinstance(metadata, dict)
            or not all(_is_object(item) for item in page["items"])
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
        events = _Events(on_event)
        code, headers, body = await self._http.stream(
            Request("GET", target),
            events.receive,
            begun=on_open,
            head_seconds=self._timeout_seconds,
            total_seconds=seconds + WATCH_GRACE_SECONDS,
            limit_bytes=MAX_BODY_BYTES,
        )
        if code != 200:
            _object(code, headers, body)
            raise BadGateway(f"the API server answered a watch with {code}")


def _selectors(field_selector: str, label_selector: str) -> dict[str, str]:
    chosen = {"fieldSelector": field_selector, "labelSelector": label_selector}
    return {key: value for key, value in chosen.items() if value}


def _object(code: int, headers: Mapping[str, str], body: bytes) -> Object:
    """
    The object of a 2xx answer.

    :raises APIError: for any other code, made of the Status in the body when there is one.
    """
    try:
        document = limits.loads(body)
    except ValueError:
        document = None
    if 200 <= code < 300:
        if not isinstance(document, dict):
            raise BadGateway(f"the API server answered {code} with something other than an object")
        return document
    if 300 <= code < 400:
        raise BadGateway(f"the API server answered {code}; redirects are not followed")
    if isinstance(document, dict) and document.get("kind") == "Status":
        failed = from_status(document, code)
    else:
        text = body[:200].decode("utf-8", "replace").strip() or f"the server answered {code}"
        failed = from_code(code, " ".join(text.split()))
    failed = _with_type(failed)
    if failed.retry_after_seconds is None and headers.get("retry-after", "").isdigit():
        failed.retry_after_seconds = min(int(headers["retry-after"][:6]), 3600)
    raise failed


def _is_object(obj: Any) -> bool:
    metadata = obj.get("metadata") if isinstance(obj, dict) else None
    return (
        isinstance(metadata, dict)
        and all(isinstance(metadata.get(key, ""), str) for key in ("namespace", "uid"))
        and isinstance(metadata.get("name"), str)
    )


def _with_type(failed: APIError) -> APIError:
    """An error as an instance of its class, so that whoever waits for that one can catch it."""
    exists = failed.reason == AlreadyExists.reason
    kind = AlreadyExists if exists else _TYPES.get(failed.code, APIError)
    typed = kind.__new__(kind)
    # Each class has a constructor of its own, which would word the message anew.
    APIError.__init__(
        typed,
        failed.message,
        code=failed.code,
        reason=failed.reason,
        details=failed.details,
        retry_after_seconds=failed.retry_after_seconds,
    )
    return typed


class _Events:
    """Splits a watch's body into events; one line is one JSON object."""

    def __init__(self, on_event: Callable[[str, Object], None]) -> None:
        self._on_event = on_event
        self._partial: list[bytes] = []
        self._size = 0

    def receive(self, data: bytes) -> None:
        first, *lines = data.split(b"\n")
        self._hold(first)
        for line in lines:
            whole = b"".join(self._partial)
            self._partial, self._size = [], 0
            if whole.strip():
                self._deliver(whole)
            self._hold(line)

    def _hold(self, part: bytes) -> None:
        self._size += len(part)
        if self._size > MAX_EVENT_BYTES:
            raise BadGateway(f"an event of a watch is larger than {MAX_EVENT_BYTES} bytes")
        if part:
            self._partial.append(part)

    def _deliver(self, line: bytes) -> None:
        try:
            event = limits.loads(line)
            kind, obj = event["type"], event["object"]
            if kind == "ERROR":
                raise _with_type(from_status(obj))
            if kind != "BOOKMARK" and not _is_object(obj):
                raise ValueError("an event without an object")
            obj["metadata"].get("resourceVersion")
        except (ValueError, KeyError, TypeError, AttributeError):
            raise BadGateway("the API server sent a watch event that is not one") from None
        self._on_event(kind, obj)
