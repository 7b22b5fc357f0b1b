"""
Requests of real kube-apiservers to a node server, and the requests that it forwards.

``python -m tests.interop.leaf_recorded`` writes ``tests/captures/kubelet-*.json``: for each form of
client the head of the request that a root makes of it, the head of the one that the leaf gets, the
answers, and the first bytes behind them.  Recorders are in front of the node server and of the
leaf; the recordings contain no host name, no port and no token.
"""

from __future__ import annotations

import base64
import json
import os
import re
import socket
import ssl
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests import needs
from tests.flows import kubectls
from tests.interop.leaf_actions import SECONDS, Kubectl, until
from tests.interop.leaf_clusters import KUBELET_CLIENT, NODE_SERVER, LeafClusters
from tests.interop.leaf_table import missing, version
from tests.interop.recorder import Exchange, Recorder
from twisted_exec.kube.kubeconfig.writer import write_kubeconfig
from twisted_exec.tls.files import read_file

CAPTURES = Path(__file__).parents[1] / "captures"
BYTES = 1024
"""Of what follows a head, in each direction."""

EXEC = ("exec", "web", "-c", "main", "-i", "--", "sh", "-c", "read -r a; echo $a; exit 7")
ATTACH = ("attach", "web", "-c", "echo", "-i")
FORWARD = ("port-forward", "pod/web")
LOGS = ("logs", "web", "-c", "main", "--tail=0", "--since-time=2026-01-01T00:00:00Z")
LOG_LIMITS = ("--limit-bytes=1000", "--timestamps", "--previous")
TYPED = b"hello\n"
OVER_SPDY = {
    "KUBECTL_REMOTE_COMMAND_WEBSOCKETS": "false",
    "KUBECTL_PORT_FORWARD_WEBSOCKETS": "false",
}


@dataclass(frozen=True)
class Form:
    """
    A form of client.

    :param name: of the file.
    :param kubectl: the name of a kubectl; or nothing for a client as browsers are.
    :param argv: of that kubectl; or path and query, and a subprotocol.
    :param env: of that kubectl.
    """

    name: str
    kubectl: str
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)


_QUERY = "container=main&stdin=true&stdout=true&stderr=true&command=sh&command=-c&command="
BROWSER = f"/api/v1/namespaces/default/pods/web/exec?{_QUERY}read+-r+a%3B+echo+%24a%3B+exit+7"

FORMS = (
    Form("exec-kubectl1.20", "kubectl.1.20", EXEC),
    Form("exec-kubectl1.27", "kubectl.1.27", EXEC),
    Form("exec-kubectl1.29", "kubectl.1.29", EXEC),
    Form("exec-kubectl1.33", "kubectl.1.33", EXEC),
    Form("exec-kubectl1.33-spdy", "kubectl.1.33", EXEC, OVER_SPDY),
    Form("exec-websocket-v4", "", (BROWSER, "v4.channel.k8s.io")),
    Form("exec-websocket-none", "", (BROWSER, "")),
    Form("attach-kubectl1.33", "kubectl.1.33", ATTACH),
    Form("portforward-kubectl1.27", "kubectl.1.27", FORWARD),
    Form("portforward-kubectl1.33", "kubectl.1.33", FORWARD),
    Form("logs-kubectl1.33", "kubectl.1.33", (*LOGS, *LOG_LIMITS)),
)
DECLARED_FORMS = (
    Form("exec-kubectl-newest-declared", "newest", EXEC),
    Form("portforward-kubectl-newest-declared", "newest", FORWARD),
)
"""With a newer root, whose node declares that it takes WebSockets."""


class Recording:
    """
    Both clusters, with a recorder before the node server and one before the leaf.

    :param program: the root's kube-apiserver.
    :param options: of the node server.
    """

    def __init__(self, program: str, *options: str) -> None:
        self.version = version(program)
        self.clusters = clusters = LeafClusters("recorded", root_program=program)
        clusters.start()
        self.leaf = self._before_leaf()
        port = clusters.start_node_server(
            *options, "--upkeep=none", leaf_kubeconfig=self._kubeconfig(self.leaf.port)
        )
        shown = clusters.root.client(KUBELET_CLIENT, ["system:masters"])
        ca = clusters.root.pki.serving_ca
        self.node = Recorder(port, clusters.node_server, shown, ca)
        clusters.publish(self.node.port, declares=bool(options))
        clusters.add_pod()

    def _before_leaf(self) -> Recorder:
        leaf = self.clusters.leaf
        identity = leaf.client(NODE_SERVER, ["system:masters"])
        return Recorder(leaf.port, leaf.pki.pair("apiserver"), identity, leaf.pki.serving_ca)

    def _kubeconfig(self, port: int) -> str:
        leaf = self.clusters.leaf
        pair = leaf.client(NODE_SERVER, ["system:masters"])
        path = self.clusters.programs.path("recorded-leaf.kubeconfig")
        write_kubeconfig(
            path,
            server=f"https://127.0.0.1:{port}",
            ca_pem=read_file(leaf.pki.serving_ca),
            certificate_pem=read_file(pair.certificate),
            key_pem=read_file(pair.key),
            user=NODE_SERVER,
        )
        return path

    def stop(self) -> None:
        """End everything."""
        self.node.stop()
        self.leaf.stop()
        self.clusters.stop()

    def record(self, form: Form) -> dict[str, Any]:
        """Return the content of a capture file."""
        self.node.exchanges.clear()
        self.leaf.exchanges.clear()
        if form.kubectl:
            self._run(form)
        else:
            _browse(self.clusters, *form.argv)
        return {
            "form": form.name,
            "root": self.version,
            "to_node_server": _told(_first(self.node, rb" /(exec|attach|portF|containerL)")),
            "to_leaf": _told(_first(self.leaf, rb"/pods/web/(exec|attach|portforward|log)")),
        }

    def _run(self, form: Form) -> None:
        program = _program(form.kubectl)
        scratch = self.clusters.programs.directory / form.name
        scratch.mkdir()
        root = self.clusters.root.kubeconfig
        kubectl = Kubectl(program, root, scratch, datetime.now(UTC))
        kubectl.env |= form.env
        if form.argv == FORWARD:
            _forward(kubectl)
        elif form.argv == ATTACH:
            with kubectl.running(*ATTACH) as process:
                assert process.stdin is not None and process.stdout is not None
                process.stdin.write(TYPED)
                process.stdin.flush()
                until(process.stdout.fileno(), b"<hello>")
        else:
            kubectl.run(*form.argv, stdin=TYPED)


def _program(kubectl: str) -> str:
    if kubectl == "kubectl.1.20":
        return needs.oldest_kubectl_program() or ""
    if kubectl == "newest":
        return needs.newest_kubectl_program() or ""
    return kubectls.found()[kubectl]


def _forward(kubectl: Kubectl) -> None:
    """Forward a port, and make a connection to an echo server."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with kubectl.running(*FORWARD, f":{port}") as process:
            assert process.stdout is not None
            told = until(process.stdout.fileno(), rb"127\.0\.0\.1:\d+ -> \d+\n")
            local = re.search(rb"127\.0\.0\.1:(\d+)", told)
            assert local is not None
            with socket.create_connection(("127.0.0.1", int(local[1])), SECONDS) as line:
                line.sendall(TYPED)
                with listener.accept()[0] as accepted:
                    accepted.sendall(accepted.recv(100))
                assert line.recv(100) == TYPED


def _browse(clusters: LeafClusters, path: str, protocol: str) -> None:
    """As a page does: a line to channel 0, and whatever comes until the server closes."""
    root = clusters.root
    pair = root.client("admin", ["system:masters"])
    context = ssl.create_default_context(cafile=root.pki.serving_ca)
    context.load_cert_chain(pair.certificate, pair.key)
    head = [
        f"GET {path} HTTP/1.1",
        "Host: root.example",
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        f"Sec-WebSocket-Key: {base64.b64encode(os.urandom(16)).decode()}",
        *([f"Sec-WebSocket-Protocol: {protocol}"] if protocol else []),
    ]
    with (
        socket.create_connection(("127.0.0.1", root.port), timeout=SECONDS) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as line,
    ):
        line.sendall("\r\n".join([*head, "", ""]).encode())
        # kube-apiserver forgets what comes before its answer.
        assert b"101" in line.recv(65536)
        line.sendall(_masked(b"\0" + TYPED))
        while line.recv(65536):
            pass


def _masked(payload: bytes) -> bytes:
    mask = os.urandom(4)
    data = bytes(byte ^ mask[place % 4] for place, byte in enumerate(payload))
    return struct.pack("BB", 0x82, 0x80 | len(payload)) + mask + data


def _first(recorder: Recorder, pattern: bytes) -> Exchange:
    found = [one for one in recorder.exchanges if re.search(pattern, one.request)]
    assert len(found) == 1, [one.request for one in recorder.exchanges]
    return found[0]


def _told(exchange: Exchange) -> dict[str, str]:
    head, _, sent = bytes(exchange.sent).partition(b"\r\n\r\n")
    answer, _, received = bytes(exchange.received).partition(b"\r\n\r\n")
    return {
        "request": re.sub(r"(?m)^Host: .*$", "Host: host.example\r", head.decode()),
        "sent": sent[:BYTES].hex(),
        "answer": answer.decode(),
        "received": received[:BYTES].hex(),
    }


def main() -> None:
    """Write a file for each form."""
    if why := missing():
        raise SystemExit(why)
    for program, options, forms in (
        (needs.kube_apiserver_program(), [], FORMS),
        (needs.newest_kube_apiserver_program(), ["--declare-websockets"], DECLARED_FORMS),
    ):
        recording = Recording(program or "", *options)
        try:
            for form in forms:
                text = json.dumps(recording.record(form), indent=1)
                CAPTURES.joinpath(f"kubelet-{form.name}.json").write_text(text + "\n")
                print(form.name)
        finally:
            recording.stop()


if __name__ == "__main__":
    main()
