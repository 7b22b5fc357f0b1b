"""
Requests of real kube-apiservers, replayed: the leaf must get the very request that a real leaf got,
and its answer must come back byte for byte.

``tests/captures/kubelet-*.json`` were recorded by ``tests/interop/leaf_recorded.py``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.protocol import Factory
from twisted.trial.unittest import SynchronousTestCase

from tests.streaming.raw import Raw
from twisted_exec.kube.kubeconfig.client_config import ClientConfig
from twisted_exec.nodeserver.kubelet_api.logs import log_routes
from twisted_exec.nodeserver.kubelet_api.streams import stream_routes
from twisted_exec.tls.endpoints import server_endpoint

from .stream_chain import ROOT, ChainTestCase
from .support import put_leaf_pod, put_pod

reactor: Any = _reactor

CAPTURES = sorted(Path(__file__).parents[1].joinpath("captures").glob("kubelet-*.json"))
CHANGING = (b"host:", b"audit-id:", b"authorization:", b"date:")
END = b"\r\n\r\n"


class RecordedLeaf(Raw):
    """Answers every request as a real leaf did."""

    def __init__(self, answer: bytes) -> None:
        super().__init__()
        self._answer = answer

    def dataReceived(self, data: bytes) -> None:
        began = END in self.received
        super().dataReceived(data)
        if not began and END in self.received:
            self.transport.write(self._answer)


def lines(head: bytes) -> tuple[bytes, list[bytes]]:
    """The first line, and those of the headers that tell the same in every run, in any order."""
    first, *others = head.split(b"\r\n")
    return first, sorted(
        line.lower() if line[:14].lower() == b"sec-websocket-" else line
        for line in others
        if not line.lower().startswith(CHANGING)
    )


class RecordedTests(ChainTestCase):
    """All of them, with a leaf that answers as recorded."""

    def routes(self) -> Any:
        return [*stream_routes(self.collaborators), *log_routes(self.collaborators)]

    async def asyncSetUp(self) -> None:
        await super().asyncSetUp()
        root = put_pod(self.roots.cluster, "web", "leaf-one", containers=("main", "echo"))
        put_leaf_pod(self.leaf.cluster, root)
        self.ends: list[RecordedLeaf] = []
        factory = Factory.forProtocol(lambda: self.ends[-1])  # type: ignore[arg-type]
        place = server_endpoint(reactor, "tcp:0:interface=127.0.0.1", None)
        port = await place.listen(factory)
        self.addCleanup(port.stopListening)
        self.leaf.told = ClientConfig(f"http://127.0.0.1:{port.getHost().port}", token="a")

    async def test_asked_again(self) -> None:
        """The leaf gets what it got, the root gets what it got, in every form."""
        for path in CAPTURES:
            await self._ask_again(path.stem, json.loads(path.read_text()))

    async def _ask_again(self, name: str, capture: dict[str, Any]) -> None:
        request, expected = capture["to_node_server"], capture["to_leaf"]
        received = bytes.fromhex(expected["received"])
        end = RecordedLeaf(expected["answer"].encode() + END + received)
        self.ends.append(end)
        method, target, _ = request["request"].split(" ", 2)
        headers = [
            line
            for line in request["request"].encode().split(b"\r\n")[1:]
            if not line.lower().startswith(b"host:")
        ]
        client = await self.ask(
            target, *headers, method=method, user=ROOT, early=bytes.fromhex(request["sent"])
        )
        await self.until(lambda: len(client.body) >= len(received) and END in client.received)
        await self.until(lambda: len(end.body) >= len(bytes.fromhex(request["sent"])))
        self.assertEqual(lines(end.head), lines(expected["request"].encode()), name)
        self.assertEqual(end.body, bytes.fromhex(expected["sent"]), name)
        self.assertEqual(lines(client.head), lines(request["answer"].encode()), name)
        self.assertEqual(client.body, bytes.fromhex(request["received"]), name)
        client.transport.abortConnection()
        await self.until(lambda: end.lost)


class CaptureTests(SynchronousTestCase):
    """The contents of the recordings."""

    def test_forms(self) -> None:
        """Every kind of client is recorded, from roots of two releases."""
        captures = [json.loads(path.read_text()) for path in CAPTURES]
        self.assertEqual(len({capture["root"] for capture in captures}), 2)
        requests = [capture["to_node_server"]["request"] for capture in captures]
        for word in (
            "v4.channel.k8s.io",
            "v5.channel.k8s.io",
            "SPDY/3.1+portforward.k8s.io",
            "X-Stream-Protocol-Version: portforward.k8s.io",
            "/attach/",
            "/containerLogs/",
            "GET /exec/",
            "POST /exec/",
        ):
            self.assertTrue(any(word in request for request in requests), word)

    def test_nobody_is_named(self) -> None:
        """No credentials, no host and no port of where they were made."""
        for path in CAPTURES:
            text = path.read_text()
            self.assertNotIn("Authorization", text)
            self.assertNotRegex(text, r"127\.0\.0\.1:\d", path.name)
            self.assertNotRegex(text, r"/tmp|/root", path.name)
