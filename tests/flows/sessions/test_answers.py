"""
Refused consoles: a JSON Status over raw HTTPS, and the same message from the real
``kubectl-console``.

API server, poollet and runtime run in this process on real sockets; only ``kubectl-console`` is a
separate program.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.endpoints import TCP4ServerEndpoint, connectProtocol
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from zope.interface import implementer

from tests.apiserver.chain import WEBSOCKET, ChainTestCase
from tests.chain import POOL, pki, reactor
from tests.flows import programs
from tests.flows.deployment import gone, pause
from tests.streaming.frames import KEY, handshake
from tests.streaming.raw import Raw
from tests.tiers import PROGRAMS
from twisted_exec.api import kinds
from twisted_exec.api.kinds import Object
from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.api.users import FORWARDING_USER
from twisted_exec.iri.client import IRIClient
from twisted_exec.iri.interfaces import IMachineRuntime
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.iri.request_cache import Grant, RequestCache, StreamLinks
from twisted_exec.iri.server import IRIServer
from twisted_exec.kube.client import KubeClient
from twisted_exec.kube.kubeconfig.client_config import ClientConfig, Material
from twisted_exec.poollet import service as poollet
from twisted_exec.runtimes.config import parse
from twisted_exec.runtimes.processes import ProcessTable
from twisted_exec.runtimes.service import MARK, MachineRuntime
from twisted_exec.runtimes.serving.options import Listening
from twisted_exec.runtimes.serving.stream_server import StreamServer
from twisted_exec.runtimes.settings import MachineSettings
from twisted_exec.streaming.http.upgrade_client import Upgraded, UpgradeRefused
from twisted_exec.tls.client import ClientTLS
from twisted_exec.tls.endpoints import client_endpoint, server_endpoint, unix_client_endpoint
from twisted_exec.tls.files import read_file
from twisted_exec.tls.pki.authority import Authority
from twisted_exec.tls.server import ServerTLS
from twisted_exec.wire.upgrade import accept_key

MACHINES, POOLS = kinds.MACHINES.resource, kinds.MACHINEPOOLS.resource
TOKEN_SECONDS = 90
"""Lifetime of tokens: longer than ``kubectl console`` waits for a busy server."""


class AnswersCase(ChainTestCase):
    """Compares the API server's response with the output of ``kubectl-console``."""

    starts = PROGRAMS

    def config(self, *, certificate: bytes = b"", key: bytes = b"", token: str = "") -> str:
        """Write a kubeconfig with these credentials, or with none, and return its path."""
        user: dict[str, str] = {"token": token} if token else {}
        if certificate:
            user["client-certificate-data"] = base64.b64encode(certificate).decode()
            user["client-key-data"] = base64.b64encode(key).decode()
        ca = base64.b64encode(read_file(pki().serving_ca)).decode()
        server = {"server": self.server.url, "certificate-authority-data": ca}
        path: str = os.path.abspath(self.mktemp())
        with open(path, "w") as file:
            json.dump(
                {
                    "clusters": [{"name": "c", "cluster": server}],
                    "users": [{"name": "u", "user": user}],
                    "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                    "current-context": "x",
                },
                file,
            )
        return path

    async def console(self, name: str, kubeconfig: str) -> str:
        """Return the single line that ``kubectl console NAME`` prints before it exits with 1."""
        program = programs.start(
            [programs.script("kubectl-console"), name], env={"KUBECONFIG": kubeconfig}
        )
        self.addCleanup(program.stop, 9)
        code = await program.ended
        told = program.output.decode()
        self.assertEqual((code, program.stdout), (1, b""), told)
        self.assertEqual(len(told.splitlines()), 1, told)
        return told.rstrip("\n")

    async def both(
        self, code: int, told: str, name: str = "vm", *, user: str = "admin", console: str = ""
    ) -> None:
        """
        Check that a console is refused with this code and message.

        :param console: the output of ``kubectl console``, if it differs from the message. For a fault on the way to the
            machine it ends with the next step.
        """
        if code in (502, 503, 504):
            console = f"{told}; twisted-exec doctor {name} -n default says what to do"
        self.assertEqual(await self.refused(code, name, user=user), told)
        self.assertIn(f'"{name}"' if f'"{name}"' in told else f"machine {name}", told)
        line = await self.console(name, self.kubeconfig(f"user-{user}"))
        self.assertEqual(line, console or told)


class UnreachedTests(AnswersCase):
    """Refusals of the API server itself."""

    async def test_unknown(self) -> None:
        """An unknown machine is 404."""
        await self.both(
            404,
            'machines.compute.ironcore.dev "nobody" not found',
            "nobody",
            console='machine "nobody" not found in namespace "default"',
        )

    async def test_odd_names(self) -> None:
        """An invalid machine name is not found or refused, and reaches no other path."""
        kubeconfig = self.kubeconfig("user-admin")
        for name in ("x?y=z", "ümlaut", "a b"):
            line = await self.console(name, kubeconfig)
            self.assertEqual(line, f'machine "{name}" not found in namespace "default"')
        line = await self.console("a/b", kubeconfig)
        self.assertIn('"a/b": there is no kind "a"; there are pod, machine, instance', line)
        for name in ("..", "../../nodes/x", "%2e%2e", "", "x" * 300):
            line = await self.console(name, kubeconfig)
            told = f'kubectl console: argument NAME: "{name}" is no name: '
            self.assertTrue(line.startswith(told), line)

    async def test_no_pool(self) -> None:
        """A machine without a pool is 400, with the scheduler's reason, if it has said one."""
        await self.make_machine("free", "")
        told = 'machine "free" has no machine pool yet(: .+)?; twisted-exec doctor free -n default'
        self.assertRegex(await self.refused(400, "free"), told)
        self.assertRegex(await self.console("free", self.kubeconfig("user-admin")), f"^{told}")

    async def test_pool_gone(self) -> None:
        """A machine whose pool was deleted is 404."""
        await self.make_pool(("InternalIP", "127.0.0.1"), port=1)
        await self.make_machine()
        await self.admin.delete(POOLS, POOL)
        await gone(self.admin, POOLS, POOL)
        told = '"pool-a" not found: machine "vm" is assigned to it; '
        told += "twisted-exec doctor vm -n default says what to do"
        await self.both(
            404,
            f"machinepools.compute.ironcore.dev {told}",
            console=f"machinepool {told}",
        )

    async def test_no_address(self) -> None:
        """A pool without a usable address is 503."""
        await self.make_pool(("InternalIP", ""), port=1)
        await self.make_machine()
        types = ", ".join(kinds.ADDRESS_TYPES)
        await self.both(
            503,
            'machine "vm": machine pool "pool-a" has no usable address of the preferred types '
            f"{types}; known addresses: InternalIP=",
        )

    async def test_not_allowed(self) -> None:
        """A user without the permission is 403, whether the machine exists or not."""
        await self.make_machine()
        for name in ("vm", "nobody"):
            told = (
                f'machines.compute.ironcore.dev "{name}" is forbidden: User "jane" cannot create '
                'resource "machines/exec" in API group "compute.ironcore.dev" in the namespace '
                '"default"'
            )
            remedy = (
                '; is the namespace "default" right? If so, ask an administrator for the role '
                "console-user (console-observer suffices for --read-only): kubectl create "
                "rolebinding jane-console-user --clusterrole=console-user --user=jane -n default"
            )
            console = f"you may not open {name}: {told}{remedy}"
            await self.both(403, told, name, user="jane", console=console)

    async def test_no_upgrade(self) -> None:
        """A request without an upgrade is 400, which reveals a proxy that drops upgrades."""
        await self.make_pool(("InternalIP", "127.0.0.1"), port=1)
        await self.make_machine()
        told = 'machine "vm": Upgrade request required'
        self.assertEqual(await self.refused(400, headers=[]), told)
        self.assertEqual(await self.console("vm", await self.behind_a_proxy()), told)

    async def behind_a_proxy(self) -> str:
        """Return a kubeconfig for a proxy that does not support upgrades."""
        pair = pki().pair("apiserver")
        tls = ServerTLS(pair.certificate, pair.key, clock=reactor)
        endpoint = server_endpoint(reactor, "tcp:0:interface=127.0.0.1", tls)
        user = pki().pair("user-admin")
        port: int = self.server.address.port  # type: ignore[union-attr]
        to = ClientTLS(
            "127.0.0.1",
            ca_pem=read_file(pki().serving_ca),
            certificate_pem=read_file(user.certificate),
            key_pem=read_file(user.key),
        )
        factory = Factory.forProtocol(Dropping)
        factory.next = client_endpoint(reactor, "127.0.0.1", port, to)  # type: ignore[attr-defined]
        listening: Any = await endpoint.listen(factory)
        self.addCleanup(listening.stopListening)
        path = self.config()
        with open(path) as file:
            text = file.read()
        with open(path, "w") as file:
            file.write(text.replace(f":{port}", f":{listening.getHost().port}"))
        return path


class Dropping(Protocol):
    """A proxy for one request that drops the hop-by-hop headers and adds none."""

    factory: Any
    transport: Any

    def dataReceived(self, data: bytes) -> None:
        kept = re.sub(rb"(?im)^(connection|upgrade):[^\n]*\n", b"", data)
        answer = _Answer(self.transport)
        connected = connectProtocol(self.factory.next, answer)
        connected.addCallback(lambda _: answer.transport.write(kept))


class _Answer(Protocol):
    transport: Any

    def __init__(self, to: Any) -> None:
        self._to = to

    def dataReceived(self, data: bytes) -> None:
        self._to.write(data)
        self.transport.loseConnection()
        self._to.loseConnection()


_REFUSED_CERTIFICATE = "does not accept the client certificate of {source}"


class CredentialTests(AnswersCase):
    """Unknown users get 401."""

    async def setUp(self) -> None:
        self.token_file = self.mktemp()
        with open(self.token_file, "w") as file:
            file.write("right,jane,1\n")
        await super().setUp()

    async def unknown(self, kubeconfig: str, told: str) -> None:
        source = f'user "u" in {kubeconfig} (context "x")'
        told = f"{self.server.url} {told.format(source=source)}: Unauthorized"
        remedy = "; get new credentials, or check --context and --user"
        self.assertEqual(await self.console("vm", kubeconfig), told + remedy)

    async def test_none(self) -> None:
        """A request without credentials is 401."""
        told = await self.refused(401, user="")
        self.assertEqual(told, 'machine "vm": Unauthorized')
        await self.unknown(self.config(), "needs credentials, and {source} has none")

    async def test_wrong_token(self) -> None:
        """An unknown token is 401."""
        headers = [*WEBSOCKET, (b"Authorization", b"Bearer wrong")]
        told = await self.refused(401, user="", headers=headers)
        self.assertEqual(told, 'machine "vm": Unauthorized')
        told = "does not accept the bearer token of {source}"
        await self.unknown(self.config(token="wrong"), told)

    async def test_strangers_certificate(self) -> None:
        """Client certificates of another CA are 401, also those of the CA of the servers."""
        strangers = Authority.create("strangers"), pki().authority("ca")
        for authority in strangers:
            issued = authority.issue_client("admin", ["system:masters"])
            kubeconfig = self.config(certificate=issued.certificate_pem, key=issued.key_pem)
            await self.unknown(kubeconfig, _REFUSED_CERTIFICATE)

    async def test_forwarding_certificate(self) -> None:
        """The API server's own forwarding certificate is not accepted by the API server."""
        pair = pki().pair("apiserver-forwarding")
        kubeconfig = self.config(certificate=read_file(pair.certificate), key=read_file(pair.key))
        await self.unknown(kubeconfig, _REFUSED_CERTIFICATE)


class Saying(Protocol):
    """
    A listener instead of a poollet, with a fixed answer to any request, or none.

    :ivar is_spare: nothing has come.
    """

    factory: Any
    transport: Any
    is_spare = True

    def connectionMade(self) -> None:
        self.factory.live.append(self)
        if self.factory.hang_up:
            self.transport.loseConnection()

    def dataReceived(self, data: bytes) -> None:
        self.factory.heard += data
        self.is_spare = False
        key = re.search(rb"(?i)sec-websocket-key: (\S+)", data)
        if self.factory.answer_to_key is not None and key is not None:
            self.transport.write(self.factory.answer_to_key(key[1]))
        elif self.factory.answer:
            self.transport.write(self.factory.answer)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.factory.live.remove(self)


class Listener(Factory):
    """
    :ivar heard: the data of all connections.
    :ivar live: the open connections.
    """

    protocol = Saying
    noisy = False

    def __init__(self, answer: bytes = b"", hang_up: bool = False) -> None:
        self.answer, self.hang_up = answer, hang_up
        self.heard = b""
        self.live: list[Saying] = []
        self.answer_to_key: Callable[[bytes], bytes] | None = None
        """Computes the answer to a WebSocket handshake from its key."""


class OtherPoolletCase(AnswersCase):
    """A hand-made pool whose address does not lead to its poollet."""

    async def listener(
        self, answer: bytes = b"", *, pool: str = POOL, tls: bool = True, hang_up: bool = False
    ) -> tuple[Listener, int]:
        """Listen with the certificate of a pool's poollet; return the listener and its port."""
        made = Listener(answer, hang_up)
        pair = pki().pair(f"poollet-{pool}")
        layer = ServerTLS(pair.certificate, pair.key, clock=reactor) if tls else None
        endpoint = server_endpoint(reactor, "tcp:0:interface=127.0.0.1", layer)
        return made, await self.listening(endpoint, made)

    async def listening(self, endpoint: Any, factory: Factory) -> int:
        port: Any = await endpoint.listen(factory)
        self.addCleanup(self.closed, port, factory)
        number: int = port.getHost().port
        await self.make_pool(("InternalIP", "127.0.0.1"), port=number)
        await self.make_machine()
        return number

    async def closed(self, port: Any, factory: Any) -> None:
        await port.stopListening()
        for each in factory.live:
            if each.is_spare:  # the server keeps it for a minute
                each.transport.abortConnection()
        await self.until(lambda: not factory.live)

    def at(self, port: int) -> str:
        return f'pool "pool-a" at 127.0.0.1:{port}'


class SilentPoolletTests(OtherPoolletCase):
    """Listeners that do not answer in time."""

    poollet_seconds = 2.5
    """Long enough for a TLS handshake in a program that may be stopped for a moment."""

    async def test_silent(self) -> None:
        """A connection without a TLS handshake is 504 after the configured time."""
        made, port = await self.listener(tls=False)
        await self.both(
            504,
            f'machine "vm": cannot connect to {self.at(port)}: its program does not answer: '
            "no TLS handshake within 2.5 s",
        )
        await self.until(lambda: not made.live)

    async def test_slow(self) -> None:
        """A poollet that does not answer is 504 after the configured time."""
        made, port = await self.listener()
        await self.both(
            504,
            f'machine "vm": {self.at(port)}: no answer to the upgrade request within 2.5 s',
        )
        await self.until(lambda: not made.live)

    async def test_dribble(self) -> None:
        """An incomplete answer is 504 after the configured time."""
        made, _ = await self.listener(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: web")
        told = await self.refused(504)
        self.assertIn("no answer to the upgrade request within 2.5 s", told)
        await self.until(lambda: not made.live)


class OtherPoolletTests(OtherPoolletCase):
    """Listeners that answer, or refuse."""

    poollet_seconds = 600.0

    async def test_down(self) -> None:
        """A refused connection is 502."""
        port: Any = await TCP4ServerEndpoint(reactor, 0, interface="127.0.0.1").listen(Listener())
        number = port.getHost().port
        await port.stopListening()
        await self.make_pool(("InternalIP", "127.0.0.1"), port=number)
        await self.make_machine()
        await self.both(
            502, f'machine "vm": cannot connect to {self.at(number)}: connection refused'
        )

    async def test_hangs_up(self) -> None:
        """A poollet that closes the connection at once is 502."""
        _, port = await self.listener(hang_up=True)
        await self.both(
            502,
            f'machine "vm": cannot connect to {self.at(port)}: 127.0.0.1:{port} closed the '
            "connection during the TLS handshake",
        )

    async def test_another_pool(self) -> None:
        """The poollet of another pool is refused with 502, and receives no data."""
        made, port = await self.listener(pool="pool-b")
        prefix = "compute.ironcore.dev:system:machinepool:"
        await self.both(
            502,
            f'machine "vm": cannot connect to {self.at(port)}: 127.0.0.1:{port}: the certificate '
            f"is not that of the pool: its common name is ['{prefix}pool-b'], not "
            f"'{prefix}pool-a'",
        )
        self.assertEqual(made.heard, b"")

    async def test_anybody(self) -> None:
        """
        A certificate of another CA or for another address is 502, and its server receives no data.
        """
        name = "compute.ironcore.dev:system:machinepool:pool-a"
        good, other = pki().authority("ca"), Authority.create("strangers")
        for authority, host in ((other, "127.0.0.1"), (good, "127.0.0.2")):
            issued = authority.issue_server([host], common_name=name)
            files = os.path.abspath(self.mktemp())
            issued.write(f"{files}.crt", f"{files}.key")
            made = Listener()
            endpoint = server_endpoint(
                reactor,
                "tcp:0:interface=127.0.0.1",
                ServerTLS(f"{files}.crt", f"{files}.key", clock=reactor),
            )
            port = await self.listening(endpoint, made)
            self.assertIn(f"cannot connect to {self.at(port)}", await self.refused(502))
            self.assertEqual(made.heard, b"")
            await self.admin.delete(POOLS, POOL)
            await self.admin.delete(MACHINES, "vm", "default")

    async def test_plain(self) -> None:
        """A server without TLS is 502, and receives nothing of the request."""
        made, _ = await self.listener(b"HTTP/1.1 200 OK\r\n\r\n", tls=False)
        told = await self.refused(502)
        self.assertIn("it does not speak TLS on this port", told)
        self.assertNotIn(b"machines", made.heard)

    async def test_redirect(self) -> None:
        """A redirect is not followed and its target is not shown: 502."""
        other = Listener()
        trap: Any = await TCP4ServerEndpoint(reactor, 0, interface="127.0.0.1").listen(other)
        self.addCleanup(trap.stopListening)
        made, _ = await self.listener(
            b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\n"
            b"Location: http://127.0.0.1:%d/\r\n\r\n" % trap.getHost().port
        )
        await self.both(502, 'machine "vm": invalid upgrade response: status code 302')
        self.assertEqual(other.heard, b"")
        await self.until(lambda: not made.live)

    async def test_no_upgrade(self) -> None:
        """An answer with status 200 is 502, and the connection is closed."""
        made, _ = await self.listener(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nhi!")
        await self.both(502, 'machine "vm": invalid upgrade response: status code 200')
        await self.until(lambda: not made.live)

    async def test_other_answers(self) -> None:
        """Another protocol, no HTTP or an endless header is 502."""
        for answer, told in (
            (
                b"HTTP/1.1 101 X\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
                "the upgrade was answered with another protocol",
            ),
            (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", "the answer to the upgrade request is not HTTP"),
            (b"HTTP/1.1 101 X\r\nX-A: " + b"a" * (70 << 10), "is not HTTP"),
        ):
            made, _ = await self.listener(answer)
            self.assertIn(told, await self.refused(502))
            await self.until(lambda made=made: not made.live)
            await self.admin.delete(POOLS, POOL)
            await self.admin.delete(MACHINES, "vm", "default")

    async def test_broken_streams(self) -> None:
        """
        ``kubectl console`` reports invalid data after a 101, or a wrong handshake, in one line.
        """

        def head(key: bytes) -> bytes:
            return (
                b"HTTP/1.1 101 X\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                b"Sec-WebSocket-Protocol: v5.channel.k8s.io\r\n"
                b"Sec-WebSocket-Accept: " + accept_key(key) + b"\r\n\r\n"
            )

        broken, lost = (
            "the server broke the protocol: ",
            "connection lost before the session's status",
        )
        close, other_close = b"\x88\x02\x03\xe8", b"\x88\x02\x03\xf3"
        made, _ = await self.listener()
        for stream, told in (
            (b"SSH-2.0-OpenSSH_9.6\r\n", broken),
            (b"\x82\xff" + b"\xff" * 8, broken),
            (b"\x82\x02\x03x" + close, "session ended: InternalError: the server's status cannot"),
            (b"\x82\x02\x09x" + close, lost),
            (b"\x82\x01\x01" + close, lost),
            (b"\x82\x01\x01" + other_close, lost),
        ):
            made.answer_to_key = lambda key, stream=stream: head(key) + stream
            self.assertIn(told, await self.console("vm", self.kubeconfig("user-admin")))
            await self.until(lambda: all(each.is_spare for each in made.live))
        made.answer_to_key = lambda key: head(b"another key")
        line = await self.console("vm", self.kubeconfig("user-admin"))
        self.assertIn("the server's WebSocket handshake is wrong", line)

    async def test_does_not_know_us(self) -> None:
        """A poollet that rejects the API server's credentials is 502, not 401."""
        await self.listener(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\nno")
        self.assertIn("does not accept this server's credentials", await self.refused(502))


@implementer(IMachineRuntime)
class Meddling:
    """
    A runtime whose Exec answers can be replaced.

    :ivar exec_answer: returns the URL to answer for the original URL; ``None`` keeps it.
    """

    exec_answer: Callable[[str], Any] | None = None

    def __init__(self, runtime: MachineRuntime) -> None:
        self._runtime = runtime

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runtime, name)

    def exec(self, request: pb.ExecRequest, **facts: str) -> Deferred[pb.ExecResponse]:
        return Deferred.fromCoroutine(self._exec(request, facts))

    async def _exec(self, request: pb.ExecRequest, facts: dict[str, str]) -> pb.ExecResponse:
        self.facts = facts
        answer = await self._runtime.exec(request, **facts)
        if self.exec_answer is not None:
            answer = pb.ExecResponse(url=await self.exec_answer(answer.url))
        return answer


CLASSES = {
    "classes": [
        {
            "name": "small",
            "driver": "pty",
            "command": ["/bin/cat"],
            "same_user": True,
            "capabilities": {"cpu": "1", "memory": "64Mi"},
        }
    ]
}


class RuntimeTests(AnswersCase):
    """Refusals of the runtime, through poollet and API server."""

    async def setUp(self) -> None:
        await super().setUp()
        self.clock = Clock()
        self.sockets = tempfile.mkdtemp(prefix="exec-")
        self.addCleanup(shutil.rmtree, self.sockets, ignore_errors=True)
        await self.start_runtime()
        await self.start_poollet()
        await self.admin.create(
            kinds.MACHINECLASSES.resource,
            {
                "apiVersion": MACHINES.api_version,
                "kind": "MachineClass",
                "metadata": {"name": "small"},
                "capabilities": {"cpu": "1", "memory": "64Mi"},
            },
        )
        await self.make_machine()
        await self.running()

    async def dial(self, name: str = "vm", **more: Any) -> Upgraded:
        """Send a complete handshake, because the runtime requires it before it checks the token."""
        handshake = [
            *WEBSOCKET,
            (b"Sec-WebSocket-Key", KEY),
            (b"Sec-WebSocket-Version", b"13"),
            (b"Sec-WebSocket-Protocol", b"v5.channel.k8s.io"),
        ]
        return await super().dial(name, **{"method": b"GET", "headers": handshake, **more})

    async def start_runtime(self) -> None:
        """Start a runtime as :class:`RuntimeHost` does, but with a test clock for its tokens."""
        self.cache = RequestCache(self.clock, ttl_seconds=TOKEN_SECONDS, limit=4, user_limit=4)
        table = ProcessTable(reactor, MARK)
        self.runtime = MachineRuntime(
            [one.build(reactor, table) for one in parse(CLASSES)],
            table,
            reactor,
            MachineSettings(),
            state_directory=os.path.abspath(self.mktemp()),
            cache=self.cache,
            links=StreamLinks(exec_url=lambda token: self.streams.exec_url(token)),
        )
        await self.runtime.prepare()
        listening = Listening(f"unix:{self.sockets}/streams")
        self.streams = StreamServer(
            listening, self.runtime.attach, self.cache, self.audit, reactor, drain_seconds=0
        )
        await self.streams.listen()
        self.meddling = Meddling(self.runtime)
        self.iri = IRIServer(self.meddling, f"unix://{self.sockets}/iri", reactor)
        self.running_services: list[Any] = [self.runtime, self.streams, self.iri]
        self.addCleanup(self.stop_runtime)
        for service in self.running_services:
            service.startService()

    async def stop_runtime(self) -> None:
        while self.running_services:
            await self.running_services.pop().stopService()

    async def start_poollet(self) -> None:
        made = pki()
        serving, client = made.pair(f"poollet-{POOL}"), made.pair(f"poollet-{POOL}-client")
        iri = IRIClient(f"unix://{self.sockets}/iri", reactor)
        iri.startService()
        self.addCleanup(iri.stopService)
        config = ClientConfig(
            self.server.url,
            ca=Material(path=made.serving_ca),
            certificate=Material(path=client.certificate),
            key=Material(path=client.key),
        )
        kube = KubeClient(config, reactor)
        self.addCleanup(kube.close)
        settings = poollet.Settings(
            pool=POOL,
            provider_id="test://pool-a",
            certificate=serving.certificate,
            key=serving.key,
            listen="tcp:0:interface=127.0.0.1",
            requestheader_ca=made.forwarding_ca,
            requestheader_names=[FORWARDING_USER],
            addresses=[("InternalIP", "127.0.0.1")],
            drain_seconds=0,
        )
        self.pool = poollet.Poollet(settings, kube, iri, self.audit, reactor)
        self.addCleanup(self.pool.stopService)
        self.pool.startService()
        await self.pool.when_ready()

    async def running(self) -> Object:
        found: list[Object] = []

        async def look() -> None:
            found.append(await self.admin.get(MACHINES, "vm", "default"))

        while not found or found[-1].get("status", {}).get("state") != "Running":
            await look()
        return found[-1]

    async def use(self, url: str) -> str:
        """Open the console of an exec URL as the poollet would, and close it again."""
        path = url[url.index("/exec/") :]
        user, uid = (self.meddling.facts[name] for name in ("user", "machine_uid"))
        told = f"\r\nX-Twisted-Exec-User: {user}\r\nX-Twisted-Exec-Machine-Uid: {uid}\r\n\r\n"
        endpoint = unix_client_endpoint(reactor, f"{self.sockets}/streams")
        viewer: Any = await connectProtocol(endpoint, Raw())
        request = handshake().replace(b"/exec", path.encode(), 1)
        viewer.transport.write(request.replace(b"\r\n\r\n", told.encode()))
        await self.until(lambda: b"\r\n\r\n" in viewer.received)
        self.assertIn(b"101 Switching Protocols", viewer.received)
        viewer.transport.abortConnection()
        await self.until(lambda: viewer.lost)
        return url

    async def test_good(self) -> None:
        """An unchanged Exec answer opens the console."""
        end = await self.open()
        end.transport.loseConnection()
        await self.until(lambda: end.lost)

    async def test_spoilt_tokens(self) -> None:
        """A token that is used, expired, mistyped or unknown is 404."""

        async def expired(url: str) -> str:
            self.clock.advance(TOKEN_SECONDS)
            return url

        async def mistyped(url: str) -> str:
            return url[:-1] + ("A" if url[-1] != "A" else "B")

        async def missing(url: str) -> str:
            return url[: url.rindex("/") + 1] + "x"

        for answer in (self.use, expired, mistyped, missing):
            self.meddling.exec_answer = answer
            await self.both(404, 'machine "vm": unknown exec token: used, expired or mistyped')
        ends = [each for each in self.audit if each["event"] == "end" and each["hop"] == "runtime"]
        self.assertEqual({each.get("code") for each in ends}, {None, 404})

    async def test_full(self) -> None:
        """
        A runtime at its limit of unopened consoles answers 429 with the time to retry.

        ``kubectl console`` gives up at once if that takes too long, and waits otherwise.
        """
        for _ in range(4):
            self.cache.insert(Grant("some machine"))
        self.clock.advance(20)
        told = 'machine "vm": 4 consoles are waiting to be opened on this runtime, its limit'
        with self.assertRaises(UpgradeRefused) as caught:
            await self.dial()
        headers = {name.lower(): value for name, value in caught.exception.headers}
        self.assertEqual(headers[b"retry-after"], b"70")
        await self.both(429, told, console=f"{told}; try again in 70 s")
        self.clock.advance(69)
        await self.opens_later(self.kubeconfig("user-admin"))

    async def opens_later(self, kubeconfig: str) -> None:
        """Start ``kubectl console`` at a full runtime, which has a free place a second later."""
        refused = self.refusals()
        program = programs.start(
            [programs.script("kubectl-console"), "vm"], env={"KUBECONFIG": kubeconfig}
        )
        self.addCleanup(program.stop, 9)
        while self.refusals() == refused:
            await pause()
        self.clock.advance(1)
        program.type(b"hello\n")
        await program.until(rb"hello\r\n")
        self.assertNotIn(b"limit", program.output)

    def refusals(self) -> int:
        return sum(each.get("code") == 429 for each in self.audit)

    async def test_no_url(self) -> None:
        """A runtime that returns no URL offers no console: 501."""

        async def nothing(url: str) -> str:
            return ""

        self.meddling.exec_answer = nothing
        await self.both(501, 'machine "vm": the machine runtime offers no console for this machine')

    async def test_unusable_urls(self) -> None:
        """An exec URL that leads elsewhere is not dialled and not shown: 502."""
        trap = Listener()
        port: Any = await TCP4ServerEndpoint(reactor, 0, interface="127.0.0.2").listen(trap)
        self.addCleanup(port.stopListening)
        for url in (
            f"http://localhost.example:{port.getHost().port}/exec/t0ken",
            "ftp://127.0.0.1/exec/t0ken",
            "https://127.0.0.1/exec/t0ken",
            "http+unix://%2Fnonexistent/exec/t0ken",
            "http://127.0.0.1:x/exec/t0ken",
            "http://127.0.0.1/exec/t0ken\r\nX-A: b",
        ):

            async def other(_: str, url: str = url) -> str:
                return url

            self.meddling.exec_answer = other
            self.clock.advance(TOKEN_SECONDS)
            told = await self.refused(502)
            self.assertIn('machine "vm": the machine runtime\'s exec URL is not used', told)
            self.assertNotIn("t0ken", told)
        self.assertEqual(trap.heard, b"")

    async def test_streams_down(self) -> None:
        """A runtime whose stream server does not answer is 502."""
        self.running_services.remove(self.streams)
        await self.streams.stopService()
        told = await self.refused(502)
        self.assertIn('machine "vm": ', told)
        self.assertNotIn("/exec/", told)

    async def test_runtime_down(self) -> None:
        """An unreachable runtime is 503."""
        await self.stop_runtime()
        await self.both(503, 'machine "vm": the machine runtime of the pool cannot be reached')

    async def test_runtime_refuses(self) -> None:
        """A ServiceUnavailable error of the runtime reaches the user as 503."""

        async def refuse(url: str) -> str:
            raise ServiceUnavailable("the line is being rewired")

        self.meddling.exec_answer = refuse
        self.assertIn('machine "vm": ', await self.refused(503))

    async def test_poollet_gone(self) -> None:
        """A stopped poollet is 502."""
        address: Any = self.pool.address
        await self.pool.stopService()
        at = f'pool "pool-a" at 127.0.0.1:{address.port}'
        await self.both(502, f'machine "vm": cannot connect to {at}: connection refused')
