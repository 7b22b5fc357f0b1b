"""
A client that is there before its credentials are.

It begins to talk when there are credentials, takes new ones for the next request, and keeps the
connections of whoever is talking.  A request that is answered 401 was not begun: when there turn out to be
other credentials by then, it is sent once more.  What a server refuses because of who we are is told with
whose credentials these are: nobody else can mend that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from typing import Any

from twisted.internet.defer import Deferred, succeed
from zope.interface import implementer

from twisted_exec.api.resource import Resource
from twisted_exec.api.status import APIError, Forbidden, Unauthorized
from twisted_exec.kube.client import KubeClient
from twisted_exec.kube.interfaces import IKubeClient, Object
from twisted_exec.kube.kubeconfig.client_config import ClientConfig

REFUSAL_CODES = (Unauthorized.code, Forbidden.code)
"""Codes by which a server says that it does not know us, or does not let us."""

MakeKubeClient = Callable[[ClientConfig, Callable[[], ClientConfig]], IKubeClient]
"""Makes a client; given the configuration, and what says the one of each request."""

Reread = Callable[[ClientConfig], Deferred[bool]]
"""
Looks where credentials come from; given the configuration that was answered 401.

Fires with whether there is another one now, or fails with an :class:`~twisted_exec.api.status.APIError` when nobody
can tell.
"""


def kube_client_factory(reactor: Any, agent: str) -> MakeKubeClient:
    """
    Real ones.

    :param agent: the program, as its ``User-Agent`` names it.
    """

    def make(config: ClientConfig, renew: Callable[[], ClientConfig]) -> IKubeClient:
        return KubeClient(config, reactor, renew=renew, agent=agent)

    return make


@implementer(IKubeClient)
class LateClient:
    """
    :param label: what the server is called in messages, such as ``leaf cluster "one"``.
    :param current: the configuration as of now; raises ``ServiceUnavailable`` while there is none.
    :param moved: called when the configuration has come to name another server.
    :param reread: asked when a request is answered 401, before that is told to anybody.
    """

    def __init__(
        self,
        label: str,
        current: Callable[[], ClientConfig],
        make: MakeKubeClient,
        *,
        moved: Callable[[], None] = lambda: None,
        reread: Reread | None = None,
    ) -> None:
        self._label, self._current, self._make, self._moved = label, current, make, moved
        self._reread = reread
        self._client: IKubeClient | None = None
        self._server = ""

    def close(self) -> Deferred[None]:
        """Close idle connections."""
        if isinstance(self._client, KubeClient):
            return self._client.close()
        return succeed(None)

    def get(self, resource: Resource, name: str, namespace: str = "") -> Deferred[Object]:
        """See :meth:`IKubeClient.get`."""
        return self._ask(lambda client: client.get(resource, name, namespace))

    def list(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        field_selector: str = "",
        label_selector: str = "",
        trim: Callable[[Object], Object] | None = None,
    ) -> Deferred[Object]:
        """See :meth:`IKubeClient.list`."""
        return self._ask(
            lambda client: client.list(
                resource,
                namespace,
                field_selector=field_selector,
                label_selector=label_selector,
                trim=trim,
            )
        )

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
        return self._ask(
            lambda client: client.create(
                resource, obj, namespace, subresource=subresource, name=name
            )
        )

    def update(
        self, resource: Resource, obj: Object, namespace: str = "", *, subresource: str = ""
    ) -> Deferred[Object]:
        """See :meth:`IKubeClient.update`."""
        return self._ask(
            lambda client: client.update(resource, obj, namespace, subresource=subresource)
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
        """See :meth:`IKubeClient.patch`."""
        return self._ask(
            lambda client: client.patch(
                resource,
                name,
                patch,
                namespace,
                subresource=subresource,
                content_type=content_type,
            )
        )

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
        return self._ask(
            lambda client: client.delete(
                resource, name, namespace, uid=uid, grace_seconds=grace_seconds
            )
        )

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
        """See :meth:`IKubeClient.watch`; one that was accepted is not begun again."""
        opened: list[bool] = []

        def begun() -> None:
            opened.append(True)
            on_open()

        def begin(client: IKubeClient) -> Deferred[None]:
            return client.watch(
                resource,
                on_event,
                namespace,
                resource_version=resource_version,
                field_selector=field_selector,
                label_selector=label_selector,
                on_open=begun,
            )

        return self._ask(begin, lambda: not opened)

    def _ask(
        self,
        ask: Callable[[IKubeClient], Deferred[Any]],
        may_repeat: Callable[[], bool] = lambda: True,
    ) -> Deferred[Any]:
        return Deferred.fromCoroutine(self._asked(ask, may_repeat))

    async def _asked(
        self, ask: Callable[[IKubeClient], Deferred[Any]], may_repeat: Callable[[], bool]
    ) -> Any:
        config = self._renew()
        try:
            return await ask(self._client_for(config))
        except APIError as refused:
            if refused.code not in REFUSAL_CODES:
                raise
            again = refused.code == Unauthorized.code and may_repeat()
            if not (again and await self._is_another(config)):
                raise self._told(refused, config) from None
        config = self._renew()
        try:
            return await ask(self._client_for(config))
        except APIError as refused:
            if refused.code not in REFUSAL_CODES:
                raise
            raise self._told(refused, config) from None

    async def _is_another(self, config: ClientConfig) -> bool:
        if self._reread is None:
            return False
        try:
            return await self._reread(config)
        except APIError:
            return False  # what the server said is what there is to say

    def _client_for(self, config: ClientConfig) -> IKubeClient:
        if self._client is None:
            self._client = self._make(config, self._renew)
        return self._client

    def _renew(self) -> ClientConfig:
        config = self._current()
        if config.server != self._server:
            previous, self._server = self._server, config.server
            if previous:
                self._moved()
        return config

    def _told(self, refused: APIError, config: ClientConfig) -> APIError:
        # Another, not the same with another message: several may wait for one answer.
        mended = copy(refused)
        mended.message = describe_refusal(refused, self._label, config)
        return mended


def named(refused: APIError, label: str) -> APIError:
    """The same, with the server's name: who asked somebody else has never heard of its address."""
    other = copy(refused)
    other.message = f"{label}: {refused.message}"
    return other


def describe_refusal(refused: APIError, label: str, config: ClientConfig) -> str:
    """What to say of a server that refuses us: whose credentials these are, and what is to be done."""
    if refused.code == Forbidden.code:
        remedy = "grant that there to who the kubeconfig is of"
        problem = "does not let us"
    else:
        remedy = "put credentials there that it takes"
        problem = "does not take our credentials"
    return f"{label} {problem} ({config.source}): {refused.message}; {remedy}"
