"""
A node of a leaf cluster that is this laptop: ``python leaf_node.py DIRECTORY``.

It takes every Pod that no node has, runs its containers as commands of this host, and tells the API
server how they are.  The directory is that of the leaf's certificates, see the tutorial.
"""

from __future__ import annotations

import sys
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import react
from twisted.python import log

from twisted_exec.api.kinds import NODE_PODS, NODES
from twisted_exec.api.status import APIError, Conflict, NotFound
from twisted_exec.api.times import timestamp
from twisted_exec.kube.client import KubeClient
from twisted_exec.kube.kubeconfig import load
from twisted_exec.kube.watch import Reflector
from twisted_exec.testing.kubelet import Container, Kubelet
from twisted_exec.tls.files import read_file
from twisted_exec.tls.server import ServerTLS

NODE, PORT = "laptop", 10251
POD = NODE_PODS.resource


class Laptop:
    """The node."""

    def __init__(self, reactor: Any, directory: str, port: int = PORT) -> None:
        self.port = port
        self.reactor, self.client = reactor, KubeClient(load(f"{directory}/admin"), reactor)
        certificate = f"{directory}/runtime-kubelet.crt", f"{directory}/runtime-kubelet.key"
        client_ca = f"{directory}/client-ca.crt"
        tls = ServerTLS(*certificate, client_cas=[client_ca], clock=reactor)
        self.kubelet = Kubelet(reactor, {}, tls=tls, client_ca=read_file(client_ca))
        self.pods = Reflector(self.client, POD, reactor, on_change=self.changed)

    async def start(self) -> None:
        """Be a node."""
        listening = await self.kubelet.listen(f"tcp:{self.port}:interface=127.0.0.1")
        try:
            await self.client.create(NODES.resource, {"metadata": {"name": NODE}})
        except APIError as refused:
            if refused.code != Conflict.code:  # it is there already
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
        """Be one no longer."""
        await self.pods.stop()
        await self.kubelet.stop()
        await self.client.close()

    def changed(self, before: Any, pod: Any) -> None:
        """A Pod is new, another, or gone."""
        if pod is not None:
            Deferred.fromCoroutine(self.look(pod)).addErrback(log.err)

    async def look(self, pod: Any) -> None:
        """Take it, run it or end it."""
        metadata, node = pod["metadata"], pod["spec"].get("nodeName")
        namespace, name = metadata["namespace"], metadata["name"]
        if metadata.get("deletionTimestamp"):
            await self.end(namespace, name)
        elif not node:
            target = {"metadata": {"name": name}, "target": {"kind": "Node", "name": NODE}}
            await self.client.create(POD, target, namespace, subresource="binding", name=name)
        elif node == NODE and (namespace, name) not in self.kubelet.pods:
            containers = {one["name"]: container(one) for one in pod["spec"]["containers"]}
            self.kubelet.add(namespace, name, containers)
            status = {"status": self.running(pod)}
            await self.client.patch(POD, name, status, namespace, subresource="status")

    async def end(self, namespace: str, name: str) -> None:
        """Say that nothing of it is left."""
        if (namespace, name) in self.kubelet.pods:
            self.kubelet.remove(namespace, name)
        try:
            await self.client.delete(POD, name, namespace, grace_seconds=0)
        except NotFound:
            pass

    def running(self, pod: Any) -> Any:
        """The status of a Pod whose containers run."""
        now = timestamp(self.reactor.seconds())
        names = [one["name"] for one in pod["spec"]["containers"]]
        state = {"running": {"startedAt": now}}
        return {
            "phase": "Running",
            "hostIP": "127.0.0.1",
            "podIP": "127.0.0.1",
            "startTime": now,
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": now}],
            "containerStatuses": [
                {"name": each, "ready": True, "restartCount": 0, "state": state} for each in names
            ],
        }


def container(told: Any) -> Container:
    """A container of a Pod, as a command of this host."""
    environment = {one["name"]: one["value"] for one in told.get("env", []) if "value" in one}
    command = [*told.get("command", []), *told.get("args", [])]
    return Container(command, tty=told.get("tty", False), environment=environment)


async def main(reactor: Any, directory: str) -> None:
    """Run until it is interrupted."""
    laptop = Laptop(reactor, directory)
    try:
        await laptop.start()
    except APIError as refused:
        sys.exit(f"leaf_node.py: {refused.message}")
    print(f"node {NODE} is ready", flush=True)
    reactor.addSystemEventTrigger(
        "before", "shutdown", lambda: Deferred.fromCoroutine(laptop.stop())
    )
    await Deferred()


if __name__ == "__main__":
    react(lambda *args: Deferred.fromCoroutine(main(*args)), sys.argv[1:])
