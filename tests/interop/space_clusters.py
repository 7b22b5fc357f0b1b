"""
A real cluster behind an adaptor of spaces: the way there can be cut, and who comes by it can be
refused.

The adaptor is a ServiceAccount with the rules that the documentation gives it, and nothing besides.
"""

from __future__ import annotations

import atexit
import base64
import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml
from twisted.internet import reactor as _reactor
from twisted.internet.protocol import Protocol, ServerFactory, connectionDone
from twisted.protocols.portforward import ProxyFactory
from twisted.python.failure import Failure

from tests import needs
from tests.contracts.space_world import SpaceWorld, pause
from tests.interop.hosts import HostCluster, kubectl
from tests.spacemanager.providers.cluster_world import Way, WayClient
from twisted_exec.api.kinds import (
    CLUSTERROLEBINDINGS,
    CLUSTERROLES,
    NAMESPACES,
    ROLEBINDINGS,
    SERVICEACCOUNTS,
    TOKENREQUESTS,
)
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import AlreadyExists, APIError, NotFound
from twisted_exec.kube.client import KubeClient
from twisted_exec.kube.interfaces import Object
from twisted_exec.kube.kubeconfig.client_config import ClientConfig
from twisted_exec.kube.kubeconfig.loader import load

reactor: Any = _reactor
ROLES = Path(__file__).parents[2] / "docs" / "howto"
ACCOUNTS = "spaces-test"
_cluster: HostCluster | None = None


def shared_cluster(*kinds: Object) -> HostCluster:
    """
    One for all of a run, as it takes seconds to start: kube-apiserver and its controllers.

    :param kinds: CustomResourceDefinitions.  The garbage collector knows those of the first call at
        once, and later ones half a minute later.
    """
    global _cluster
    if _cluster is not None:
        if kinds:
            _cluster.apply(*kinds)
        return _cluster
    program = needs.kube_apiserver_program()
    controllers = needs.kube_controller_manager_program()
    assert program is not None and controllers is not None
    made = HostCluster(program, "spaces")
    atexit.register(made.stop)
    try:
        made.start_store()
        serving, front = made.pki.issue_apiserver(["localhost", "127.0.0.1"], replace=True)
        made.start_kube(serving, front, made.pki.forwarding_ca, "exec-apiserver")
        if kinds:
            made.apply(*kinds)
        made.start_controllers(controllers)
    except BaseException:
        made.stop()  # the next test must not use half a cluster
        raise
    _cluster = made
    return made


class Wire:
    """The way to a server: as it is, refused, silent, or answered by something else."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._listening: Any = None
        self.port = 0
        self._open: set[Any] = set()

    async def pass_on(self) -> None:
        """As it is."""
        await self._listen(ProxyFactory("127.0.0.1", self._to))

    async def answer(self, what: bytes) -> None:
        """By something else; empty for never at all."""

        class Else(Protocol):
            def dataReceived(self, data: bytes) -> None:
                if what:
                    self.transport.write(what)
                    self.transport.loseConnection()

        await self._listen(ServerFactory.forProtocol(Else))

    async def cut(self) -> None:
        """Stop listening, and abort all open connections."""
        listening, self._listening = self._listening, None
        if listening is not None:
            await listening.stopListening()
        for transport in list(self._open):
            transport.abortConnection()

    async def _listen(self, factory: Any) -> None:
        await self.cut()
        build = factory.buildProtocol

        def built(address: Any) -> Any:
            protocol = build(address)
            made, lost = protocol.makeConnection, protocol.connectionLost

            def connected(transport: Any) -> None:
                self._open.add(transport)
                made(transport)

            def ended(reason: Failure = connectionDone) -> None:
                self._open.discard(protocol.transport)
                lost(reason)

            protocol.makeConnection, protocol.connectionLost = connected, ended
            return protocol

        factory.buildProtocol = built
        factory.noisy = False
        self._listening = reactor.listenTCP(self.port, factory, interface="127.0.0.1")
        self.port = self._listening.getHost().port


class RealClusterWorld(SpaceWorld):
    """A provider whose things are objects of a real cluster."""

    role = ""
    """
    A file of ``docs/howto`` with the rules that the adaptor needs, for the cluster or for one
    namespace.
    """
    seen: Resource = NAMESPACES.resource
    """Of what it may see all."""
    seconds = 90.0

    def kinds(self) -> Sequence[Object]:
        """Return CustomResourceDefinitions that the cluster serves."""
        return ()

    def prepare(self) -> None:
        self.cluster = shared_cluster(*self.kinds())

    async def start(self) -> None:
        self.admin = KubeClient(load(self.cluster.kubeconfig), reactor)
        self.way, self.number = Way(), 0
        self.way.valid, self.way.looks_count = 0, False
        self._clients: list[KubeClient] = []
        self.wire = Wire(self.cluster.port)
        await self.wire.pass_on()
        await self.put(NAMESPACES.resource, {"metadata": {"name": ACCOUNTS}})
        role = self._role()
        if place := role["metadata"].get("namespace"):
            await self.put(NAMESPACES.resource, {"metadata": {"name": place}})
        self.cluster.apply(role)
        await self.renew()

    async def stop(self) -> None:
        if not hasattr(self, "admin"):
            return
        for client in self._clients:
            await client.close()
        await self.admin.close()
        await self.wire.cut()
        await pause(0.01)

    async def version(self) -> str:
        told = json.loads(kubectl(self.cluster.kubeconfig, "version", "-o", "json"))
        return f"kube-apiserver {told['serverVersion']['gitVersion']}"

    def client(self) -> WayClient:
        """For one more adaptor, with the account that is good now."""
        client = KubeClient(self.config, reactor)
        self._clients.append(client)
        return WayClient(client, self.way)

    async def turn(self) -> None:
        await pause(0.1)

    # Writes to the cluster.

    async def put(self, resource: Resource, obj: Object, namespace: str = "") -> None:
        """Create the object, unless it exists."""
        whole = {"apiVersion": resource.api_version, "kind": resource.kind, **obj}
        try:
            await self.admin.create(resource, whole, namespace)
        except AlreadyExists:
            pass

    async def drop(self, resource: Resource, name: str, namespace: str = "") -> None:
        """Delete the object, if it exists."""
        try:
            await self.admin.delete(resource, name, namespace)
        except NotFound:
            pass

    async def token(self, account: str, namespace: str = ACCOUNTS) -> str:
        """A token of a ServiceAccount, which is made if need be."""
        await self.put(SERVICEACCOUNTS.resource, {"metadata": {"name": account}}, namespace)
        asked = {"kind": "TokenRequest", "apiVersion": TOKENREQUESTS.resource.api_version}
        answer = await self.admin.create(
            SERVICEACCOUNTS.resource,
            {**asked, "spec": {"audiences": [], "expirationSeconds": 3600}},
            namespace,
            subresource="token",
            name=account,
        )
        return str(answer["status"]["token"])

    async def bind(self, name: str, role: str, account: str, namespace: str = ACCOUNTS) -> None:
        """A ClusterRole for a ServiceAccount."""
        binding = _binding(name, "ClusterRole", role, account, namespace)
        await self.put(CLUSTERROLEBINDINGS.resource, binding)

    async def _answers(self, code: int) -> bool:
        asking = KubeClient(self.config, reactor)
        try:
            await asking.list(self.seen, self._role()["metadata"].get("namespace", ""))
        except APIError as error:
            return error.code == code
        finally:
            await asking.close()
        return code == 200

    # The way.

    async def break_down(self) -> None:
        await self.wire.cut()

    async def come_back(self) -> None:
        await self.wire.pass_on()

    async def stall(self) -> None:
        await self.wire.answer(b"")

    async def talk_nonsense(self) -> None:
        await self.wire.answer(b"SSH-2.0-nonsense\r\n")

    async def revoke(self) -> None:
        await self.drop(SERVICEACCOUNTS.resource, self.account, ACCOUNTS)
        await self.settled("the account is gone", lambda: self._answers(401))

    async def forbid(self) -> None:
        place = self._role()["metadata"].get("namespace", "")
        await self.drop(self._bindings(place), self.account, place)
        await self.settled("the account may nothing", lambda: self._answers(403))

    async def renew(self) -> None:
        self.number += 1
        self.account = f"manager-{time.monotonic_ns()}"
        token = await self.token(self.account)
        role = self._role()
        place = role["metadata"].get("namespace", "")
        binding = _binding(
            self.account, role["kind"], role["metadata"]["name"], self.account, ACCOUNTS
        )
        await self.put(self._bindings(place), binding, place)
        self.config = replace(self._config(), token=token)
        await self.settled("the account is known", lambda: self._answers(200))

    def _role(self) -> Object:
        found: Object = yaml.safe_load((ROLES / self.role).read_text())
        return found

    def _bindings(self, namespace: str) -> Resource:
        return (ROLEBINDINGS if namespace else CLUSTERROLEBINDINGS).resource

    def _config(self) -> ClientConfig:
        admin = load(self.cluster.kubeconfig)
        return ClientConfig(f"https://127.0.0.1:{self.wire.port}", ca=admin.ca)

    # CallMetrics.

    def calls(self) -> int:
        return self.way.requests

    def left(self) -> Sequence[str]:
        return ["a request"] * len(self.way.waiting)

    async def die_after(self, steps: int) -> None:
        self.way.lived, self.way.died = steps, False

    def died(self) -> bool:
        return self.way.died

    async def live(self) -> None:
        self.way.lived, self.way.died = None, False

    def kubeconfig(self, token: str) -> str:
        """Of the cluster itself, as an adopted one."""
        ca = base64.b64encode(load(self.cluster.kubeconfig).ca.read()).decode()
        cluster = {"server": self.cluster.url, "certificate-authority-data": ca}
        return yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "here", "cluster": cluster}],
                "users": [{"name": "user", "user": {"token": token}}],
                "contexts": [{"name": "it", "context": {"cluster": "here", "user": "user"}}],
                "current-context": "it",
            }
        )


def _binding(name: str, kind: str, role: str, account: str, namespace: str) -> Object:
    """A role for a ServiceAccount."""
    subject = {"kind": "ServiceAccount", "name": account, "namespace": namespace}
    reference = {"apiGroup": CLUSTERROLES.resource.group, "kind": kind, "name": role}
    return {"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]}
