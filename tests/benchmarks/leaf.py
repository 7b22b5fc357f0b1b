"""
A Pod of a leaf cluster, through root and node server, against the same leaf asked directly.

kubectl does both, in turn, round after round, so that a drifting machine drifts for both; medians are
printed, and their ratios.  The clusters are real ones (see :mod:`tests.interop`), with a kubelet whose
containers are processes of this host.

What a hop costs at the least is told by nginx in the node server's place: it shows the root a kubelet's
face for one command, which is written into its configuration, and knows nobody.
"""

from __future__ import annotations

import socket
import statistics
import subprocess
import time
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
        clusters.root.apply(pod(name, ["main"], NGINX_NODE))
        clusters.patch_status(
            clusters.root, f"namespaces/default/pods/{name}", {"phase": "Running"}
        )
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
    """Whether somebody listens."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


class Ways:
    """The ways to a Pod, for one kubectl: each in the words that come before the command."""

    def __init__(self, clusters: LeafClusters, program: str, name: str) -> None:
        root = [program, f"--kubeconfig={clusters.root.kubeconfig}", "exec", "-c", "main"]
        leaf = [program, f"--kubeconfig={clusters.leaf.kubeconfig}", "exec", "-c", "main"]
        self.argv = {"leaf alone": [*leaf, "web"], "ours": [*root, "web"], "nginx": [*root, name]}
        self._command = ["--", *COMMANDS[name]]

    def seconds(self, way: str) -> float:
        """Of one command, from start to end, whose output nobody reads."""
        begun = time.perf_counter()
        subprocess.run(
            [*self.argv[way], *self._command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            check=True,
        )
        return time.perf_counter() - begun

    def medians(self, rounds: int) -> dict[str, float]:
        """In seconds, for each way."""
        times: dict[str, list[float]] = {way: [] for way in self.argv}
        for number in range(rounds + 1):
            for way, found in times.items():
                taken = self.seconds(way)
                if number:  # The first one finds nothing in any cache.
                    found.append(taken)
        return {way: statistics.median(found) for way, found in times.items()}


def measured(clusters: LeafClusters) -> None:
    """Everything, with each of some kubectls."""
    pid, found = clusters.programs.pid(NODE_SERVER), kubectls.found()
    for program in kubectls.some():
        for name, rounds in (("nothing", OPENINGS), ("bulk", ROUNDS)):
            before = procfs.cpu_seconds(pid)
            medians = Ways(clusters, found[program], name).medians(rounds)
            spent = (procfs.cpu_seconds(pid) - before) / (rounds + 1)
            least = medians["leaf alone"]
            cells = [
                f"{way} {taken * 1e3:8.1f} ({taken / least:.2f}x)" for way, taken in medians.items()
            ]
            title = f"{program}, ms for {' '.join(COMMANDS[name])[:17]}"
            print(f"{title:45}{'   '.join(cells)}   our CPU {spent * 1e3:.1f}")


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
        print(
            "A Pod of a leaf: in the leaf itself; through root and node server; with nginx instead"
        )
        measured(clusters)
    finally:
        clusters.stop()
