"""
Two real clusters and a node server of ours between them.

Two kube-apiservers, *root* and *leaf*, are on one etcd under two prefixes.  The leaf has one node
whose kubelet is made of the parts of real ones (``kubelet/node``), with processes of this host for
containers.  The root has only nodes that ``exec-nodeserver`` serves, and no kubelet runs the Pods
on them: :meth:`LeafClusters.add_pod` makes a Pod in the root and its counterpart in the leaf, as a
syncer would.
"""

from __future__ import annotations

import json
import ssl
import urllib.request
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml

from tests import needs
from tests.interop.chains import ours
from tests.interop.hosts import HostCluster, kubectl
from tests.interop.programs import answers, free_port
from twisted_exec.tls.pki.authority import Issued
from twisted_exec.tls.pki.directory import SERVING, Pair

ROOT_NODE, LEAF_NODE = "leaf-1", "worker"
LEAF_ADDRESS = "127.0.0.7"
"""The leaf's node has an address of its own, which the root cannot mistake for the node server's."""

KUBELET_CLIENT = "kube-apiserver-kubelet-client"
NODE_SERVER = "exec-nodeserver"
LINES = [f"line {number}" for number in range(1, 21)]
"""Of the log of the container ``main`` of :data:`PODS`, the last ones a minute after the first."""

PODS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "web": {
        "main": {"command": []},
        "echo": {
            "command": ["sh", "-c", 'echo ready; while read -r line; do echo "<$line>"; done']
        },
        "screen": {"command": ["sh", "-c", "while read -r line; do stty size; done"], "tty": True},
        "talker": {
            "command": ["sh", "-c", "n=0; while :; do n=$((n+1)); echo tick $n; sleep 0.2; done"]
        },
    }
}
"""For ``add_pod``: what a kubelet of ours would run."""

ANYWHERE = [{"operator": "Exists"}]


class LeafClusters:
    """
    Two clusters, and the node servers between them.

    :param root_program: a kube-apiserver for the root; tables show its ``root_version``.
    :param store_program: an etcd.
    :ivar root: the cluster that users connect to.
    :ivar leaf: the cluster that runs Pods.
    :ivar preferred: types of addresses, in the order in which the root looks for one to dial.
    :ivar health_ports: where each node server answers probes.
    """

    def __init__(
        self,
        name: str = "leaves",
        root_program: str | None = None,
        leaf_program: str | None = None,
        store_program: str = "etcd",
    ) -> None:
        default = needs.kube_apiserver_program() or ""
        self.root = HostCluster(root_program or default, f"{name}-root")
        self.leaf = HostCluster(leaf_program or default, f"{name}-leaf", self.root.store)
        self.programs = self.root.programs
        self.store_program = store_program
        self.kubelet_port, self.preferred = free_port(), "InternalDNS,InternalIP"
        self.health_ports: dict[str, int] = {}

    def stop(self) -> None:
        """End all programs, clients before servers, so that no server ends during an answer."""
        for name in self.health_ports:
            self.programs.end(name)
        self.leaf.stop()
        self.root.stop()

    def start(
        self,
        pods: Mapping[str, Mapping[str, Mapping[str, Any]]] = PODS,
        *,
        root_flags: Sequence[str] = (),
    ) -> None:
        """Returns when both clusters answer, and the leaf has a node with a kubelet."""
        self.root.start_store(self.store_program)
        self.node_server = self._issue("node-server", ["127.0.0.1", "localhost"])
        shown = self.root.client(KUBELET_CLIENT, ["system:masters"])
        self._start_kube(
            self.root,
            "/root",
            f"--kubelet-certificate-authority={self.root.pki.serving_ca}",
            f"--kubelet-client-certificate={shown.certificate}",
            f"--kubelet-client-key={shown.key}",
            f"--kubelet-preferred-address-types={self.preferred}",
            *root_flags,
        )
        shown = self.leaf.client(KUBELET_CLIENT, ["system:masters"])
        self._start_kube(
            self.leaf,
            "/leaf",
            f"--kubelet-certificate-authority={self.leaf.pki.serving_ca}",
            f"--kubelet-client-certificate={shown.certificate}",
            f"--kubelet-client-key={shown.key}",
            "--kubelet-preferred-address-types=InternalIP,ExternalIP,Hostname",
        )
        self.start_kubelet(pods)
        self.leaf.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": LEAF_NODE}})
        self.patch_status(self.leaf, f"nodes/{LEAF_NODE}", self._leaf_status())

    def _start_kube(self, cluster: HostCluster, prefix: str, *flags: str) -> None:
        serving, front = cluster.pki.issue_apiserver(["localhost", "127.0.0.1"], replace=True)
        cluster.start_kube(
            serving,
            front,
            cluster.pki.forwarding_ca,
            "exec-apiserver",
            f"--etcd-prefix={prefix}",
            "--endpoint-reconciler-type=none",
            "--advertise-address=127.0.0.1",
            *flags,
        )

    def _issue(self, name: str, names: Sequence[str]) -> Pair:
        """A serving certificate that the root trusts."""
        issued: Issued = self.root.pki.authority(SERVING).issue_server(list(names))
        pair = self.root.pki.pair(name)
        issued.write(pair.certificate, pair.key)
        return pair

    def start_kubelet(self, pods: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> None:
        """The kubelet of the leaf's node; ``main`` has a log, and one of the run before."""
        issued = self.leaf.pki.authority(SERVING).issue_server([LEAF_ADDRESS])
        pair = self.leaf.pki.pair("kubelet")
        issued.write(pair.certificate, pair.key)
        told = {f"default/{pod}": containers for pod, containers in pods.items()}
        logs = self.leaf.programs.directory / "logs"
        for pod, containers in pods.items():
            if "main" in containers:
                self._write_logs(logs / f"default_{pod}_main")
        self.leaf.programs.run(
            "kubelet",
            needs.kubelet_node_program(),
            f"--listen={LEAF_ADDRESS}:{self.kubelet_port}",
            f"--tls-cert-file={pair.certificate}",
            f"--tls-private-key-file={pair.key}",
            f"--client-ca-file={self.leaf.pki.client_ca}",
            f"--pods={self.leaf.programs.write('pods.json', json.dumps(told))}",
            f"--logs={logs}",
        )
        self.leaf.programs.until("kubelet", lambda: self.leaf.programs.log("kubelet"))

    def _write_logs(self, directory: Path) -> None:
        """Ten lines an hour ago, ten a minute ago."""
        directory.mkdir(parents=True)
        now = datetime.now(UTC)
        self.logged_between = now - timedelta(minutes=10)
        ages = [timedelta(hours=1)] * 10 + [timedelta(minutes=1)] * 10
        directory.joinpath("1.log").write_text(
            "".join(
                f"{now - age:%Y-%m-%dT%H:%M:%S}.{number:09d}Z stdout F {line}\n"
                for number, (age, line) in enumerate(zip(ages, LINES, strict=True))
            )
        )
        before = f"{now - timedelta(hours=2):%Y-%m-%dT%H:%M:%S}.000000000Z"
        directory.joinpath("0.log").write_text(f"{before} stderr F crashed\n")

    def _leaf_status(self) -> dict[str, Any]:
        return {
            "addresses": [
                {"type": "InternalIP", "address": LEAF_ADDRESS},
                {"type": "Hostname", "address": LEAF_NODE},
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self.kubelet_port}},
            "conditions": [{"type": "Ready", "status": "True"}],
            "capacity": {"cpu": "8", "memory": "16Gi", "pods": "110"},
            "nodeInfo": {"kubeletVersion": "v1.33.1", "architecture": "amd64"},
        }

    def patch_status(self, cluster: HostCluster, what: str, status: dict[str, Any]) -> None:
        """
        Merge into an object's status, which old kubectls cannot.

        :param what: its path below that of its group.
        """
        admin = cluster.client("admin", ["system:masters"])
        context = ssl.create_default_context(cafile=cluster.pki.serving_ca)
        context.load_cert_chain(admin.certificate, admin.key)
        request = urllib.request.Request(
            f"{cluster.url}/api/v1/{what}/status",
            json.dumps({"status": status}).encode(),
            {"Content-Type": "application/merge-patch+json"},
            method="PATCH",
        )
        urllib.request.urlopen(request, context=context, timeout=30).close()

    def add_pod(self, name: str = "web", containers: Sequence[str] = ()) -> None:
        """A Pod on our Node in the root, and the one behind it in the leaf; both run."""
        names = list(containers or PODS[name])
        root = pod(name, names, ROOT_NODE)
        self.root.apply(root)
        found = kubectl(self.root.kubeconfig, "get", "pod", name, "-o", "jsonpath={.metadata.uid}")
        leaf = pod(name, names, LEAF_NODE)
        leaf["metadata"] |= {
            "labels": {"leaf.twisted-exec.dev/root": "root"},
            "annotations": {
                "leaf.twisted-exec.dev/pod-uid": found,
                "leaf.twisted-exec.dev/pod-name": name,
                "leaf.twisted-exec.dev/pod-namespace": "default",
            },
        }
        self.leaf.apply(leaf)
        for cluster in (self.root, self.leaf):
            self.patch_status(cluster, f"namespaces/default/pods/{name}", {"phase": "Running"})

    def start_node_server(
        self, *options: str, name: str = NODE_SERVER, port: int = 0, leaf_kubeconfig: str = ""
    ) -> int:
        """
        ``exec-nodeserver``, with both identities of administrators.

        :param name: of another replica, in ``programs``.
        :param port: to listen on; a free one by default.
        :return: its port, when it is ready.
        """
        port, health = port or free_port(), free_port()
        self.health_ports[name] = health
        known_as = leaf_kubeconfig or self.leaf.user(NODE_SERVER, ["system:masters"])
        leaf = {"name": "one", "kubeconfig": {"file": known_as}, "nodes": [{"name": ROOT_NODE}]}
        leaves = self.programs.write("leaves.yaml", yaml.safe_dump({"leaves": [leaf]}))
        self.programs.run(
            name,
            *ours("exec-nodeserver"),
            f"--kubeconfig={self.root.user(NODE_SERVER, ['system:masters'])}",
            f"--listen=tcp:{port}:interface=127.0.0.1",
            f"--tls-cert-file={self.node_server.certificate}",
            f"--tls-private-key-file={self.node_server.key}",
            f"--client-ca-file={self.root.pki.client_ca}",
            f"--health-listen=tcp:{health}:interface=127.0.0.1",
            f"--leaves={leaves}",
            f"--kubelet-preferred-address-types={self.preferred}",
            *options,
            env={"LEAF_NODE_IP": "127.0.0.1"},
        )
        self.programs.until(name, lambda: answers(f"http://127.0.0.1:{health}/readyz"))
        return port

    def wait_for_node(self) -> None:
        """Returns when the node server has made its Node, and the root would dial it."""
        query = ["get", "node", ROOT_NODE, "-o", "jsonpath={.status.addresses[0].address}"]
        self.programs.until(
            "node", lambda: kubectl(self.root.kubeconfig, *query, check=False) == "127.0.0.1"
        )

    def publish(self, port: int, *, declares: bool = False, node: str = ROOT_NODE) -> None:
        """
        Make a Node by hand, for node servers that do not maintain it.

        :param declares: whether the Node declares support of WebSockets.
        """
        self.root.apply(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": node},
                "spec": {"taints": []},
            }
        )
        status = self._leaf_status()
        status["addresses"].insert(0, {"type": "InternalDNS", "address": "127.0.0.1"})
        status["daemonEndpoints"]["kubeletEndpoint"]["Port"] = port
        if declares:
            status["declaredFeatures"] = ["ExtendWebSocketsToKubelet"]
        self.patch_status(self.root, f"nodes/{node}", status)


def pod(name: str, containers: Sequence[str], node: str) -> dict[str, Any]:
    """Return a Pod that is already bound, with images that do not exist."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "nodeName": node,
            "tolerations": ANYWHERE,
            "containers": [{"name": one, "image": "none"} for one in containers],
        },
    }
