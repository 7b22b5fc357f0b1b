"""
1 000 followers of logs, through a node server to a leaf, TLS on both legs: what one holds in the
node server while nothing is printed, and the CPU time of its opening and of a line.

Leaf, node server and readers are a process each.  Root and registry are in the node server's
memory; all that a follower goes through is real.

``python -m tests.benchmarks.leaf.logs leaf|node DIRECTORY [LEAF_PORT]`` prints its port.
"""

from __future__ import annotations

import socket
import ssl
import sys
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests import procfs
from twisted_exec.tls.pki.authority import Authority

from ..one_hop import running

FOLLOWERS = 1000
_WARM = 50
_NODE, _LINE = "leaf-one", b"one\n"
_SILENT = "silent"
_ASKED, _PRINT = b"/asked", b"/print"


def make_certificates(directory: Path) -> None:
    """A CA, a server's certificate for all, and that of the root's API server as a client."""
    authority = Authority.create("benchmark")
    (directory / "ca.crt").write_bytes(authority.certificate_pem)
    server = authority.issue_server(["localhost", "127.0.0.1"], common_name="localhost")
    server.write(str(directory / "server.crt"), str(directory / "server.key"))
    client = authority.issue_client("kube-apiserver-kubelet-client", ["system:masters"])
    client.write(str(directory / "client.crt"), str(directory / "client.key"))


async def leaf(reactor: Any, directory: Path) -> int:
    """
    An API server whose Pods print one line, or none yet.

    It says how many asked so far, and prints a line to all that follow.
    """
    from twisted.web import resource, server

    from twisted_exec.tls.endpoints import server_endpoint
    from twisted_exec.tls.server import ServerTLS

    following: list[Any] = []

    class Log(resource.Resource):
        isLeaf = True
        asked = 0

        def render_GET(self, request: Any) -> int | bytes:
            if request.path == _ASKED:
                return b"%d" % self.asked
            if request.path == _PRINT:
                for each in following:
                    each.write(_LINE)
                return b""
            self.asked += 1
            following.append(request)
            request.setHeader(b"Content-Type", b"text/plain")
            if _SILENT.encode() not in request.path:
                request.write(_LINE)
            return server.NOT_DONE_YET

    tls = ServerTLS(str(directory / "server.crt"), str(directory / "server.key"), clock=reactor)
    listening: Any = await server_endpoint(
        reactor, "tcp:0:interface=127.0.0.1:backlog=1024", tls
    ).listen(server.Site(Log()))
    return int(listening.getHost().port)


async def node(reactor: Any, directory: Path, leaf_port: int) -> int:
    """A node server whose one leaf that is."""
    from tests.nodeserver.support import put_leaf_pod, put_pod, simple
    from twisted_exec.api.kinds import SUBJECTACCESSREVIEWS
    from twisted_exec.kube.kubeconfig.client_config import ClientConfig, Material
    from twisted_exec.nodeserver.kubelet_api.logs import log_routes
    from twisted_exec.nodeserver.service import NodeServer
    from twisted_exec.nodeserver.settings import Settings
    from twisted_exec.program.audit_file import JSONLinesAudit

    config = ClientConfig(
        f"https://127.0.0.1:{leaf_port}",
        ca=Material((directory / "ca.crt").read_bytes()),
        token="secret",
    )
    root_pods, leaves = simple(config=config, node=_NODE)
    for name in ("web", _SILENT):
        put_leaf_pod(leaves.leaves[0].cluster, put_pod(root_pods.cluster, name, _NODE))
    root_pods.cluster.reviews[SUBJECTACCESSREVIEWS.resource] = lambda review: {"allowed": True}
    settings = Settings(
        listen="tcp:0:interface=127.0.0.1:backlog=1024",
        certificate=str(directory / "server.crt"),
        key=str(directory / "server.key"),
        client_ca=str(directory / "ca.crt"),
    )
    audit = JSONLinesAudit(str(directory / "audit.log"))
    client = root_pods.cluster.client()
    server = NodeServer(settings, client, leaves, root_pods, audit, reactor, make=[log_routes])
    ready = server.when_ready()
    server.startService()
    await ready
    address: Any = server.address
    return int(address.port)


def follow(context: ssl.SSLContext, port: int, pod: str) -> ssl.SSLSocket:
    """Ask for a log that goes on."""
    plain = socket.create_connection(("127.0.0.1", port), timeout=30)
    line = context.wrap_socket(plain, server_hostname="localhost")
    path = f"/containerLogs/default/{pod}/main?follow=true"
    # What a kube-apiserver sends.
    head = f"GET {path} HTTP/1.1\r\nHost: node:10250\r\nUser-Agent: Go-http-client/1.1\r\n"
    line.sendall(f"{head}Accept-Encoding: gzip\r\n\r\n".encode())
    return line


def followed(
    context: ssl.SSLContext, port: int, pod: str, leaf_port: int, count: int
) -> list[ssl.SSLSocket]:
    """So many followers, each of which has its leaf."""
    wanted = asked(context, leaf_port) + count
    lines = []
    for _ in range(count):
        line = follow(context, port, pod)
        lines.append(line)
        got = b""
        while pod != _SILENT and _LINE not in got:
            got += line.recv(65536)
    while asked(context, leaf_port) < wanted:
        time.sleep(0.1)
    return lines


def asked(context: ssl.SSLContext, leaf_port: int) -> int:
    """Return the number of log requests that the leaf has received."""
    return int(answer_of(context, leaf_port, _ASKED))


def answer_of(context: ssl.SSLContext, leaf_port: int, path: bytes) -> bytes:
    url = f"https://localhost:{leaf_port}{path.decode()}"
    with urllib.request.urlopen(url, context=context, timeout=30) as answer:
        return bytes(answer.read())


@dataclass(frozen=True)
class Figures:
    """
    What a follower costs the node server.

    :ivar held: bytes of resident memory.
    :ivar opening: CPU seconds until it has its first line, or waits for it.
    :ivar line: CPU seconds for a further line.
    :ivar connections: how many the node server has to the leaf, for all followers.
    """

    held: float
    opening: float
    line: float
    connections: int


def measure(directory: Path, pod: str) -> Figures:
    """Measure followers of a Pod in a node server of its own."""
    context = ssl.create_default_context(cafile=str(directory / "ca.crt"))
    context.load_cert_chain(directory / "client.crt", directory / "client.key")
    program = (sys.executable, "-m", "tests.benchmarks.leaf.logs")
    with (
        running(*program, "leaf", str(directory)) as (_, leaf_port),
        running(*program, "node", str(directory), str(leaf_port)) as (pid, port),
    ):
        # What the first ones allocate is not theirs.
        lines = followed(context, port, pod, leaf_port, _WARM)
        before, idle = procfs.resident_bytes(pid), procfs.exact_cpu_seconds(pid)
        lines += followed(context, port, pod, leaf_port, FOLLOWERS)
        opened = procfs.exact_cpu_seconds(pid)
        held = (procfs.resident_bytes(pid) - before) / FOLLOWERS
        opening = (opened - idle) / FOLLOWERS
        connections = procfs.loopback_connections(pid) - len(lines)  # without those of the readers
        answer_of(context, leaf_port, _PRINT)
        for line in lines:
            got = b""
            while _LINE not in got:
                got += line.recv(65536)
        passing = (procfs.exact_cpu_seconds(pid) - opened) / len(lines)
        for line in lines:
            line.close()
    return Figures(held, opening, passing, connections)


def main(directory: Path) -> None:
    make_certificates(directory)
    print(f"{FOLLOWERS} idle followers of logs, TLS on both legs:")
    for pod, told in (("web", "have read a line"), (_SILENT, "wait for the first line")):
        each = measure(directory, pod)
        print(
            f"  {each.held / 1024:5.1f} KiB each of those that {told}; CPU {each.opening * 1e3:.2f} ms"
            f" to open, {each.line * 1e3:.2f} ms a line; {each.connections} connections to the leaf"
        )


def _serve() -> None:
    from twisted.internet import reactor
    from twisted.internet.defer import Deferred

    what, directory, *rest = sys.argv[1:]
    made = (
        node(reactor, Path(directory), *map(int, rest))
        if what == "node"
        else leaf(reactor, Path(directory))
    )
    serving = Deferred.fromCoroutine(made)
    serving.addCallbacks(lambda port: print(port, flush=True), lambda why: why.printTraceback())
    run: Any = reactor
    run.run()


if __name__ == "__main__":
    _serve()
