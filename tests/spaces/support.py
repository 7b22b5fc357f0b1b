"""
Helpers for tests of the space-aware client: a cluster with Spaces, written as the Space Manager
writes them, and their API servers.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from typing import Any

from twisted.internet.defer import Deferred
from zope.interface import implementer

from tests.kube.credentialed import CredentialedClient
from twisted_exec.api import spaces
from twisted_exec.api.kinds import SECRETS
from twisted_exec.api.kinds.namespaces import NAMESPACES
from twisted_exec.api.kinds.spaces import SPACES
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import from_code
from twisted_exec.kube.client import KubeClient
from twisted_exec.kube.interfaces import IKubeClient, Object
from twisted_exec.kube.kubeconfig.client_config import ClientConfig
from twisted_exec.kube.late_credentials import LateCredentials
from twisted_exec.spaces.interfaces import ISpaceConnection, ISpaceListener
from twisted_exec.testing.cluster import MemoryCluster

SECRET = SECRETS.resource
SPACE = spaces.SPACES
IMPORTED = {"Type": spaces.IMPORTED}
CA = base64.b64encode(b"CA of one").decode()


def kubeconfig(server: str = "https://one.example", token: str = "t1", ca: str = CA) -> bytes:
    """Return a kubeconfig as the manager writes it."""
    cluster = {"server": server, "certificate-authority-data": ca}
    return json.dumps(
        {
            "clusters": [{"name": "x", "cluster": cluster}],
            "users": [{"name": "x", "user": {"token": token}}],
            "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
            "current-context": "x",
        }
    ).encode()


class Hub:
    """A cluster that has Spaces and their Secrets."""

    def __init__(self) -> None:
        self.cluster = MemoryCluster((SPACES, SECRETS, NAMESPACES))
        self._uids = 0

    def space(
        self,
        name: str = "one",
        provider: str = "default",
        *,
        namespace: str = "",
        secret: str | None = "",
        viewpoints: tuple[str, ...] = (spaces.EXTERNAL,),
        phase: str = spaces.READY,
        physical: str = "",
        labels: Mapping[str, str] | None = None,
        uid: str = "",
        spec: Mapping[str, Any] | None = None,
        deleting: bool = False,
        **status: Any,
    ) -> Object:
        """
        Create or replace a Space.

        :param secret: the name of its Secrets, instead of the usual; ``None`` for none.
        """
        namespace = namespace or spaces.namespace_of(provider)
        key = (SPACE, namespace, name)
        known = self.cluster.objects.get(key)
        if not uid:
            self._uids += known is None
            uid = known["metadata"]["uid"] if known else f"uid-{self._uids}"
        refs = {
            spaces.REFERENCES[each]: {
                "namespace": namespace,
                "name": secret or spaces.secret_name(name, each),
            }
            for each in (viewpoints if secret is not None else ())
        }
        metadata = {"namespace": namespace, "name": name, "uid": uid, "labels": dict(labels or {})}
        if deleting:
            metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        whole = {"Type": spaces.MANAGED, "SpaceProviderDescName": provider, **(spec or {})}
        if whole["Type"] == spaces.IMPORTED:
            del whole["SpaceProviderDescName"]
        told = {"Phase": phase, "physicalUID": physical, **refs, **status}
        return self.cluster.put(key, {"metadata": metadata, "spec": whole, "status": told})

    def secret(
        self,
        content: bytes | None = None,
        name: str = "one",
        provider: str = "default",
        *,
        namespace: str = "",
        viewpoint: str = spaces.EXTERNAL,
        own: str = "",
        key: str = spaces.KUBECONFIG_KEY,
    ) -> Object:
        """
        Store the Secret of a Space, as the manager writes it.

        :param own: the name of a Secret without labels, as a user would create it.
        """
        namespace = namespace or spaces.namespace_of(provider)
        labels = {spaces.SPACE_LABEL: name, spaces.PROVIDER_LABEL: provider}
        told = own or spaces.secret_name(name, viewpoint)
        encoded = base64.b64encode(kubeconfig() if content is None else content).decode()
        return self.cluster.put(
            (SECRET, namespace, told),
            {
                "metadata": {
                    "namespace": namespace,
                    "name": told,
                    "uid": f"of-{told}",
                    "labels": {} if own else labels,
                },
                "type": "Opaque",
                "data": {key: encoded},
            },
        )

    def both(self, content: bytes | None = None, name: str = "one", **more: Any) -> None:
        """Store the Secret of a Space, then the Space, which is Ready."""
        provider = more.get("provider", "default")
        self.secret(content, name, provider)
        self.space(name, **more)

    def remove(self, resource: Resource, name: str, provider: str = "default") -> None:
        """Delete an object from a provider's namespace."""
        self.cluster.remove((resource, spaces.namespace_of(provider), name))


class Servers:
    """
    The Spaces' API servers, by their URLs.

    :ivar taken: the token that each server accepts; a server without an entry accepts any.
    :ivar silent: servers that never answer.
    :ivar shown: server and token of every client used so far.
    """

    def __init__(self) -> None:
        self.clusters: dict[str, MemoryCluster] = {}
        self.taken: dict[str, str] = {}
        self.silent: set[str] = set()
        self.shown: list[tuple[str, str]] = []

    def make(self, credentials: LateCredentials) -> KubeClient:
        """See :data:`~twisted_exec.kube.client.MakeKubeClient`."""
        return CredentialedClient(credentials, self._client)  # type: ignore[return-value]

    def _client(self, config: ClientConfig) -> Any:
        return _Silent() if config.server in self.silent else self.asked(config)

    def asked(self, config: ClientConfig) -> Any:
        """Return a client of the server, which answers 401 to a wrong token."""
        self.shown.append((config.server, config.token))
        cluster = self.clusters.setdefault(config.server, MemoryCluster((SECRETS, NAMESPACES)))
        known = self.taken.get(config.server, config.token) == config.token
        cluster.problem = None if known else from_code(401, "Unauthorized")
        return cluster.client()


class _Silent:
    """A client whose server never answers."""

    def __getattr__(self, verb: str) -> Any:
        return lambda *_, **__: Deferred()


@implementer(ISpaceListener)
class Listener:
    """
    :ivar told: the calls of ``engaged`` and ``disengaged``, in order.
    :ivar changes: the connections reported as changed.
    :ivar waiting: the number of ``waiting_changed`` calls.
    """

    def __init__(self) -> None:
        self.told: list[tuple[str, ...]] = []
        self.there: list[ISpaceConnection] = []
        self.changes: list[ISpaceConnection] = []
        self.waiting = 0

    def engaged(self, space: ISpaceConnection) -> None:
        """See :class:`ISpaceListener`."""
        self.told.append(("engaged", str(space.name)))
        self.there.append(space)

    def changed(self, space: ISpaceConnection) -> None:
        """See :class:`ISpaceListener`."""
        self.changes.append(space)

    def waiting_changed(self) -> None:
        """See :class:`ISpaceListener`."""
        self.waiting += 1

    def disengaged(self, space: ISpaceConnection, reason: str) -> None:
        """See :class:`ISpaceListener`."""
        self.told.append(("disengaged", str(space.name), reason))
        self.there.remove(space)


class Slow:
    """A client of a cluster whose ``get`` waits for :meth:`answer`."""

    def __init__(self, client: IKubeClient) -> None:
        self._client = client
        self.waiting: list[Callable[[], None]] = []

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._client, verb)

    def get(self, *about: Any) -> Deferred[Object]:
        """See :meth:`IKubeClient.get`."""
        done: Deferred[Object] = Deferred()
        self.waiting.append(lambda: self._client.get(*about).chainDeferred(done))
        return done

    def answer(self) -> None:
        """Answer all pending ``get`` calls."""
        waiting, self.waiting = self.waiting, []
        for each in waiting:
            each()
