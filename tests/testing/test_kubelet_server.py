"""Tests for :mod:`twisted_exec.testing.kubelet`."""

from __future__ import annotations

import base64
import os
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote_plus

from twisted.internet.protocol import Factory, Protocol

from tests.ports import reserved_port
from tests.streaming.readers import read
from tests.testing.callers import Caller, Forwarding, call, forward, until
from tests.tiers import PROGRAMS
from tests.tls.support import LoopbackCase, authority, client_identity, reactor
from twisted_exec.streaming.http.upgrade_client import UpgradeRefused, UpgradeRequest, upgrade
from twisted_exec.streaming.http.websocket import ClientSocket, client_factory, start
from twisted_exec.streaming.interfaces import COMPLETED, INTERNAL, Ending
from twisted_exec.streaming.remotecommand.carriers import OVER_SPDY, Attempt
from twisted_exec.testing.kubelet import Container, Kubelet
from twisted_exec.testing.kubelet_processes import STDERR
from twisted_exec.tls.client import ClientTLS
from twisted_exec.tls.endpoints import client_endpoint
from twisted_exec.wire.channel import V1, V4, V4_BASE64, V5, Channel

ALL = "input=1&output=1&error=1"
IN_OUT_ERROR = (Channel.STDIN, Channel.STDOUT, Channel.STDERR)


class KubeletCase(LoopbackCase):
    """A kubelet with one Pod."""

    tls: Any = None
    client_tls_of: ClientTLS | None = None

    async def kubelet(self, container: Container | None = None, **more: Any) -> Kubelet:
        pods = {("default", "web"): {"main": container or Container()}}
        kubelet = Kubelet(reactor, pods, **more)
        self.addCleanup(kubelet.stop)
        port = await kubelet.listen("tcp:0:interface=127.0.0.1")
        self.endpoint = client_endpoint(
            reactor, "127.0.0.1", port.getHost().port, self.client_tls_of
        )
        return kubelet

    async def exec(
        self,
        *command: str,
        protocol: str = OVER_SPDY,
        query: str = ALL,
        channels: Any = IN_OUT_ERROR,
    ) -> Caller:
        words = "&".join(f"command={quote_plus(word)}" for word in command)
        return await call(
            self.endpoint, f"/exec/default/web/main?{words}&{query}", protocol, channels
        )

    async def refusal(self, path: str, protocol: str = OVER_SPDY) -> tuple[int, str]:
        with self.assertRaises(UpgradeRefused) as caught:
            await call(self.endpoint, path, protocol)
        return caught.exception.code, caught.exception.body.decode()

    async def get(self, path: str) -> bytes:
        found = await read(self.endpoint, UpgradeRequest(b"GET", path.encode(), b"node"))
        await until(lambda: found.complete is not None)
        self.assertTrue(found.complete)
        return found.got

    async def answer(self, path: str, method: bytes = b"GET") -> tuple[int, str]:
        with self.assertRaises(UpgradeRefused) as caught:
            await read(self.endpoint, UpgradeRequest(method, path.encode(), b"node"))
        return caught.exception.code, caught.exception.body.decode()


class ExecTests(KubeletCase):
    """Commands of a client's own."""

    starts = PROGRAMS

    async def test_streams_are_apart(self) -> None:
        """Output, errors and the exit code come by themselves, in every version."""
        await self.kubelet()
        for protocol in (OVER_SPDY, V5, V4, V4_BASE64):
            caller = await self.exec(
                "sh", "-c", "echo out; echo err >&2; exit 7", protocol=protocol
            )
            self.assertEqual(await caller.over(), _exited(7), protocol)
            self.assertEqual(caller.got[Channel.STDOUT], b"out\n", protocol)
            self.assertEqual(caller.got[Channel.STDERR], b"err\n", protocol)

    async def test_a_version_without_a_status(self) -> None:
        """The oldest WebSocket ends without a word when all is well."""
        await self.kubelet()
        caller = await self.exec("echo", "out", protocol=V1)
        await until(lambda: caller.why is not None)
        self.assertEqual(caller.got[Channel.STDOUT], b"out\n")
        self.assertEqual(caller.got[Channel.ERROR], b"")

    async def test_spdy_has_no_version_5(self) -> None:
        """Of what a client of today offers over SPDY a kubelet takes version 4."""
        await self.kubelet()
        caller = await self.exec("true")
        self.assertEqual(caller.carrier.protocol, V4)
        self.assertTrue((await caller.over()).is_success)

    async def test_input_ends(self) -> None:
        """A command that reads its input sees the end of it, and what it prints then comes."""
        await self.kubelet()
        for protocol in (OVER_SPDY, V5):
            caller = await self.exec("sort", protocol=protocol)
            caller.type(b"b\na\n")
            caller.carrier.end(Channel.STDIN)
            self.assertTrue((await caller.over()).is_success)
            self.assertEqual(caller.got[Channel.STDOUT], b"a\nb\n")

    async def test_much_input_and_output(self) -> None:
        """Data larger than any buffer passes unchanged in both directions."""
        await self.kubelet()
        for protocol in (OVER_SPDY, V5):
            sent = os.urandom(3 << 20)
            caller = await self.exec("cat", protocol=protocol)
            for at in range(0, len(sent), 100_000):
                caller.type(sent[at : at + 100_000])
            caller.carrier.end(Channel.STDIN)
            self.assertTrue((await caller.over()).is_success)
            self.assertTrue(caller.got[Channel.STDOUT] == sent)

    async def test_a_command_that_reads_nothing(self) -> None:
        """A session ends even if the command has not read its input."""
        await self.kubelet()
        caller = await self.exec("sh", "-c", "exec <&-; sleep 0.2; exit 3")
        caller.type(bytes(2 << 20))
        self.assertEqual(await caller.over(), _exited(3))

    async def test_no_input(self) -> None:
        """A command whose client asked for no input finds the end of it at once."""
        await self.kubelet()
        caller = await self.exec("cat", query="output=1", channels=(Channel.STDOUT,))
        self.assertTrue((await caller.over()).is_success)

    async def test_a_terminal_has_a_size(self) -> None:
        """With a terminal errors are output, and sizes reach the command."""
        await self.kubelet()
        for protocol in (OVER_SPDY, V5):
            caller = await self.exec(
                "sh",
                "-c",
                "read line; stty size >&2; exit 4",
                protocol=protocol,
                query="input=1&output=1&error=1&tty=1",
                channels=(Channel.STDIN, Channel.STDOUT, Channel.RESIZE),
            )
            caller.resize(91, 37)
            caller.type(b"go\r")
            self.assertEqual(await caller.over(), _exited(4))
            self.assertIn(b"37 91", caller.got[Channel.STDOUT])
            self.assertEqual(caller.got[Channel.STDERR], b"")

    async def test_killed(self) -> None:
        """A command killed by a signal ends with exit code 128 + signal, as in a shell."""
        await self.kubelet()
        caller = await self.exec("sh", "-c", "kill -9 $$")
        self.assertEqual(await caller.over(), _exited(137))

    async def test_no_such_command(self) -> None:
        """A command that is not there is a failure of the runtime."""
        await self.kubelet()
        ending = await (await self.exec("no-such-command")).over()
        self.assertEqual(ending.reason, INTERNAL)
        self.assertIn("executable file not found", ending.message)

    async def test_refusals(self) -> None:
        """Invalid requests are refused before the upgrade, with the messages of a kubelet."""
        await self.kubelet()
        self.assertEqual(
            await self.refusal("/exec/default/web/main?command=true"),
            (400, "you must specify at least 1 of stdin, stdout, stderr"),
        )
        self.assertEqual(
            await self.refusal(f"/exec/default/other/main?command=true&{ALL}"),
            (404, "pod does not exist"),
        )
        code, told = await self.refusal(f"/exec/default/web/other?command=true&{ALL}")
        self.assertEqual((code, told), (404, "container not found ('other')"))
        self.assertEqual((await self.answer(f"/exec/default/web/main?{ALL}"))[0], 400)
        self.assertEqual((await self.answer("/pods"))[0], 404)

    async def test_with_a_uid(self) -> None:
        """The path may name the Pod's UID."""
        kubelet = await self.kubelet()
        caller = await call(
            self.endpoint,
            f"/exec/default/web/uid-1/main?command=true&{ALL}",
            OVER_SPDY,
            IN_OUT_ERROR,
        )
        self.assertTrue((await caller.over()).is_success)
        self.assertEqual(kubelet.seen[-1].uri, f"/exec/default/web/uid-1/main?command=true&{ALL}")

    async def test_a_client_that_vanishes(self) -> None:
        """A command without its client finds no reader, and nothing of it stays."""
        kubelet = await self.kubelet()
        caller = await self.exec("sh", "-c", "echo there; cat")
        await caller.printed(b"there")
        caller.carrier.abort()
        await until(lambda: not kubelet.streams)
        await until(lambda: all(each.ended for each in kubelet.processes))

    async def test_the_end_of_the_kubelet(self) -> None:
        """Stopping ends commands, with what they have started, and their sessions."""
        kubelet = await self.kubelet()
        caller = await self.exec("sh", "-c", "sleep 1000 & echo $!; wait")
        await until(lambda: b"\n" in caller.got[Channel.STDOUT])
        child = int(caller.got[Channel.STDOUT])
        await kubelet.stop()
        await until(lambda: caller.why is not None)
        await until(lambda: not _is_running(child))


class AttachTests(KubeletCase):
    """Joining what a container runs."""

    starts = PROGRAMS

    async def test_all_see_the_same(self) -> None:
        """Every attached client sees the output, which is also logged."""
        kubelet = await self.kubelet(Container(["sh", "-c", "while read x; do echo $x; done"]))
        first, second = [
            await call(self.endpoint, f"/attach/default/web/main?{ALL}", way, IN_OUT_ERROR)
            for way in (OVER_SPDY, V5)
        ]
        first.type(b"hello\n")
        await first.printed(b"hello\n")
        await second.printed(b"hello\n")
        self.assertEqual(await self.get("/containerLogs/default/web/main"), b"hello\n")
        first.carrier.close()
        await until(lambda: first.why is not None)
        second.type(b"again\n")
        await second.printed(b"again\n")
        kubelet.remove("default", "web")
        self.assertEqual(await second.over(), Ending(COMPLETED))

    async def test_nothing_runs(self) -> None:
        """A container without a command cannot be attached to."""
        await self.kubelet()
        code, _ = await self.refusal(f"/attach/default/web/main?{ALL}")
        self.assertEqual(code, 500)

    async def test_a_terminal(self) -> None:
        """A container with a terminal gives it to whoever attaches."""
        await self.kubelet(Container(["sh", "-c", "read x; stty size; read x"], tty=True))
        caller = await call(
            self.endpoint,
            "/attach/default/web/main?input=1&output=1&tty=1",
            OVER_SPDY,
            (Channel.STDIN, Channel.STDOUT, Channel.RESIZE),
        )
        caller.resize(70, 20)
        caller.type(b"\r")
        await caller.printed(b"20 70")


class RunTests(KubeletCase):
    """Commands without streams."""

    starts = PROGRAMS

    async def test_output(self) -> None:
        """The output of both kinds is the answer, a failure is 500."""
        await self.kubelet()
        told = await self.answer("/run/default/web/main?cmd=echo+there", b"POST")
        self.assertEqual(told, (200, "there\n"))
        code, told = await self.answer("/run/default/web/main?cmd=false", b"POST")
        self.assertEqual(code, 500)
        self.assertIn("exited with 1", told)


class LogTests(KubeletCase):
    """Container logs."""

    async def test_options(self) -> None:
        """Every option of a reader is kept, alone and together."""
        kubelet = await self.kubelet()
        log = kubelet.pods["default", "web"]["main"].log
        for second, (text, stream) in enumerate(
            [(b"one\n", "Stdout"), (b"two\n", STDERR), (b"three\n", "Stdout")]
        ):
            log.write(text, stream, _at(second))
        base = "/containerLogs/default/web/main"
        for query, told in {
            "": b"one\ntwo\nthree\n",
            "tailLines=0": b"",
            "tailLines=2": b"two\nthree\n",
            "tail=all": b"one\ntwo\nthree\n",
            "tail=1": b"three\n",
            "limitBytes=6": b"one\ntw",
            "tailLines=1&limitBytes=2": b"th",
            "sinceTime=2026-01-02T03:04:06Z": b"two\nthree\n",
            "sinceSeconds=5": b"",
            "stream=Stderr": b"two\n",
            "stream=Stdout": b"one\nthree\n",
            "timestamps=true&tailLines=1": b"2026-01-02T03:04:07.500000000Z three\n",
        }.items():
            self.assertEqual(await self.get(f"{base}?{query}"), told, query)

    async def test_refusals(self) -> None:
        """An unparsable option gets 400, an invalid value 422, an unknown container 404."""
        await self.kubelet()
        base = "/containerLogs/default/web/main"
        for query, code in {
            "tailLines=x": 400,
            "sinceTime=yesterday": 400,
            "follow=perhaps": 400,
            "tailLines=-1": 422,
            "limitBytes=0": 422,
            "sinceSeconds=0": 422,
            "sinceSeconds=1&sinceTime=2026-01-02T03:04:06Z": 422,
            "stream=Neither": 422,
            "previous=true": 400,
        }.items():
            self.assertEqual((await self.answer(f"{base}?{query}"))[0], code, query)
        self.assertEqual(
            await self.answer("/containerLogs/default/other/main"),
            (404, 'pod "other" does not exist'),
        )
        self.assertEqual(
            await self.answer("/containerLogs/default/web/other"),
            (404, 'container "other" not found in pod "web"'),
        )

    async def test_follow(self) -> None:
        """A follower receives new output until the container ends."""
        kubelet = await self.kubelet()
        log = kubelet.pods["default", "web"]["main"].log
        log.write(b"before\n")
        head = UpgradeRequest(
            b"GET", b"/containerLogs/default/web/main?follow=true&tailLines=0", b"node"
        )
        reader = await read(self.endpoint, head)
        log.write(b"after\n")
        await until(lambda: reader.got == b"after\n")
        self.assertIsNone(reader.complete)
        log.end()
        await until(lambda: reader.complete)

    async def test_the_one_before(self) -> None:
        """``previous`` reads the log of the container before."""
        kubelet = await self.kubelet(Container(previous=Container().log))
        previous = kubelet.pods["default", "web"]["main"].previous
        assert previous is not None
        previous.write(b"crashed\n")
        self.assertEqual(
            await self.get("/containerLogs/default/web/main?previous=true"), b"crashed\n"
        )


class _Echo(Protocol):
    transport: Any

    def dataReceived(self, data: bytes) -> None:
        self.transport.write(data.upper())
        if data.endswith(b"."):
            self.transport.loseConnection()


class PortForwardTests(KubeletCase):
    """Ports of a Pod."""

    async def a_port(self) -> int:
        port = await self.listen(Factory.forProtocol(_Echo), None)
        return int(port.getHost().port)

    async def check(self, client: Forwarding, port: int, closed: int) -> None:
        """Two connections at once, then one that is refused."""
        first, second = client.open(port), client.open(port)
        await client.send(second[0], b"second.")
        await client.send(first[0], b"first.")
        await until(lambda: {*first, *second} <= client.ended)
        self.assertEqual(client.got[first[0]], b"FIRST.")
        self.assertEqual(client.got[second[0]], b"SECOND.")
        self.assertEqual(client.got[first[1]] + client.got[second[1]], b"")
        data, error = client.open(closed)
        await until(lambda: {data, error} <= client.ended)
        self.assertRegex(
            client.got[error], rb"error forwarding port \d+ to pod web, uid : failed to connect"
        )

    async def test_pairs(self) -> None:
        """Over SPDY every connection has its own pair of streams, and its own end."""
        await self.kubelet()
        client = await forward(self.endpoint, "/portForward/default/web")
        await self.check(client, await self.a_port(), reserved_port(self))
        client.leave()
        await until(lambda: client.lost)

    async def test_the_end_of_input(self) -> None:
        """A client's end of a stream is the connection's, whose answer still comes."""

        class AtTheEnd(_Echo):
            def connectionLost(self, reason: Any = None) -> None:
                ended.append(True)

        ended: list[bool] = []
        await self.kubelet()
        port = await self.listen(Factory.forProtocol(AtTheEnd), None)
        client = await forward(self.endpoint, "/portForward/default/web/uid-1")
        data, error = client.open(port.getHost().port)
        await client.send(data, b"all", fin=True)
        await until(lambda: {data, error} <= client.ended)
        self.assertEqual(client.got[data], b"ALL")
        await until(lambda: ended)
        client.leave()

    async def test_a_bad_stream(self) -> None:
        """A stream without a port that can be is reset, and the others go on."""
        await self.kubelet()
        client = await forward(self.endpoint, "/portForward/default/web")
        data, error = client.open(70_000)
        await until(lambda: {data, error} <= client.ended)
        await self.check(client, await self.a_port(), reserved_port(self))
        client.leave()

    async def test_tunnel(self) -> None:
        """The same within a WebSocket's messages."""
        await self.kubelet()
        socket, client = await self.socket("SPDY/3.1+portforward.k8s.io", "")
        tunnel = _Tunnel(socket, client)
        factory = client_factory(reactor, 1 << 20)
        self.upgraded.hand_over(start(socket, factory, tunnel, reactor, 5))
        await self.check(client, await self.a_port(), reserved_port(self))
        socket.close()
        await until(lambda: tunnel.gone)

    async def socket(self, protocol: str, query: str) -> tuple[Any, Forwarding]:
        attempt = Attempt.for_protocol(protocol)
        head = attempt.head(
            UpgradeRequest(b"GET", b"/portForward/default/web" + query.encode(), b"node")
        )
        upgraded = await upgrade(self.endpoint, head, clock=reactor, timeout_seconds=600)
        attempt.chosen(upgraded)
        self.upgraded = upgraded
        return ClientSocket(), Forwarding()

    async def test_old_websocket(self) -> None:
        """The old form has two channels for each port, which begin with its number."""
        await self.kubelet()
        first, second = await self.a_port(), await self.a_port()
        for protocol in (V4, V4_BASE64):
            socket, _ = await self.socket(protocol, f"?port={first},{second}")
            talk = _Messages(protocol == V4_BASE64)
            factory = client_factory(reactor, 1 << 20)
            self.upgraded.hand_over(start(socket, factory, talk, reactor, 5))
            await until(lambda t=talk: len(t.got) == 4)
            for at, port in ((0, first), (2, second)):
                self.assertEqual(talk.got[at], port.to_bytes(2, "little"))
                self.assertEqual(talk.got[at + 1], port.to_bytes(2, "little"))
            talk.say(socket, 0, b"one.")
            talk.say(socket, 2, b"two.")
            await until(lambda t=talk: t.is_lost)
            self.assertEqual(talk.got[0][2:], b"ONE.")
            self.assertEqual(talk.got[2][2:], b"TWO.")

    async def test_refusals(self) -> None:
        """No Pod, no port and no upgrade are refused."""
        await self.kubelet()
        with self.assertRaises(UpgradeRefused) as caught:
            await forward(self.endpoint, "/portForward/default/other")
        self.assertEqual(caught.exception.code, 404)
        self.assertEqual((await self.answer("/portForward/default/web"))[0], 400)
        for query in ("", "?port=0", "?port=80,x"):
            with self.assertRaises(UpgradeRefused) as caught:
                await self.socket(V4, query)
            self.assertEqual(caught.exception.code, 400)


class _Tunnel:
    """Joins :class:`Forwarding` to a WebSocket: its transport, and the socket's user."""

    def __init__(self, socket: Any, client: Forwarding) -> None:
        self.socket, self.client, self.gone = socket, client, False

    def write(self, data: bytes) -> None:
        self.socket.send(data)

    def opened(self) -> None:
        self.client.makeConnection(self)  # type: ignore[arg-type]

    def message_received(self, message: bytes) -> None:
        self.client.dataReceived(message)

    def pong_received(self) -> None:
        """Ignore it: no ping was sent."""

    def failing(self, reason: str) -> None:
        raise AssertionError(reason)

    def close_received(self, code: int | None, reason: str) -> None:
        """It is answered."""

    def lost(self, reason: str) -> None:
        self.gone = True


class _Messages:
    """Keeps what came on each channel of a WebSocket."""

    def __init__(self, in_base64: bool) -> None:
        self.got: dict[int, bytes] = {}
        self.is_lost = False
        self._in_base64 = in_base64

    def say(self, socket: Any, channel: int, data: bytes) -> None:
        if self._in_base64:
            socket.send(b"%d" % channel + base64.b64encode(data), text=True)
        else:
            socket.send(bytes((channel,)) + data)

    def opened(self) -> None:
        """The server begins."""

    def message_received(self, message: bytes) -> None:
        channel = message[0] - 48 if self._in_base64 else message[0]
        data = base64.b64decode(message[1:]) if self._in_base64 else message[1:]
        self.got[channel] = self.got.get(channel, b"") + data

    def pong_received(self) -> None:
        """Ignore it: no ping was sent."""

    def failing(self, reason: str) -> None:
        raise AssertionError(reason)

    def close_received(self, code: int | None, reason: str) -> None:
        """It is answered."""

    def lost(self, reason: str) -> None:
        self.is_lost = True


class IdentityTests(KubeletCase):
    """Authentication of clients."""

    starts = PROGRAMS

    async def test_client_certificates(self) -> None:
        """Every path answers 401 unless the client has a certificate of the CA."""
        ca = self.write("ca.crt", authority("users").certificate_pem)
        self.client_tls_of = self.client_tls("127.0.0.1")
        pem = authority("users").certificate_pem
        kubelet = await self.kubelet(tls=self.server_tls(client_cas=[ca]), client_ca=pem)
        for path in ("/healthz", "/containerLogs/default/web/main", "/nowhere"):
            self.assertEqual(await self.answer(path), (401, "Unauthorized"))
        shown = client_identity("kube-apiserver", "system:masters")
        self.client_tls_of = self.client_tls(
            "127.0.0.1",
            certificate_pem=shown.certificate_pem,
            key_pem=shown.key_pem,
        )
        port = await kubelet.listen("tcp:0:interface=127.0.0.1")
        self.endpoint = client_endpoint(
            reactor, "127.0.0.1", port.getHost().port, self.client_tls_of
        )
        self.assertEqual(await self.get("/healthz"), b"ok")
        caller = await self.exec("echo", "there", protocol=V5)
        self.assertTrue((await caller.over()).is_success)


def _exited(code: int) -> Ending:
    return Ending(COMPLETED, f"command terminated with exit code {code}", code)


def _at(second: int) -> Any:
    return datetime(2026, 1, 2, 3, 4, 5 + second, 500_000 if second == 2 else 0, tzinfo=UTC)


def _is_running(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
