"""
A node for the leaf cluster of the tutorial: ``python leaf_node.py DIRECTORY``.

Bind every Pod without a node to this host, run its containers as commands, and report their status to
the API server.  DIRECTORY holds the leaf's certificates and the kubeconfig ``admin``.
"""

from __future__ import annotations

import sys
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import react
from twisted.python import log

from twisted_exec.api.kinds import NODE_PODS, NODES
from twisted_exec.clients import (
    APIError,
    Conflict,
    KubeClient,
    NotFound,
    Reflector,
    load,
    timestamp,
)
from twisted_exec.services import ServerTLS, read_file
from twisted_exec.testing.kubelet import Container, Kubelet

NODE, PORT = "laptop", 10251
POD = NODE_PODS.resource


class Laptop:
    """The node ``laptop``: a kubelet and a watch of all Pods."""

    def __init__(self, reactor: Any, directory: str, port: int = PORT) -> None:
        self.port = port
        self.reactor, self.client = reactor, KubeClient(load(f"{directory}/admin"), reactor)
        certificate = f"{directory}/runtime-kubelet.crt", f"{directory}/runtime-kubelet.key"
        client_ca = f"{directory}/client-ca.crt"
        tls = ServerTLS(*certificate, client_cas=[client_ca], clock=reactor)
        self.kubelet = Kubelet(reactor, {}, tls=tls, client_ca=read_file(client_ca))
        self.pods = Reflector(self.client, POD, reactor, on_change=self.changed)

    async def start(self) -> None:
        """Listen as a kubelet, register the Node, then watch Pods."""
        listening = await self.kubelet.listen(f"tcp:{self.port}:interface=127.0.0.1")
        try:
            await self.client.create(NODES.resource, {"metadata": {"name": NODE}})
        except APIError as error:
            if error.code != Conflict.code:  # the Node of an earlier run is welcome
                raise
        status = {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": listening.getHost().port}},
            "conditions": [{"type": "Ready", "status": "True"}],
            "capacity": {"cpu": "4", "memory": "8Gi", "pods": "110"},
            "nodeInfo": {"kubeletVersion": "v1.33.1", "architecture": "amd64"},
        }
        await self.client.patch(NODES.resource, NODE, {"status": status}, subresource="status")
        self.pods.start()

    async def stop(self) -> None:
        """Stop watching, end all containers, close connections."""
        await self.pods.stop()
        await self.kubelet.stop()
        await self.client.close()

    def changed(self, before: Any, pod: Any) -> None:
        """Handle a Pod that was added, modified or deleted (``pod`` is ``None``)."""
        if pod is not None:
            Deferred.fromCoroutine(self.reconcile(pod)).addErrback(log.err)

    async def reconcile(self, pod: Any) -> None:
        """Bind, run or end a Pod."""
        metadata, node = pod["metadata"], pod["spec"].get("nodeName")
        namespace, name = metadata["namespace"], metadata["name"]
        if metadata.get("deletionTimestamp"):
            await self.end(namespace, name)
        elif not node:
            target = {"metadata": {"name": name}, "target": {"kind": "Node", "name": NODE}}
            await self.client.create(POD, target, namespace, subresource="binding", name=name)
        elif node == NODE and (namespace, name) not in self.kubelet.pods:
            containers = {spec["name"]: container(spec) for spec in pod["spec"]["containers"]}
            self.kubelet.add(namespace, name, containers)
            status = {"status": self.running(pod)}
            await self.client.patch(POD, name, status, namespace, subresource="status")

    async def end(self, namespace: str, name: str) -> None:
        """End the containers, then remove the Pod object."""
        if (namespace, name) in self.kubelet.pods:
            self.kubelet.remove(namespace, name)
        try:
            await self.client.delete(POD, name, namespace, grace_seconds=0)
        except NotFound:
            pass

    def running(self, pod: Any) -> Any:
        """Return the status of a Pod whose containers run."""
        now = timestamp(self.reactor.seconds())
        names = [spec["name"] for spec in pod["spec"]["containers"]]
        state = {"running": {"startedAt": now}}
        return {
            "phase": "Running",
            "hostIP": "127.0.0.1",
            "podIP": "127.0.0.1",
            "startTime": now,
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": now}],
            "containerStatuses": [
                {"name": name, "ready": True, "restartCount": 0, "state": state} for name in names
            ],
        }


def container(spec: Any) -> Container:
    """Return a container of a Pod spec as a command of this host."""
    environment = {
        variable["name"]: variable["value"]
        for variable in spec.get("env", [])
        if "value" in variable
    }
    command = [*spec.get("command", []), *spec.get("args", [])]
    return Container(command, tty=spec.get("tty", False), environment=environment)


async def main(reactor: Any, directory: str) -> None:
    """Run until a signal arrives."""
    laptop = Laptop(reactor, directory)
    try:
        await laptop.start()
    except APIError as error:
        sys.exit(f"leaf_node.py: {error.message}")
    print(f"node {NODE} is ready", flush=True)
    reactor.addSystemEventTrigger(
        "before", "shutdown", lambda: Deferred.fromCoroutine(laptop.stop())
    )
    await Deferred()


if __name__ == "__main__":
    react(lambda *args: Deferred.fromCoroutine(main(*args)), sys.argv[1:])
