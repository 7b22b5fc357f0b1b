"""
``exec-nodeserver`` beside Kosmos, as in the how-to: Kosmos's Cluster objects in each of their
leaf modes, Nodes that Kosmos writes every few seconds, and Pods that Kosmos made.

:class:`Kosmos` replaces ``clustertree-cluster-manager`` here: it writes the same objects, and as
often as a test needs.  Source: ``kosmos-io/kosmos``, ``pkg/clustertree/
cluster-manager/utils`` (``leaf_model_handler.go``: ``createNode`` and ``UpdateRootNodeStatus``;
``rootcluster.go``: ``GetAddress``), as of March 2025.  All else is real: two kube-apiservers, every
kubectl.
"""

from __future__ import annotations

import base64
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests import needs
from tests.flows import kubectls
from tests.interop.hosts import HostCluster, kubectl
from tests.interop.leaf_actions import ACTIONS, Kubectl, until
from tests.interop.leaf_clusters import LEAF_NODE, PODS, LeafClusters, pod
from tests.interop.leaf_registry import CRD

ALL, NODE, PARTY = "kosmos-all", LEAF_NODE, "kosmos-some-0"
"""The Nodes of the three modes: of a leaf, of one node of it, and of some of its nodes."""
MODELS: dict[str, list[dict[str, Any]]] = {
    "all": [],
    "node": [{"leafNodeName": "one", "nodeSelector": {"nodeName": LEAF_NODE}}],
    "party": [
        {"leafNodeName": "some", "nodeSelector": {"labelSelector": {"matchLabels": {"in": "it"}}}}
    ],
}
"""``leafModels`` by the name of the Cluster."""
ON = {"web": ALL, "db": NODE, "cache": PARTY}
"""The Pods of the root, and where they are."""
MANAGER = "clustertree-cluster-manager"
LISTENS = 10250
"""Kosmos's own ``--listen-port``."""
OUR_ADDRESS, ITS_ADDRESS = "127.0.0.1", "127.0.0.9"
WRITES_SECONDS = 1.0
ROUNDS = 5
KUBECTLS = ("kubectl.1.27", "kubectl.1.30", "kubectl.1.33")
"""The last that knows SPDY alone, the first that would rather have WebSockets, and a newer one."""


class Kosmos:
    """
    Writes the objects of Kosmos into a root.

    :param address: its ``LEAF_NODE_IP``.
    :ivar nodes: the Cluster of each Node that it maintains.
    :ivar rounds: how often it has written all Nodes.
    """

    def __init__(self, clusters: LeafClusters, address: str) -> None:
        self.clusters, self.address = clusters, address
        self.nodes: dict[str, str] = {}
        self.rounds = 0
        self._stopped = Event()
        self._thread = Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Write them again and again."""
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(WRITES_SECONDS):
            for name in self.nodes:
                self.write(name)
            self.rounds += 1

    def make(self, name: str, cluster: str) -> None:
        """A Node, and in it the port, which is written now and never again."""
        self.clusters.root.apply(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {
                    "name": name,
                    "labels": {"kosmos.io/node": "true"},
                    "annotations": {"kosmos-io/owned-by-cluster": cluster},
                },
            }
        )
        node = self.ask(self.clusters.root, f"nodes/{name}")
        node["status"]["daemonEndpoints"] = {"kubeletEndpoint": {"Port": LISTENS}}
        self.ask(self.clusters.root, f"nodes/{name}/status", node)
        self.nodes[name] = cluster

    def write(self, name: str) -> None:
        """The status of one, addresses before all; where it stands for one node, that one's whole."""
        node = self.ask(self.clusters.root, f"nodes/{name}")
        of_leaf = self.ask(self.clusters.leaf, f"nodes/{LEAF_NODE}")["status"]
        if name == NODE:
            node["status"] = dict(of_leaf)
        own = {"type": "InternalDNS", "address": self.address}
        node["status"]["addresses"] = [own, *of_leaf["addresses"]]
        try:
            self.ask(self.clusters.root, f"nodes/{name}/status", node)
        except urllib.error.HTTPError as error:
            if error.code != 409:  # Kosmos tries it again, too.
                raise

    def ask(self, cluster: HostCluster, path: str, put: Any = None) -> Any:
        """GET, or PUT."""
        admin = cluster.client("admin", ["system:masters"])
        context = ssl.create_default_context(cafile=cluster.pki.serving_ca)
        context.load_cert_chain(admin.certificate, admin.key)
        request = urllib.request.Request(
            f"{cluster.url}/api/v1/{path}",
            None if put is None else json.dumps(put).encode(),
            {"Content-Type": "application/json", "User-Agent": f"{MANAGER}/v0.0.0"},
            method="GET" if put is None else "PUT",
        )
        with urllib.request.urlopen(request, context=context, timeout=30) as answer:
            return json.load(answer)


class BesideKosmos(SynchronousTestCase):
    """A root, a leaf, and three Clusters that are that leaf."""

    timeout = 600
    skip = needs.leaf_clusters()

    def setUp(self) -> None:
        with ExitStack() as ending:
            self.clusters = LeafClusters("beside")
            ending.callback(self.clusters.stop)
            self.clusters.start(dict.fromkeys(ON, PODS["web"]))
            self.kosmos = Kosmos(self.clusters, OUR_ADDRESS)
            ending.callback(self.kosmos.stop)
            self.addCleanup(ending.pop_all().close)
        kubectl(self.clusters.leaf.kubeconfig, "label", "node", LEAF_NODE, "in=it")
        self.clusters.root.apply(CRD)
        self.clusters.programs.until("clusters", lambda: self.get("clusters.kosmos.io", "{.kind}"))
        for name in MODELS:
            self.put_cluster(name)
        for name, cluster in ((ALL, "all"), (NODE, "node"), (PARTY, "party")):
            self.kosmos.make(name, cluster)
        for name, node in ON.items():
            self.put_pods(name, node)

    def get(self, what: str, path: str) -> str:
        query = ["get", *what.split(), "-o", f"jsonpath={path}"]
        return kubectl(self.clusters.root.kubeconfig, *query, check=False)

    def put_cluster(self, name: str, user: str = "an-administrator") -> None:
        """Create a Cluster with the kubeconfig of an administrator of the leaf."""
        known_as = Path(self.clusters.leaf.user(user, ["system:masters"])).read_bytes()
        tree = {"enable": True, **({"leafModels": MODELS[name]} if MODELS[name] else {})}
        self.clusters.root.apply(
            {
                "apiVersion": "kosmos.io/v1alpha1",
                "kind": "Cluster",
                "metadata": {"name": name},
                "spec": {
                    "kubeconfig": base64.b64encode(known_as).decode(),
                    "clusterTreeOptions": tree,
                },
            }
        )

    def put_pods(self, name: str, node: str) -> None:
        """A Pod of the root, and the one that Kosmos makes of it: with its label, and the same name."""
        in_leaf = pod(name, list(PODS["web"]), LEAF_NODE)
        in_leaf["metadata"]["labels"] = {"kosmos-io/pod": "true"}
        self.clusters.root.apply(pod(name, list(PODS["web"]), node))
        self.clusters.leaf.apply(in_leaf)
        for cluster in (self.clusters.root, self.clusters.leaf):
            path = f"namespaces/default/pods/{name}"
            self.clusters.patch_status(cluster, path, {"phase": "Running"})

    def start_node_server(self, port: int = 0) -> None:
        """As the how-to says."""
        self.clusters.start_node_server("--kosmos", "--upkeep=endpoints", port=port)
        self.kosmos.start()

    def client(self, name: str) -> Kubectl:
        """A kubectl at the root."""
        scratch = self.clusters.programs.directory / name
        scratch.mkdir()
        program, root = kubectls.found()[name], self.clusters.root.kubeconfig
        return Kubectl(program, root, scratch, self.clusters.logged_between)

    def until(self, what: str, condition: Callable[[], object]) -> None:
        self.clusters.programs.until(what, condition)

    def is_reached(self, name: str) -> bool:
        argv = ["exec", name, "-c", "main", "--", "echo", "through"]
        return kubectl(self.clusters.root.kubeconfig, *argv, check=False) == "through\n"

    def versions(self) -> list[str]:
        return [
            self.get(f"node {name}", "{.metadata.resourceVersion}") for name in self.kosmos.nodes
        ]

    def pass_rounds(self) -> None:
        """Kosmos has written all of them several times, and we have seen it."""
        rounds = self.kosmos.rounds + ROUNDS
        self.until("rounds", lambda: self.kosmos.rounds > rounds)

    def contested(self, node: str) -> str:
        """Return the messages of the AddressesContested Events of a Node."""
        selector = f"--field-selector=involvedObject.name={node},reason=AddressesContested"
        return self.get(f"events {selector}", "{range .items[*]}{.message}{'\\n'}{end}")

    def test_modes(self) -> None:
        """
        At Kosmos's address and at the port of the leaf's kubelet nothing is left to argue about in
        any mode, and every kubectl does all that it does with a Pod of this cluster.
        """
        self.start_node_server(port=self.clusters.kubelet_port)
        for name in ON:
            self.until(name, partial(self.is_reached, name))
        self.pass_rounds()
        before = self.versions()
        for each in KUBECTLS:
            one = self.client(each)
            for act in ACTIONS.values():
                act(one)
        self.pass_rounds()
        self.assertEqual(self.versions(), before)
        self.assertEqual([self.contested(node) for node in self.kosmos.nodes], [""] * 3)

    def test_contested(self) -> None:
        """An Event reports that two managers write the Node in turns, and its remedy works."""
        self.kosmos.address = ITS_ADDRESS
        self.start_node_server()
        wanted = f"LEAF_NODE_IP={OUR_ADDRESS} and PREFERRED-ADDRESS-TYPE=InternalDNS"
        self.until("all", lambda: all(wanted in self.contested(node) for node in self.kosmos.nodes))
        self.assertTrue(self.contested(ALL).startswith(f"{MANAGER} and this node server"))
        self.kosmos.address = OUR_ADDRESS
        self.until("address", lambda: self.is_reached("web") and self.is_reached("cache"))
        port = f"port {self.clusters.kubelet_port} and "
        self.until("port", lambda: port in self.contested(NODE))

    def test_changes(self) -> None:
        """A new kubeconfig ends no session; deleting a Cluster ends its sessions with a reason."""
        self.start_node_server()
        self.until("reached", lambda: self.is_reached("web"))
        one = self.client(KUBECTLS[-1])
        loop = 'echo up; while read -r line; do echo "<$line>"; done'
        with one.running("exec", "-i", "web", "-c", "main", "--", "sh", "-c", loop) as process:
            assert process.stdin is not None and process.stdout is not None
            until(process.stdout.fileno(), b"up")
            self.put_cluster("all", "another-administrator")
            self.until("reached", lambda: self.is_reached("web"))
            process.stdin.write(b"still here\n")
            process.stdin.flush()
            until(process.stdout.fileno(), b"<still here>")
            kubectl(self.clusters.root.kubeconfig, "delete", "clusters.kosmos.io", "all")
            said = process.stdout.read().decode()
            self.assertIn(f'node "{ALL}" does not stand for leaf "all" now', said)
            self.assertEqual(process.wait(), 1)
        _, _, refused = one.run("exec", "web", "-c", "main", "--", "true")
        # Kosmos leaves its Node behind, and the Pods on it.
        self.assertIn(f'node "{ALL}" stands for no leaf cluster here', refused.decode())
        # Kosmos writes the leaf's port into this Node, so it is reachable only now and then.
        self.until("db", lambda: self.is_reached("db"))

    def test_strangers(self) -> None:
        """A Pod of the leaf that merely has the name is not reached, as it was with Kosmos."""
        self.start_node_server()
        self.until("reached", lambda: self.is_reached("web"))
        kubectl(self.clusters.leaf.kubeconfig, "label", "pod", "web", "kosmos-io/pod-")
        self.until("label", lambda: not self.is_reached("web"))
        _, _, refused = self.client(KUBECTLS[0]).run("exec", "web", "-c", "main", "--", "true")
        self.assertIn(b"has a pod of that name, but it was not made for this one", refused)
