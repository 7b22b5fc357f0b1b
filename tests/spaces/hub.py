"""
A real API server with Spaces, written as the Space Manager writes them, and a server behind one of
them.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Sequence
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.task import deferLater

from tests.apiserver.chain import ChainTestCase
from tests.audits import AuditList
from tests.chain import begin, patient, pki
from twisted_exec.api import spaces
from twisted_exec.api.kinds import NAMESPACES, SECRETS, SELFSUBJECTREVIEWS
from twisted_exec.api.status import AlreadyExists, APIError, NotFound
from twisted_exec.apiserver.identity.credentials import Identities
from twisted_exec.apiserver.service import APIServer
from twisted_exec.kube.client import KubeClient
from twisted_exec.kube.interfaces import Object
from twisted_exec.kube.kubeconfig.client_config import ClientConfig, Material
from twisted_exec.kube.kubeconfig.writer import written
from twisted_exec.spaces.kubeconfigs import endpoint_of
from twisted_exec.storage.memory import MemoryStorage
from twisted_exec.tls.files import read_file

reactor: Any = _reactor
SECRET, SPACE = SECRETS.resource, spaces.SPACES


class HubTestCase(ChainTestCase):
    """
    ``self.server`` has the Spaces; :meth:`start_space` starts a server for one of them.

    :ivar behind: that server; it knows the users of the same CA, and tokens of a file.
    """

    _marks = 0

    async def start_space(self, *tokens: str) -> APIServer:
        """Start a server that accepts these tokens, each of an admin called ``space-TOKEN``."""
        self.tokens = os.path.abspath(self.mktemp())
        self._write(tokens)
        self.behind_audit = AuditList()
        settings = self.settings(identities=Identities(token_file=self.tokens))
        self.behind = APIServer(settings, MemoryStorage(), self.behind_audit, reactor)
        return await begin(self.behind, self.addCleanup)

    async def take(self, *tokens: str) -> None:
        """Let the server accept these tokens only, and wait until it does."""
        self._marks += 1
        mark = f"mark-{self._marks}"
        self._write((*tokens, mark))
        while not await self.knows(mark):
            await deferLater(reactor, 0.05)

    async def knows(self, token: str) -> bool:
        """Return whether the server of the Space accepts a token."""
        client = self.space_client(token)
        try:
            await client.create(SELFSUBJECTREVIEWS.resource, {})
        except APIError:
            return False
        return True

    def space_client(self, token: str) -> KubeClient:
        """Return a client of the Space's server."""
        made = patient(self.config(token))
        self.addCleanup(made.close)
        return made

    def _write(self, tokens: Sequence[str]) -> None:
        temporary = f"{self.tokens}.new"
        with open(temporary, "w", encoding="ascii") as file:
            for token in tokens:
                file.write(f"{token},space-{token},{token},system:masters\n")
        os.replace(temporary, self.tokens)

    def config(self, token: str = "t1", server: str = "") -> ClientConfig:
        """Return the configuration of a client of the Space's server."""
        url = server or self.behind.url
        return ClientConfig(url, ca=Material(data=read_file(pki().serving_ca)), token=token)

    async def put_secret(
        self, config: ClientConfig, name: str = "one", provider: str = "default"
    ) -> Object:
        """Create or update a Space's Secret."""
        namespace = spaces.namespace_of(provider)
        try:
            await self.admin.create(NAMESPACES.resource, {"metadata": {"name": namespace}})
        except AlreadyExists:
            pass
        metadata = {
            "name": spaces.secret_name(name, spaces.EXTERNAL),
            "namespace": namespace,
            "labels": {spaces.SPACE_LABEL: name, spaces.PROVIDER_LABEL: provider},
        }
        content = base64.b64encode(written(config, name)).decode()
        secret = {"metadata": metadata, "data": {spaces.KUBECONFIG_KEY: content}}
        try:
            return await self.admin.update(SECRET, secret, namespace)
        except NotFound:
            return await self.admin.create(SECRET, secret, namespace)

    async def put_space(
        self, config: ClientConfig, name: str = "one", provider: str = "default", **status: Any
    ) -> Object:
        """Create the Secret of a Space, then the Space, which is Ready."""
        secret = await self.put_secret(config, name, provider)
        namespace = secret["metadata"]["namespace"]
        space = await self.admin.create(
            SPACE,
            {
                "metadata": {"name": name, "namespace": namespace},
                "spec": {"SpaceProviderDescName": provider, "Type": spaces.MANAGED},
            },
            namespace,
        )
        told = {
            "Phase": spaces.READY,
            spaces.REFERENCES[spaces.EXTERNAL]: {
                "name": secret["metadata"]["name"],
                "namespace": namespace,
            },
            spaces.ENDPOINTS: [endpoint_of(config, spaces.EXTERNAL)],
            **status,
        }
        return await self.admin.update(
            SPACE, {**space, "status": told}, namespace, subresource="status"
        )
