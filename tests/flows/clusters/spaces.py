"""
Spaces in a cluster of ours, written as a manager writes them.
"""

from __future__ import annotations

import base64
from pathlib import Path

from twisted_exec.api import spaces
from twisted_exec.api.kinds import NAMESPACES, SECRETS, SPACES
from twisted_exec.kube.client import KubeClient
from twisted_exec.kube.interfaces import Object

HOME = spaces.namespace_of(spaces.DEFAULT_PROVIDER)


def _object(kind: str, version: str, name: str, **more: object) -> Object:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, **more}


class Registry:
    """
    Spaces of the provider ``default``.

    :param client: an administrator's client of the cluster with the Spaces.
    """

    def __init__(self, client: KubeClient) -> None:
        self.client = client

    async def start(self) -> None:
        """Create the provider's namespace."""
        await self.client.create(NAMESPACES.resource, _object("Namespace", "v1", HOME))

    async def add(self, name: str, kubeconfig: str, physical: str = "a") -> None:
        """
        Create a Space that is Ready.

        :param kubeconfig: the path of a self-contained kubeconfig.
        :param physical: the UID of its physical space.
        """
        secret = _object("Secret", "v1", spaces.secret_name(name, spaces.EXTERNAL))
        secret["metadata"]["labels"] = {spaces.SPACE_LABEL: name}
        secret["data"] = _data(kubeconfig)
        await self.client.create(SECRETS.resource, secret, HOME)
        spec = {"SpaceProviderDescName": spaces.DEFAULT_PROVIDER, "accessscopetype": "External"}
        space = _object("Space", SPACES.resource.api_version, name, spec=spec)
        await self.client.create(SPACES.resource, space, HOME)
        ref = {"name": secret["metadata"]["name"], "namespace": HOME}
        status = {"Phase": "Ready", "externalSecretRef": ref, "physicalUID": physical}
        await self.client.patch(
            SPACES.resource, name, {"status": status}, HOME, subresource="status"
        )

    async def rotate(self, name: str, kubeconfig: str) -> None:
        """Replace a Space's credentials."""
        secret = spaces.secret_name(name, spaces.EXTERNAL)
        await self.client.patch(SECRETS.resource, secret, {"data": _data(kubeconfig)}, HOME)

    async def remove(self, name: str) -> None:
        """Delete a Space and its credentials."""
        await self.client.delete(SPACES.resource, name, HOME)
        secret = spaces.secret_name(name, spaces.EXTERNAL)
        await self.client.delete(SECRETS.resource, secret, HOME)


def _data(kubeconfig: str) -> dict[str, str]:
    return {spaces.KUBECONFIG_KEY: base64.b64encode(Path(kubeconfig).read_bytes()).decode()}
