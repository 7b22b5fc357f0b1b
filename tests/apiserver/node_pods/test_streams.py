"""
Tests for :mod:`twisted_exec.apiserver.node_pods.streams`, with a kubelet behind a server.
"""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase, TestCase

from tests.chain import PATIENCE_SECONDS, pki, reactor
from tests.nodeserver.clusters import LEAF, LEAF_NODE, POD, ROOT, Cluster
from tests.testing.callers import Caller, call, forward, until
from tests.tiers import PROGRAMS
from twisted_exec.api.kinds import NODE_PODS, NODES, Object
from twisted_exec.api.status import BadRequest
from twisted_exec.apiserver.node_pods.streams import container_of, kubelet_query
from twisted_exec.apiserver.serving.query import Query
from twisted_exec.kube.kubeconfig.connection import endpoint
from twisted_exec.streaming.http.responses import Dispatcher
from twisted_exec.streaming.http.site import Request
from twisted_exec.streaming.http.upgrade_client import UpgradeRefused, UpgradeRequest, ask_first
from twisted_exec.streaming.http.upgrade_server import requested_protocol
from twisted_exec.streaming.interfaces import MACHINE_DELETED
from twisted_exec.streaming.remotecommand.carriers import OVER_SPDY
from twisted_exec.streaming.text.download import DOWNLOADS
from twisted_exec.testing.kubelet import Container, Kubelet
from twisted_exec.tls.files import read_file
from twisted_exec.wire.channel import V4, V5, Channel

ALL = "stdin=true&stdout=true&stderr=true"
CHANNELS = (Channel.STDIN, Channel.STDOUT, Channel.STDERR)
PATH = f"/api/v1/namespaces/default/pods/{POD}"


def a_pod(*containers: str, inits: tuple[str, ...] = (), default: str = "") -> Object:
    """A Pod as far as its containers go."""
    noted = {"annotations": {"kubectl.kubernetes.io/default-container": default}}
    return {
        "metadata": {"name": "web", **(noted if default else {})},
        "spec": {
            "containers": [{"name": each} for each in containers],
            "initContainers": [{"name": each} for each in inits],
        },
    }


class ContainerTests(SynchronousTestCase):
    """Selection of the container."""

    def test_only_one(self) -> None:
        """A single container need not be named."""
        self.assertEqual(container_of(a_pod("main"), ""), "main")

    def test_named(self) -> None:
        """Any of them may be, also one that has run before the others."""
        self.assertEqual(container_of(a_pod("a", "b", inits=("c",)), "c"), "c")

    def test_default(self) -> None:
        """The Pod may say which, if there is such a one."""
        self.assertEqual(container_of(a_pod("a", "b", default="b"), ""), "b")
        with self.assertRaises(BadRequest):
            container_of(a_pod("a", "b", default="c"), "")

    def test_several(self) -> None:
        """With several one must be named, and the error lists them."""
        with self.assertRaises(BadRequest) as caught:
            container_of(a_pod("a", "b", inits=("c",)), "")
        self.assertEqual(
            str(caught.exception),
            "a container name must be specified for pod web, choose one of: [a b] or one of the "
            "init containers: [c]",
        )

    def test_unknown(self) -> None:
        """An unknown name is refused."""
        with self.assertRaises(BadRequest) as caught:
            container_of(a_pod("a"), "z")
        self.assertEqual(str(caught.exception), "container z is not valid for pod web")


class QueryTests(SynchronousTestCase):
    """A kubelet's words."""

    def test_words(self) -> None:
        """Only the literal 1 is true to it, and what is false is left out."""
        asked = Query({b"stdin": [b"true"], b"stdout": [b"1"], b"stderr": [b"false"]})
        self.assertEqual(kubelet_query([], asked), b"?input=1&output=1")

    def test_command(self) -> None:
        """The parts of a command keep their order, and any bytes that they have."""
        found = kubelet_query([b"z", b"a b", b"\xff&=", b""], Query({b"tty": [b"true"]}))
        self.assertEqual(found, b"?command=z&command=a+b&command=%FF%26%3D&command=&tty=1")


class KubeletCase(TestCase):
    """A server, and the kubelet of its one Node, which runs one Pod."""

    containers: tuple[str, ...] = ("main",)

    async def setUp(self) -> None:
        self.cluster = Cluster(LEAF)
        self.addCleanup(self.cluster.stop)
        await self.cluster.start()
        self.kubelet = Kubelet(
            reactor,
            {("default", POD): {each: Container() for each in self.containers}},
            tls=self.cluster.server_tls(),
            client_ca=read_file(self.cluster.client_ca),
        )
        self.addCleanup(self.kubelet.stop)
        port = await self.kubelet.listen("tcp:0:interface=127.0.0.1")
        self.port = port.getHost().port
        await self.cluster.add_node(LEAF_NODE, self.port)
        await self.cluster.add_pod(POD, LEAF_NODE, self.containers)
        self.endpoint = endpoint(
            self.cluster.config("admin"), reactor, timeout_seconds=PATIENCE_SECONDS
        )

    async def exec(self, *command: str, protocol: str = OVER_SPDY, query: str = ALL) -> Caller:
        words = "&".join(f"command={word}" for word in command)
        path = f"{PATH}/exec?{words}&{query}"
        return await call(self.endpoint, path, protocol, CHANNELS)

    async def refusal(
        self, asked: str, pod: str = POD, *, user: str = "admin", protocol: str = OVER_SPDY
    ) -> tuple[int, str]:
        """Code and message of a stream that is refused."""
        server = endpoint(self.cluster.config(user), reactor, timeout_seconds=PATIENCE_SECONDS)
        path = f"/api/v1/namespaces/default/pods/{pod}/{asked}"
        try:
            await call(server, path, protocol, CHANNELS)
        except UpgradeRefused as refused:
            error = refused.as_api_error()
            return error.code, error.message
        raise AssertionError("it was not refused")

    async def text(self, path: str, user: str = "admin") -> tuple[int, str]:
        """Code, and text or message, of what is read."""
        config = self.cluster.config(user)
        ask = UpgradeRequest(b"GET", path.encode(), b"server", [])
        try:
            _, download = await ask_first(
                [("server", endpoint(config, reactor, timeout_seconds=PATIENCE_SECONDS))],
                ask,
                clock=reactor,
                connect_seconds=PATIENCE_SECONDS,
                answer_seconds=PATIENCE_SECONDS,
                factory=DOWNLOADS,
            )
        except UpgradeRefused as refused:
            error = refused.as_api_error()
            return error.code, error.message
        came: list[bytes] = []
        over: Deferred[bool] = Deferred()
        download.deliver(came.append, over.callback)
        await over
        return 200, b"".join(came).decode()


class StreamTests(KubeletCase):
    """Through the server to the kubelet."""

    starts = PROGRAMS

    async def test_exec(self) -> None:
        """A command's output and its exit code, in each protocol."""
        for protocol in (OVER_SPDY, V4, V5):
            caller = await self.exec("sh", "-c", "echo+hi%3Bexit+5", protocol=protocol)
            self.assertEqual((await caller.over()).exit_code, 5)
            self.assertEqual(caller.got[Channel.STDOUT], b"hi\n")

    async def test_what_the_kubelet_sees(self) -> None:
        """The kubelet gets its own path and options, and nothing about the user."""
        await (await self.exec("true", query="stdout=true&stderr=true")).over()
        (seen,) = self.kubelet.seen
        self.assertEqual(seen.uri, f"/exec/default/{POD}/main?command=true&error=1&output=1")
        names = {name.lower() for name, _ in seen.headers}
        told = [each for each in names if each.startswith("x-remote") or each == "authorization"]
        self.assertEqual(told, [])

    async def test_port_forward(self) -> None:
        """The kubelet's URL for ``port-forward`` names no port; the streams do."""
        forwarding = await forward(self.endpoint, f"{PATH}/portforward")
        forwarding.leave()
        await until(lambda: forwarding.lost)
        self.assertEqual(self.kubelet.seen[-1].uri, f"/portForward/default/{POD}")

    async def test_record(self) -> None:
        """The audit log has the user, the Pod and the Node."""
        await (await self.exec("true")).over()
        started, ended = await until(lambda: self.cluster.audit[1:] and self.cluster.audit)
        told = {key: started[key] for key in ("user", "machine", "pool", "resource")}
        expected = {"user": "admin", "machine": POD, "pool": LEAF_NODE, "resource": "pods"}
        self.assertEqual(told, expected)
        self.assertEqual(started["session"], ended["session"])

    async def test_gone(self) -> None:
        """Deleting a Pod ends its streams, with the reason."""
        for protocol in (OVER_SPDY, V5):
            caller = await self.exec("sh", "-c", "echo+hi%3Bsleep+60", protocol=protocol)
            await caller.printed(b"hi")
            found = await self.cluster.storage.get(NODE_PODS.resource, "default", POD)
            await self.cluster.storage.delete(NODE_PODS.resource, found)
            ending = await caller.over()
            self.assertEqual((ending.reason, ending.message), GONE)
            await self.cluster.add_pod(POD, LEAF_NODE, self.containers)

    async def test_asked_to_end(self) -> None:
        """A Pod that is being deleted keeps its streams until its kubelet reports it gone."""
        caller = await self.exec("cat", query="stdin=true&stdout=true")
        await self.cluster.admin.delete(NODE_PODS.resource, POD, "default")
        caller.type(b"still here\n")
        await caller.printed(b"still here")
        caller.carrier.close()
        await until(lambda: caller.why is not None)

    async def test_node_gone(self) -> None:
        """Deleting a Node ends the streams of its Pods."""
        caller = await self.exec("sh", "-c", "echo+hi%3Bsleep+60")
        await caller.printed(b"hi")
        await self.cluster.admin.delete(NODES.resource, LEAF_NODE)
        ending = await caller.over()
        self.assertEqual(ending.message, f'node "{LEAF_NODE}" was deleted')
        self.assertEqual(
            await self.refusal("exec?command=true&stdout=1"),
            (404, f'pod "{POD}": nodes "{LEAF_NODE}" not found'),
        )


GONE = (MACHINE_DELETED, f'pod "{POD}" was deleted')


class RefusalTests(KubeletCase):
    """Refused streams and their status codes."""

    containers = ("main", "side")

    async def test_here(self) -> None:
        """Checks by this server."""
        await self.cluster.add_pod("nowhere")
        told = f"a container name must be specified for pod {POD}, choose one of: [main side]"
        self.assertEqual(await self.refusal("exec?stdout=1"), (400, told))
        told = f"container z is not valid for pod {POD}"
        self.assertEqual(await self.refusal("attach?container=z&stdout=1"), (400, told))
        told = "pod nowhere does not have a host assigned"
        self.assertEqual(await self.refusal("portforward", "nowhere"), (400, told))
        self.assertEqual(await self.refusal("attach", "none"), (404, 'pods "none" not found'))
        code, told = await self.refusal("exec?dryRun=All")
        self.assertEqual((code, told), (400, f'pod "{POD}": dryRun is not supported for exec'))
        code, _ = await self.refusal("exec?command=a;b&stdout=1&container=main")
        self.assertEqual(code, 400)
        code, _ = await self.refusal("portforward?ports=1,x")
        self.assertEqual(code, 400)

    async def test_rights(self) -> None:
        """Users without permission learn nothing else, also about missing Pods."""
        for pod in (POD, "none"):
            for asked in ("exec?stdout=1", "attach", "portforward"):
                code, told = await self.refusal(asked, pod, user="jane")
                self.assertEqual(code, 403)
                self.assertIn('User "jane" cannot create resource "pods/', told)
        code, _ = await self.text(f"{PATH}/log", user="jane")
        self.assertEqual(code, 403)

    async def test_by_the_kubelet(self) -> None:
        """A kubelet's own refusal keeps its code and its words."""
        await self.cluster.add_pod("unknown", LEAF_NODE)
        code, told = await self.refusal("exec?command=true&stdout=1", "unknown")
        self.assertEqual(code, 404)
        self.assertIn("not", told)

    async def test_no_address(self) -> None:
        """A Node that cannot be reached is named, with what it reports."""
        await self.cluster.add_node("odd", 1, [("ExternalName", "a.example")])
        await self.cluster.add_pod("there", "odd")
        code, told = await self.refusal("attach?stdout=1", "there")
        self.assertEqual(code, 503)
        self.assertIn('node "odd" has no usable address', told)
        self.assertIn("ExternalName=a.example", told)

    async def test_preferred_address(self) -> None:
        """One address is dialled, as a kube-apiserver chooses it; not another that might do."""
        both = [("InternalIP", "127.0.0.1"), ("InternalDNS", "127.0.0.9")]
        await self.cluster.add_node("two", self.port, both)
        await self.cluster.add_pod("there", "two")
        code, told = await self.refusal("attach?stdout=1", "there")
        self.assertEqual(code, 502)
        self.assertIn(f'kubelet of node "two" at 127.0.0.9:{self.port}', told)

    async def test_another_certificate(self) -> None:
        """The server at the address must have a certificate of the kubelets' CA with that name."""
        await self.cluster.add_node("named", self.port, [("Hostname", "localhost")])
        await self.cluster.add_pod("there", "named")
        code, told = await self.refusal("attach?stdout=1", "there")
        self.assertEqual(code, 502)
        self.assertIn('not valid for "localhost"', told)

    async def test_nobody_there(self) -> None:
        """If a kubelet is down, the user gets 502 with the kubelet's address."""
        await self.kubelet.stop()
        code, told = await self.refusal("exec?command=true&stdout=1&container=main")
        self.assertEqual(code, 502)
        self.assertIn(f'kubelet of node "{LEAF_NODE}" at 127.0.0.1:{self.port}', told)


class OtherKubeletTests(KubeletCase):
    """A kubelet that does not know this server."""

    async def setUp(self) -> None:
        await super().setUp()
        self.kubelet.client_ca = read_file(pki(ROOT).client_ca)

    async def test_unknown(self) -> None:
        """The error says that the kubelet refused this server, not the user."""
        for asked in (self.refusal("exec?command=true&stdout=1"), self.text(f"{PATH}/log")):
            code, told = await asked
            self.assertEqual(code, 502)
            self.assertIn("does not accept this server's credentials", told)


class LogTests(KubeletCase):
    """Logs from kubelets."""

    async def setUp(self) -> None:
        await super().setUp()
        for number in range(3):
            self.kubelet.pods["default", POD]["main"].log.write(b"line %d\n" % number)

    async def test_options(self) -> None:
        """Every option arrives, also a tail of nothing."""
        self.assertEqual(await self.text(f"{PATH}/log"), (200, "line 0\nline 1\nline 2\n"))
        self.assertEqual(await self.text(f"{PATH}/log?tailLines=1"), (200, "line 2\n"))
        self.assertEqual(await self.text(f"{PATH}/log?tailLines=0"), (200, ""))
        self.assertEqual(await self.text(f"{PATH}/log?limitBytes=4"), (200, "line"))
        self.assertEqual(
            [each.uri for each in self.kubelet.seen],
            [
                f"/containerLogs/default/{POD}/main{query}"
                for query in ("", "?tailLines=1", "?tailLines=0", "?limitBytes=4")
            ],
        )

    async def test_nonsense(self) -> None:
        """Malformed requests do not reach the kubelet."""
        for query in (
            "tailLines=-1",
            "sinceSeconds=1&sinceTime=2020-01-01T00:00:00Z",
            "limitBytes=0",
        ):
            code, _ = await self.text(f"{PATH}/log?{query}")
            self.assertEqual(code, 422)
        code, _ = await self.text(f"{PATH}/log?tailLines=some")
        self.assertEqual(code, 400)
        self.assertEqual(list(self.kubelet.seen), [])

    async def test_previous(self) -> None:
        """A container that was never started again has no log before; the kubelet says so."""
        code, told = await self.text(f"{PATH}/log?previous=true")
        self.assertEqual(code, 400)
        self.assertIn("previous terminated container", told)


class ProxyTests(KubeletCase):
    """The proxy for kubelets' endpoints."""

    path = f"/api/v1/nodes/{LEAF_NODE}/proxy"

    async def test_healthz(self) -> None:
        """This server requests it, and passes the answer on."""
        self.assertEqual(await self.text(f"{self.path}/healthz"), (200, "ok"))

    async def test_no_streams(self) -> None:
        """A right to look at a Node runs no commands, and reads no logs (k8s#136550)."""
        for path in (
            f"exec/default/{POD}/main?command=id&output=1",
            f"containerLogs/default/{POD}/main",
            f"run/default/{POD}/main?cmd=id",
        ):
            code, _ = await self.text(f"{self.path}/{path}")
            self.assertEqual(code, 404)
        self.assertEqual(list(self.kubelet.seen), [])

    async def test_rights(self) -> None:
        """It is a right of its own."""
        code, told = await self.text(f"{self.path}/healthz", user="jane")
        self.assertEqual(code, 403)
        self.assertIn('cannot get resource "nodes/proxy"', told)

    async def test_unknown(self) -> None:
        """The proxy for an unknown Node gets 404."""
        code, _ = await self.text("/api/v1/nodes/none/proxy/healthz")
        self.assertEqual(code, 404)


class _Older(Dispatcher):
    """Before a kubelet: refuses WebSockets as Go's server does, and passes on all else."""

    def __init__(self, kubelet: Dispatcher) -> None:
        super().__init__()
        self._kubelet = kubelet
        self.refused = 0

    async def dispatch(self, request: Request) -> None:
        if requested_protocol(request) == b"websocket":
            self.refused += 1
            request.setResponseCode(403)
            request.finish()
        else:
            await self._kubelet.dispatch(request)


class OlderKubeletTests(KubeletCase):
    """A kubelet that knows nothing but SPDY, as those of Kubernetes up to 1.35."""

    starts = PROGRAMS

    async def setUp(self) -> None:
        await super().setUp()
        site = self.kubelet._site  # The double itself always speaks WebSockets, too.
        self.older = site.resource = _Older(site.resource)

    async def test_exec(self) -> None:
        """A WebSocket client is bridged."""
        for protocol in (V5, V4):
            caller = await self.exec("cat", protocol=protocol, query="stdin=true&stdout=true")
            caller.type(b"hello")
            await caller.printed(b"hello")
            caller.carrier.close()
            await until(lambda: caller.why is not None)  # noqa: B023
        self.assertEqual(self.older.refused, 2)
        self.assertEqual(
            {each.uri for each in self.kubelet.seen},
            {f"/exec/default/{POD}/main?command=cat&input=1&output=1"},
        )
