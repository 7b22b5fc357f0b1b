"""
The kubelet double that is shipped for tests, compared with a kubelet made of real kubelet parts.

Both get the same requests; status codes, bytes and exit codes must be the same.
"""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable
from datetime import datetime
from http.client import HTTPResponse
from io import BytesIO
from typing import Any
from urllib.parse import quote_plus

from twisted.internet.protocol import Factory, Protocol

from tests import needs
from tests.flows import programs
from tests.testing.callers import Caller, call, forward, until
from tests.tls.support import LoopbackCase, authority, client_identity, reactor, server_identity
from twisted_exec.streaming.http.upgrade_client import UpgradeRefused
from twisted_exec.streaming.remotecommand.carriers import OVER_SPDY
from twisted_exec.testing.kubelet import Container, Kubelet
from twisted_exec.tls.endpoints import client_endpoint
from twisted_exec.wire.channel import V4, V4_BASE64, Channel

ALL = "input=1&output=1&error=1"
IN_OUT_ERROR = (Channel.STDIN, Channel.STDOUT, Channel.STDERR)
TERMINAL = (Channel.STDIN, Channel.STDOUT, Channel.RESIZE)
LOG = [("2026-01-02T03:04:05.000000000Z", "stdout", "one"), *(
    (f"2026-01-02T03:04:0{second}.500000000Z", "stderr" if second == 7 else "stdout", text)
    for second, text in ((6, "two"), (7, "three"), (8, "four"))
)]  # fmt: skip
LOGS = (
    "",
    "tailLines=0",
    "tailLines=2",
    "tailLines=99",
    "limitBytes=5",
    "tailLines=2&limitBytes=7",
    "timestamps=true",
    "sinceTime=2026-01-02T03:04:07Z",
    "sinceTime=2026-01-02T03:04:07Z&timestamps=true&limitBytes=40",
)
REFUSED = ("tailLines=x", "previous=true")
"""What options make sense is for a kubelet itself to say, and is in none of its parts."""


class Echo(Protocol):
    """Echoes its input in capitals, and closes at a full stop."""

    transport: Any

    def dataReceived(self, data: bytes) -> None:
        self.transport.write(data.upper())
        if data.endswith(b"."):
            self.transport.loseConnection()


class Answer(Protocol):
    """Collects all data until the connection ends."""

    def __init__(self) -> None:
        self.got = b""
        self.over = False

    def dataReceived(self, data: bytes) -> None:
        self.got += data

    def connectionLost(self, reason: Any = None) -> None:
        self.over = True

    def makefile(self, mode: str) -> BytesIO:
        """As a socket, for parsers of HTTP."""
        return BytesIO(self.got)


async def get(endpoint: Any, path: str) -> tuple[int, bytes]:
    """Read a log; return the status code and the body."""
    answer: Any = await endpoint.connect(Factory.forProtocol(Answer))
    head = f"GET /containerLogs/default/{path} HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n"
    answer.transport.write(head.encode())
    await until(lambda: answer.over)
    response = HTTPResponse(answer)
    response.begin()
    return response.status, response.read()


class DoubleTests(LoopbackCase):
    """The same requests to both kubelets."""

    timeout = 120
    skip = None if needs.kubelet_node_program() else "kubelet-node is not on PATH, nor KUBELET_NODE"

    async def setUp(self) -> None:  # type: ignore[override]
        super().setUp()
        shown = client_identity("kube-apiserver", "system:masters")
        self.known_as = {"certificate_pem": shown.certificate_pem, "key_pem": shown.key_pem}
        self.both = {"real": await self.real(), "double": await self.double()}

    async def real(self) -> Any:
        identity = server_identity("localhost", "127.0.0.1")
        logs = self.write("1.log", b"")
        directory = logs.removesuffix("/1.log") + "/logs/default_web_main"
        os.makedirs(directory)
        with open(f"{directory}/1.log", "w") as stream:
            stream.writelines(f"{at} {what} F {text}\n" for at, what, text in LOG)
        program = programs.start(
            [
                needs.kubelet_node_program(),
                "--listen=127.0.0.1:0",
                f"--tls-cert-file={self.write('k.crt', identity.certificate_pem)}",
                f"--tls-private-key-file={self.write('k.key', identity.key_pem)}",
                f"--client-ca-file={self.write('ca.crt', authority('users').certificate_pem)}",
                f"--pods={self.write('pods.json', json.dumps(PODS).encode())}",
                f"--logs={directory.removesuffix('/default_web_main')}",
            ]
        )
        self.addCleanup(program.stop)
        found = await program.until(rb"127\.0\.0\.1:(\d+)")
        return self.at(int(found.group(1)))

    async def double(self) -> Any:
        ca = self.write("ca2.crt", authority("users").certificate_pem)
        containers = {
            name: Container(told["command"]) for name, told in PODS["default/web"].items()
        }
        kubelet = Kubelet(
            reactor,
            {("default", "web"): containers},
            tls=self.server_tls(client_cas=[ca]),
            client_ca=authority("users").certificate_pem,
        )
        self.addCleanup(kubelet.stop)
        for at, what, text in LOG:
            when = datetime.fromisoformat(at.replace("000000Z", "+00:00"))
            containers["main"].log.write(f"{text}\n".encode(), what.capitalize(), when)
        port = await kubelet.listen("tcp:0:interface=127.0.0.1")
        return self.at(port.getHost().port)  # type: ignore[attr-defined]

    def at(self, port: int) -> Any:
        tls = self.client_tls("127.0.0.1", **self.known_as)
        return client_endpoint(reactor, "127.0.0.1", port, tls)

    async def same(self, what: Callable[[Any], Awaitable[Any]]) -> Any:
        """Require equal answers from both, and return the answer."""
        said = {name: await what(endpoint) for name, endpoint in self.both.items()}
        self.assertEqual(said["real"], said["double"])
        return said["real"]

    async def test_exec(self) -> None:
        """Output, errors, exit codes and the end of input, in each version that both speak."""

        async def asked(endpoint: Any) -> Any:
            said = []
            for protocol in (OVER_SPDY, V4, V4_BASE64):
                words = "&".join(
                    f"command={quote_plus(word)}"
                    for word in ("sh", "-c", "echo out; echo err >&2; exit 7")
                )
                path = f"/exec/default/web/main?{words}&{ALL}"
                caller = await call(endpoint, path, protocol, IN_OUT_ERROR)
                ending = await caller.over()
                said.append((ending.exit_code, self.channels(caller)))
            path = f"/exec/default/web/main?command=sort&{ALL}"
            caller = await call(endpoint, path, OVER_SPDY, IN_OUT_ERROR)
            caller.type(b"b\na\n")
            caller.carrier.end(Channel.STDIN)
            said.append(((await caller.over()).exit_code, self.channels(caller)))
            return said

        said = await self.same(asked)
        self.assertEqual(said[0], (7, (b"out\n", b"err\n")))

    def channels(self, caller: Caller) -> tuple[bytes, bytes]:
        return caller.got[Channel.STDOUT], caller.got[Channel.STDERR]

    async def test_sizes(self) -> None:
        """The terminal gets the size of the user's terminal."""

        async def asked(endpoint: Any) -> Any:
            words = "command=sh&command=-c&command=" + quote_plus("read x; stty size")
            path = f"/exec/default/web/main?{words}&input=1&output=1&tty=1"
            caller = await call(endpoint, path, OVER_SPDY, TERMINAL)
            caller.resize(91, 37)
            caller.type(b"\r")
            return (await caller.over()).exit_code, b"37 91" in caller.got[Channel.STDOUT]

        self.assertEqual(await self.same(asked), (None, True))

    async def test_attach(self) -> None:
        """The container's output reaches attached clients, and their input the container."""

        async def asked(endpoint: Any) -> Any:
            path = f"/attach/default/web/echo?{ALL}"
            caller = await call(endpoint, path, OVER_SPDY, IN_OUT_ERROR)
            caller.type(b"hello\n")
            await caller.printed(b"<hello>")
            caller.carrier.close()
            await until(lambda: caller.why is not None)

        await self.same(asked)

    async def test_ports(self) -> None:
        """An open port is reached; a closed port is reported on the error stream."""
        open_port = await self.listen(Factory.forProtocol(Echo), None)
        closed = await self.listen(Factory.forProtocol(Echo), None)
        closed_at = closed.getHost().port
        await closed.stopListening()

        async def asked(endpoint: Any) -> Any:
            client = await forward(endpoint, "/portForward/default/web")
            data, error = client.open(open_port.getHost().port)
            await client.send(data, b"said.")
            await until(lambda: {data, error} <= client.ended)
            refused, why = client.open(closed_at)
            await until(lambda: {refused, why} <= client.ended)
            told = client.got[why].startswith(b"error forwarding port")
            said = client.got[data], client.got[error], client.got[refused], told
            client.leave()
            await until(lambda: client.lost)
            return said

        self.assertEqual(await self.same(asked), (b"SAID.", b"", b"", True))

    async def test_logs(self) -> None:
        """Every option of a log gives the same bytes, or the same code."""

        async def asked(endpoint: Any) -> Any:
            said = {query: await get(endpoint, f"web/main?{query}") for query in LOGS}
            for query in REFUSED:
                said[query] = (await get(endpoint, f"web/main?{query}"))[0], b""
            for path in ("no/main", "web/no"):
                said[path] = (await get(endpoint, path))[0], b""
            return said

        said = await self.same(asked)
        self.assertEqual(said["tailLines=2"], (200, b"three\nfour\n"))

    async def test_refusals(self) -> None:
        """Refusals have the same status code."""

        async def asked(endpoint: Any) -> Any:
            said = []
            for path in (
                "/exec/default/web/main?command=true",
                f"/exec/default/no/main?command=true&{ALL}",
                f"/attach/default/no/main?{ALL}",
            ):
                try:
                    await call(endpoint, path, OVER_SPDY)
                except UpgradeRefused as refused:
                    said.append((path, refused.code))
            return said

        self.assertEqual([code for _, code in await self.same(asked)], [400, 404, 404])


PODS: dict[str, dict[str, Any]] = {
    "default/web": {
        "main": {"command": []},
        "echo": {"command": ["sh", "-c", 'while read -r line; do echo "<$line>"; done']},
    }
}
