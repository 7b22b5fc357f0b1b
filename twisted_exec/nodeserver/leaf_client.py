"""
A client of a leaf that is there before the leaf's credentials are.

It begins to talk when there are credentials, takes new ones for the next request, and keeps the
connections of whoever is talking.  What a leaf refuses because of who we are is told with whose
credentials these are: nobody else can mend that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from twisted.python.failure import Failure
from zope.interface import implementer

from twisted_exec.api.meta import Resource
from twisted_exec.api.status import APIError, Forbidden, Unauthorized
from twisted_exec.kube.client import KubeClient
from twisted_exec.kube.config import ClientConfig
from twisted_exec.kube.interfaces import IKubeClient, Object
from twisted_exec.nodeserver import PROGRAM

REFUSE_US = (Unauthorized.code, Forbidden.code)
"""Codes by which a server says that it does not know us, or does not let us."""

MakeClient = Callable[[ClientConfig, Callable[[], ClientConfig]], IKubeClient]
"""Makes a client; given the configuration, and what says the one of each request."""


def kube_clients(reactor: Any) -> MakeClient:
    """Real ones."""

    def make(config: ClientConfig, renew: Callable[[], ClientConfig]) -> IKubeClient:
        return KubeClient(config, reactor, renew=renew, agent=PROGRAM)

    return make


@implementer(IKubeClient)
class LeafClient:
    """
    :param leaf: the leaf's name, for messages.
    :param current: the configuration as of now; raises ``ServiceUnavailable`` while there is none.
    :param moved: called when the configuration has come to name another server.
    """

    def __init__(
        self,
        leaf: str,
        current: Callable[[], ClientConfig],
        make: MakeClient,
        moved: Callable[[], None] = lambda: None,
    ) -> None:
        self._leaf, self._current, self._make, self._moved = leaf, current, make, moved
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
        """See :meth:`IKubeClient.watch`."""
        return self._ask(
            lambda client: client.watch(
                resource,
                on_event,
                namespace,
                resource_version=resource_version,
                field_selector=field_selector,
                label_selector=label_selector,
                on_open=on_open,
            )
        )

    def _ask(self, ask: Callable[[IKubeClient], Deferred[Any]]) -> Deferred[Any]:
        try:
            config = self._renew()
            if self._client is None:
                self._client = self._make(config, self._renew)
        except APIError as refused:
            return fail(refused)
        return ask(self._client).addErrback(self._told, config)

    def _renew(self) -> ClientConfig:
        config = self._current()
        if config.server != self._server:
            had, self._server = self._server, config.server
            if had:
                self._moved()
        return config

    def _told(self, failure: Failure, config: ClientConfig) -> Failure:
        refused = failure.value
        if not isinstance(refused, APIError) or refused.code not in REFUSE_US:
            return failure
        # Another, not the same with another message: several may wait for one answer.
        mended = copy(refused)
        mended.message = who_is_refused(refused, self._leaf, config)
        return Failure(mended)


def named(refused: APIError, leaf: str) -> APIError:
    """The same, with the leaf's name: who asked the root has never heard of the leaf's address."""
    other = copy(refused)
    other.message = f'leaf cluster "{leaf}": {refused.message}'
    return other


def who_is_refused(refused: APIError, leaf: str, config: ClientConfig) -> str:
    """What to say of a leaf that refuses us: whose credentials these are, and what is to be done."""
    if refused.code == Forbidden.code:
        remedy = "grant that there to who the kubeconfig is of"
        told = "does not let us"
    else:
        remedy = "put credentials there that it takes"
        told = "does not take our credentials"
    return f'leaf cluster "{leaf}" {told} ({config.source}): {refused.message}; {remedy}'
