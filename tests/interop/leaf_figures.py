"""
``kubectl top`` in a root whose Pods run in a leaf, by way of a real metrics-server.

The leaf's API server has a ``metrics.k8s.io`` that tells what the test says, as its own
metrics-server would.  That of the root asks ``exec-nodeserver`` as it asks any kubelet, makes rates
of its counters, and must come to what the leaf has told.
"""

from __future__ import annotations

import json
import ssl
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests import needs
from tests.interop.hosts import HostCluster, kubectl
from tests.interop.leaf_clusters import (
    KUBELET_CLIENT,
    LEAF_NODE,
    ROOT_NODE,
    LeafClusters,
)
from tests.interop.programs import free_port
from twisted_exec.api.times import timestamp

WINDOW_SECONDS = 15
RESULTS_SECONDS = 150
"""A metrics-server tells nothing before it has two measurements."""

_API = {"apiVersion": "metrics.k8s.io/v1beta1"}
_NAME = {"name": "metrics-server", "namespace": "kube-system"}


class Figures(ThreadingHTTPServer):
    """
    ``metrics.k8s.io`` of a leaf, on loopback.

    :ivar cpu: what the containers of ``default/web`` use, by name.
    """

    def __init__(self, certificate: str, key: str) -> None:
        super().__init__(("localhost", 0), _Handler)
        self.cpu = {"main": "250m", "echo": "5m", "screen": "0", "talker": "1500u"}
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self.socket = context.wrap_socket(self.socket, server_side=True)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def document(self, path: str) -> dict[str, Any]:
        at = timestamp(time.time() // WINDOW_SECONDS * WINDOW_SECONDS)
        told = {"timestamp": at, "window": f"{WINDOW_SECONDS}s"}
        if path.endswith("/pods"):
            used = [
                {"name": name, "usage": {"cpu": cpu, "memory": "64Mi"}}
                for name, cpu in self.cpu.items()
            ]
            metadata = {"name": "web", "namespace": "default"}
            item = {"metadata": metadata, **told, "containers": used}
            return {**_API, "kind": "PodMetricsList", "metadata": {}, "items": [item]}
        if path.endswith("/nodes"):
            usage = {"cpu": "2", "memory": "4Gi"}
            item = {"metadata": {"name": LEAF_NODE}, **told, "usage": usage}
            return {**_API, "kind": "NodeMetricsList", "metadata": {}, "items": [item]}
        kinds = [("pods", "PodMetrics", True), ("nodes", "NodeMetrics", False)]
        resources = [
            {"name": name, "kind": kind, "namespaced": namespaced, "verbs": ["get", "list"]}
            for name, kind, namespaced in kinds
        ]
        group = {"groupVersion": _API["apiVersion"], "resources": resources}
        return {"kind": "APIResourceList", "apiVersion": "v1", **group}


class _Handler(BaseHTTPRequestHandler):
    server: Figures
    protocol_version = "HTTP/1.1"

    def log_message(self, *told: object) -> None:
        """Discard the log."""

    def do_GET(self) -> None:
        body = json.dumps(self.server.document(self.path.partition("?")[0])).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def serve(cluster: HostCluster, port: int) -> None:
    """Have ``metrics.k8s.io`` of a cluster answered at a port of this host."""
    cluster.apply(
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": _NAME,
            "spec": {"type": "ExternalName", "externalName": "localhost"},
        },
        {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": "v1beta1.metrics.k8s.io"},
            "spec": {
                "service": {**_NAME, "port": port},
                "group": "metrics.k8s.io",
                "version": "v1beta1",
                "insecureSkipTLSVerify": True,
                "groupPriorityMinimum": 100,
                "versionPriority": 100,
            },
        },
    )


class FiguresTests(SynchronousTestCase):
    """Two real clusters, the root with a metrics-server."""

    timeout = 600
    skip = needs.leaf_clusters() or needs.metrics_server()

    def setUp(self) -> None:
        self.clusters = LeafClusters("figures")
        self.addCleanup(self.clusters.stop)
        self.clusters.start()
        pair = self.clusters.node_server
        self.figures = Figures(pair.certificate, pair.key)
        self.addCleanup(self.figures.server_close)
        self.addCleanup(self.figures.shutdown)
        serve(self.clusters.leaf, self.figures.server_port)
        self.clusters.add_pod()
        self.clusters.start_node_server()
        self.clusters.wait_for_node()
        self.start_metrics_server()

    def start_metrics_server(self) -> None:
        root, port = self.clusters.root, free_port()
        known_as = root.user("metrics-server", ["system:masters"])
        shown = root.client(KUBELET_CLIENT, ["system:masters"])
        root.programs.run(
            "metrics-server",
            needs.metrics_server_program(),
            f"--secure-port={port}",
            f"--cert-dir={root.programs.path('metrics-server')}",
            *(
                f"--{what}kubeconfig={known_as}"
                for what in ("", "authentication-", "authorization-")
            ),
            f"--kubelet-certificate-authority={root.pki.serving_ca}",
            f"--kubelet-client-certificate={shown.certificate}",
            f"--kubelet-client-key={shown.key}",
            "--kubelet-preferred-address-types=InternalDNS,InternalIP",
            "--kubelet-use-node-status-port",
            f"--metric-resolution={WINDOW_SECONDS}s",
        )
        serve(root, port)

    def top(self, *what: str) -> dict[str, str]:
        """Processor time, by the last name on each line."""
        told = kubectl(
            self.clusters.root.kubeconfig, "top", *what, "--no-headers", check=False
        ).splitlines()
        words = [line.split() for line in told]
        if what[0] == "pods":
            return {line[1]: line[2] for line in words}
        return {line[0]: line[1] for line in words}

    def until_told(self, what: tuple[str, ...], wanted: dict[str, str]) -> None:
        self.clusters.root.programs.until(
            f"top {what}", lambda: self.top(*what) == wanted, RESULTS_SECONDS
        )

    def test_top(self) -> None:
        """The root shows the leaf's figures, also of idle containers."""
        containers = ("pods", "--containers")
        wanted = {"main": "250m", "echo": "5m", "screen": "0m", "talker": "2m"}
        self.until_told(containers, wanted)
        self.until_told(("nodes",), {ROOT_NODE: "2000m"})
        self.figures.cpu["main"] = "750m"
        self.until_told(containers, {**wanted, "main": "750m"})
