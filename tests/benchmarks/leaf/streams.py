"""
A Pod of a leaf cluster, through root and node server, against the same leaf asked directly.

kubectl does all of them in turn, round after round, and each round begins with another, so that a
drifting machine drifts for all.  The clusters are real ones (see :mod:`tests.interop`), with
kubelets whose containers are processes of this host.  It prints:
* the least time of each way, which other work on the machine can only have made longer, and the
  median;
* the processor's time of every process of the chain: on two cores, on which all of them run,
  nothing can take less time than half of their sum, and no one process is in the way of that.

The ways:

``leaf alone``
    kubectl, the leaf's kube-apiserver, its kubelet.
``root alone``
    kubectl, the root's kube-apiserver, and a kubelet that is a Node of the root: as long, with the
    root's.
``ours``
    through the root and ``exec-nodeserver`` to the leaf: two kube-apiservers.
``nginx``
    nginx in the node server's place, the least that any hop there can take: it acts as a kubelet
    for a single command, which is written into its configuration, and authenticates no client.
"""

from __future__ import annotations

import json
import os
import resource
import socket
import statistics
import subprocess
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests import needs, procfs
from tests.flows import kubectls
from tests.interop.leaf_clusters import NODE_SERVER, LeafClusters, pod
from tests.interop.programs import free_port

BULK_BYTES = 200_000_000
ROUNDS = 7
OPENINGS = 40
COMMANDS = {
    "bulk": ("head", "-c", str(BULK_BYTES), "/dev/zero"),
    "nothing": ("true",),
}
NGINX_NODE = "nginx"
NEAR_NODE, NEAR = "near", "near"
"""A Node of the root that is no leaf's, and its Pod."""

_NGINX = """
worker_processes 1;
daemon off;
pid {directory}/nginx.pid;
error_log {directory}/nginx.log;
events {{ worker_connections 1024; }}
http {{
  access_log off;
  server {{
    listen 127.0.0.1:{port} ssl;
    ssl_certificate {shown.certificate};
    ssl_certificate_key {shown.key};
    ssl_client_certificate {client_ca};
    ssl_verify_client on;
    proxy_http_version 1.1;
    proxy_set_header Connection Upgrade;
    proxy_set_header Upgrade $http_upgrade;
    proxy_buffer_size 64k;
    proxy_buffers 8 64k;
    proxy_ssl_certificate {identity.certificate};
    proxy_ssl_certificate_key {identity.key};
    proxy_ssl_trusted_certificate {serving_ca};
    proxy_ssl_verify on;
    proxy_ssl_name localhost;
    {locations}
  }}
}}
"""
_LOCATION = """
    location /exec/default/{name}/ {{
      rewrite ^ /api/v1/namespaces/default/pods/web/exec?container=main&stdout=true&stderr=true{words}? break;
      proxy_pass https://127.0.0.1:{leaf};
    }}
"""


def nginx(clusters: LeafClusters) -> None:
    """nginx as the kubelet of one Pod for each command, of a Node of its own."""
    port, locations = free_port(), []
    clusters.publish(port, node=NGINX_NODE)
    for name, command in COMMANDS.items():
        add_running(clusters, name, NGINX_NODE)
        words = "".join(f"&command={word}" for word in command)
        locations.append(_LOCATION.format(name=name, words=words, leaf=clusters.leaf.port))
    configuration = _NGINX.format(
        directory=clusters.programs.directory,
        port=port,
        shown=clusters.node_server,
        client_ca=clusters.root.pki.client_ca,
        identity=clusters.leaf.client(NODE_SERVER, ["system:masters"]),
        serving_ca=clusters.leaf.pki.serving_ca,
        locations="".join(locations),
    )
    where = clusters.programs.write("nginx.conf", configuration)
    clusters.programs.run("nginx", "nginx", "-c", where, "-e", f"{where}.log")
    clusters.programs.until("nginx", lambda: connects(port))


def connects(port: int) -> bool:
    """Return whether a server listens on the port."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


@dataclass
class Figures:
    """Of one way: seconds from start to end of each round, and of the processor's in all of them."""

    seconds: list[float] = field(default_factory=list)
    spent: Counter[str] = field(default_factory=Counter)

    @property
    def least(self) -> float:
        return min(self.seconds)

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    def told(self, direct: Figures) -> str:
        """One line, with ratios to another."""
        rounds = len(self.seconds)
        cells = [f"{name} {1e3 * spent / rounds:.1f}" for name, spent in self.spent.items()]
        total, least = self.spent.total() / rounds, direct.spent.total() / len(direct.seconds)
        return (
            f"least {self.least * 1e3:7.1f} ({self.least / direct.least:.2f}x)"
            f"  median {self.median * 1e3:7.1f} ({self.median / direct.median:.2f}x)"
            f"  CPU {total * 1e3:7.1f} ({total / least:.2f}x): {', '.join(cells)}"
        )


class Ways:
    """The ways to a Pod, for one kubectl: each in the words that come before the command."""

    def __init__(self, clusters: LeafClusters, program: str, name: str) -> None:
        root = [program, f"--kubeconfig={clusters.root.kubeconfig}", "exec", "-c", "main"]
        leaf = [program, f"--kubeconfig={clusters.leaf.kubeconfig}", "exec", "-c", "main"]
        self.argv = {
            "leaf alone": [*leaf, "web"],
            "root alone": [*root, NEAR],
            "ours": [*root, "web"],
            "nginx": [*root, name],
        }
        self._command = ["--", *COMMANDS[name]]
        near, far = clusters.programs, clusters.leaf.programs
        self._pids = {
            "root": near.pid("kube-apiserver"),
            "leaf": far.pid("kube-apiserver"),
            "kubelet": far.pid("kubelet"),
            "root's kubelet": near.pid("kubelet"),
            "ours": near.pid(NODE_SERVER),
            "nginx": near.pid("nginx"),
        }

    def _spent(self) -> Counter[str]:
        """Return the CPU seconds of each process so far."""
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        found = {name: procfs.cpu_seconds(pid) for name, pid in self._pids.items()}
        return Counter({"kubectl": used.ru_utime + used.ru_stime, **found})

    def seconds(self, way: str) -> float:
        """Run the command with its output discarded, and return how long it took."""
        begun = time.perf_counter()
        subprocess.run(
            [*self.argv[way], *self._command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            check=True,
        )
        return time.perf_counter() - begun

    def measured(self, rounds: int) -> dict[str, Figures]:
        """Of each way."""
        found = {way: Figures() for way in self.argv}
        ways = list(found)
        for number in range(rounds + 1):
            for way in ways[number % len(ways) :] + ways[: number % len(ways)]:
                before = self._spent()
                taken = self.seconds(way)
                if number:  # The first one finds nothing in any cache.
                    found[way].seconds.append(taken)
                    found[way].spent += self._spent() - before
        return found


def measured(clusters: LeafClusters) -> None:
    """Everything, with the oldest, a middle and the newest kubectl."""
    found = kubectls.found()
    names = list(found)
    for program in dict.fromkeys((names[0], names[len(names) // 2], names[-1])):
        for name, rounds in (("nothing", OPENINGS), ("bulk", ROUNDS)):
            figures = Ways(clusters, found[program], name).measured(rounds)
            load = os.getloadavg()[0]
            print(f"{program}, ms for {' '.join(COMMANDS[name])}; the machine's load is {load:.1f}")
            for way, one in figures.items():
                print(f"  {way:12}{one.told(figures['leaf alone'])}")


def near_kubelet(clusters: LeafClusters) -> None:
    """A Node of the root that is a kubelet, and a Pod of it."""
    port, programs = free_port(), clusters.programs
    pods = {f"default/{NEAR}": {"main": {"command": []}}}
    programs.run(
        "kubelet",
        needs.kubelet_node_program(),
        f"--listen=127.0.0.1:{port}",
        f"--tls-cert-file={clusters.node_server.certificate}",
        f"--tls-private-key-file={clusters.node_server.key}",
        f"--client-ca-file={clusters.root.pki.client_ca}",
        f"--pods={programs.write('near.json', json.dumps(pods))}",
        f"--logs={programs.path('near-logs')}",
    )
    programs.until("kubelet", lambda: connects(port))
    clusters.publish(port, node=NEAR_NODE)
    add_running(clusters, NEAR, NEAR_NODE)


def add_running(clusters: LeafClusters, name: str, node: str) -> None:
    """A Pod of the root alone, which kubectl believes to run."""
    clusters.root.apply(pod(name, ["main"], node))
    clusters.patch_status(clusters.root, f"namespaces/default/pods/{name}", {"phase": "Running"})


def main(directory: Path) -> None:
    """Run the whole benchmark."""
    if why := needs.leaf_clusters():
        print(f"leaf clusters are not measured: {why}")
        return
    clusters = LeafClusters("bench")
    try:
        clusters.start()
        clusters.publish(clusters.start_node_server("--upkeep=none"))
        clusters.add_pod()
        nginx(clusters)
        near_kubelet(clusters)
        measured(clusters)
    finally:
        clusters.stop()
