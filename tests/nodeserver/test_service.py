"""Tests for :mod:`twisted_exec.nodeserver.service`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.audits import AuditList
from tests.chain import reactor, until
from tests.nodeserver.support import SimpleLeaf, memory_cluster, put_pod, simple
from tests.streaming.session_streams import StreamDouble
from twisted_exec.api.status import BadGateway
from twisted_exec.kube.kubeconfig.client_config import ClientConfig
from twisted_exec.nodeserver.interfaces import LeafNode
from twisted_exec.nodeserver.kubelet_api.routes import KubeletCollaborators, Route, of_pod
from twisted_exec.nodeserver.service import Endings
from twisted_exec.program.audit import Trail
from twisted_exec.program.session_limits import SessionLimits
from twisted_exec.streaming.context import RequestContext
from twisted_exec.streaming.http.responses import respond_text
from twisted_exec.streaming.interfaces import (
    MACHINE_DELETED,
    POOL_DELETED,
    REVOKED,
    SHUTTING_DOWN,
    Ending,
)
from twisted_exec.streaming.sessions.guard import SessionGuard
from twisted_exec.streaming.sessions.registry import Sessions
from twisted_exec.streaming.subject import Subject
from twisted_exec.tls.errors import TLSConfigError
from twisted_exec.tls.server import peer_certificate

from .chain import JANE, NODE, SERVING, ServerCase

EXEC = "/exec/default/web/main"


class Streams:
    """A route whose sessions the test looks at."""

    def __init__(self) -> None:
        self.endings: list[Ending] = []
        self.sessions: list[Any] = []
        self.uid = "uid-1"
        self.stays = False

    def __call__(self, collaborators: KubeletCollaborators) -> Iterable[Route]:
        async def answer(context: RequestContext) -> None:
            request = context.request
            await collaborators.access.authorize_session(context, NODE)
            context.learn(pool=NODE, uid=self.uid)
            session = context.open_session(collaborators.sessions)
            session.carry(
                StreamDouble(lambda ending: self._end(session, ending), lambda: session.over("cut"))
            )
            self.sessions.append(session)
            respond_text(request, 200, request.subject.session)

        yield from of_pod("exec", answer, ["GET", "POST"], "exec")

    def _end(self, session: Any, ending: Ending) -> None:
        self.endings.append(ending)
        if not self.stays:
            session.over(ending.reason)


class Part:
    """A service beside the server."""

    def __init__(self, log: list[str], name: str) -> None:
        self.log, self.name = log, name

    def start(self) -> None:
        self.log.append(f"start {self.name}")

    def stop(self) -> Deferred[None]:
        self.log.append(f"stop {self.name}")
        return succeed(None)


class StartTests(ServerCase):
    """Requirements of the start."""

    async def fails(self, **more: Any) -> str:
        with self.assertRaises(TLSConfigError) as caught:
            await self.start(**more)
        return str(caught.exception)

    async def test_no_certificate(self) -> None:
        """A certificate that is not there keeps it from starting, and it says so."""
        message = await self.fails(certificate=str(self.directory / "none.crt"))
        self.assertIn("serving certificate: cannot read", message)

    async def test_no_client_ca(self) -> None:
        """So does a CA of clients."""
        self.assertIn("none.crt", await self.fails(client_ca=str(self.directory / "none.crt")))

    async def test_reload(self) -> None:
        """A certificate that is replaced is shown to who comes next."""
        await self.start()
        self.assertEqual((await self.ask("/healthz")).code, 200)
        renewed = SERVING.issue_server(["127.0.0.1"], common_name="renewed")
        self.write("tls.key", renewed.key_pem)
        self.write("tls.crt", renewed.certificate_pem)
        addresses: list[str] = []

        async def look() -> bool:
            connection = await self.endpoint().connect(Factory.forProtocol(Protocol))
            peer = peer_certificate(connection.transport)
            connection.transport.abortConnection()
            addresses.append(peer.common_name if peer else "")
            return addresses[-1] == "renewed"

        while not await look():
            pass
        self.assertIn(addresses[0], ("node", "renewed"))

    async def test_parts(self) -> None:
        """Services beside the server start in order, and stop in reverse order after the sessions."""
        log: list[str] = []
        await self.start(parts=[Part(log, "a"), Part(log, "b")])
        await self.stop()
        self.assertEqual(log, ["start a", "start b", "stop b", "stop a"])


class HealthTests(ServerCase):
    """The port of probes."""

    async def test_paths(self) -> None:
        """Anyone may ask there whether it lives and is ready, and nothing else."""
        await self.start()
        for path in ("/healthz", "/livez"):
            self.assertEqual(await self.healthy(path), (200, b"ok"))
        code, listing = await self.healthy("/readyz")
        self.assertEqual(code, 200)
        for name in (b"serving", b"root", b"leaves", b"pods"):
            self.assertIn(b"[+]%s ok" % name, listing)
        for path in ("/metrics", "/pods", EXEC):
            self.assertEqual((await self.healthy(path))[0], 404)

    async def test_not_known_yet(self) -> None:
        """As long as leaves or Pods are not known it is not ready."""
        await self.start()
        self.leaves.synced = False  # type: ignore[misc]
        code, listing = await self.healthy("/readyz")
        self.assertEqual(code, 503)
        self.assertIn(b"[-]leaves failed", listing)

    async def test_behind_the_gate(self) -> None:
        """The port of streams answers probes, too, to whoever may ask."""
        await self.start()
        self.allowed["jane"] = {("get", "proxy")}
        for identity in (JANE, None):
            answer = await self.ask("/healthz", identity=identity)
            self.assertEqual(answer.code, 200 if identity else 401)

    async def test_figures(self) -> None:
        """``/metrics`` counts sessions, and what was refused."""
        streams = Streams()
        await self.start(streams)
        await self.ask(EXEC)
        await self.ask(EXEC, identity=None)
        figures = (await self.ask("/metrics")).body.decode()
        self.assertIn("twisted_exec_sessions_active 1.0", figures)
        self.assertIn('twisted_exec_sessions_refused_total{code="401"} 1.0', figures)

    async def test_parts(self) -> None:
        """The parts start in their order, and stop in reverse."""
        log: list[str] = []
        await self.start(parts=[Part(log, "a"), Part(log, "b")])
        self.assertEqual(log, ["start a", "start b"])
        log.clear()
        await self.stop()
        self.assertEqual(log, ["stop b", "stop a"])


class EndTests(ServerCase):
    """Ends of sessions."""

    async def setUpStreams(self, **more: Any) -> Streams:
        streams = Streams()
        await self.start(streams, **more)
        pod = put_pod(self.root, "web", NODE)
        self.pod, streams.uid = pod, pod["metadata"]["uid"]
        self.assertEqual((await self.ask(EXEC)).code, 200)
        return streams

    async def test_pod_gone(self) -> None:
        """A Pod that is gone from the root ends its sessions; one that is being deleted does not yet."""
        streams = await self.setUpStreams()
        metadata = {**self.pod["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
        self.root_pods.tell(self.pod, {**self.pod, "metadata": metadata})
        self.assertEqual(streams.endings, [])
        self.root_pods.tell(self.pod, None)
        self.assertEqual(streams.endings, [Ending(MACHINE_DELETED, 'pod "web" was deleted')])

    async def test_pod_made_anew(self) -> None:
        """So does another Pod of the same name."""
        streams = await self.setUpStreams()
        self.root_pods.tell(
            self.pod, {**self.pod, "metadata": {**self.pod["metadata"], "uid": "x"}}
        )
        self.assertEqual(len(streams.endings), 1)

    async def test_leaf_gone(self) -> None:
        """Sessions end with the leaf that their Node stood for, and with no other change."""
        streams = await self.setUpStreams()
        self.leaves.tell()
        self.assertEqual(streams.endings, [])
        self.leaves.leaves.clear()
        self.leaves.tell()
        message = f'node "{NODE}" does not stand for leaf "one" now'
        self.assertEqual([each.message for each in streams.endings], [message])

    async def test_withdrawn(self) -> None:
        """A withdrawn permission ends the session at its next review, and no other session."""
        streams = await self.setUpStreams()
        self.allowed["jane"] = {("create", "proxy")}
        self.assertEqual((await self.ask(EXEC, identity=JANE)).code, 200)
        await self.server.guard.review()
        self.assertEqual(streams.endings, [])
        self.allowed["jane"] = set()
        await self.server.guard.review()
        self.assertEqual([each.reason for each in streams.endings], [REVOKED])
        self.assertIn('User "jane"', streams.endings[0].message)

    async def test_stop(self) -> None:
        """It stops with a reason for every session, and meanwhile accepts no connection."""
        streams = await self.setUpStreams(drain_seconds=3600.0)
        streams.stays = True
        stopping = self.server.stopService()
        await until(lambda: streams.endings)
        self.assertEqual([each.reason for each in streams.endings], [SHUTTING_DOWN])
        with self.assertRaisesRegex(BadGateway, "connection refused"):
            await self.ask(EXEC)
        streams.sessions[0].over("ended")
        await stopping
        ends = [event for event in self.audit if event["event"] == "end"]
        self.assertEqual([event["reason"] for event in ends][-1:], [SHUTTING_DOWN])

    async def test_stop_later(self) -> None:
        """After a stop signal readiness fails at once, and requests are still served for a while."""
        streams = await self.setUpStreams(shutdown_delay_seconds=3600)
        others = set(map(id, reactor.getDelayedCalls()))
        stopping = self.server.stopService()
        (delay,) = (each for each in reactor.getDelayedCalls() if id(each) not in others)
        code, listing = await self.healthy("/readyz")
        self.assertEqual(code, 503)
        self.assertIn(b"[-]serving failed", listing)
        self.assertEqual((await self.ask(EXEC)).code, 200)
        self.assertEqual(streams.endings, [])
        delay.reset(0)
        await stopping
        self.assertEqual([each.reason for each in streams.endings], [SHUTTING_DOWN] * 2)

    async def test_stop_in_time(self) -> None:
        """A session that does not end is cut."""
        streams = await self.setUpStreams(drain_seconds=0.1)
        streams.stays = True
        await self.stop()
        self.assertEqual(len(self.server.sessions), 0)

    async def test_crowd(self) -> None:
        """There are only so many sessions at once."""
        await self.setUpStreams(sessions=SessionLimits(1, 1))
        self.assertEqual((await self.ask(EXEC)).code, 429)


def pod(uid: str = "1", **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": "web", "uid": uid, **metadata}}


class EndingsTests(SynchronousTestCase):
    """Leaves come, go and change while there are sessions."""

    def setUp(self) -> None:
        self.root_pods, self.leaves = simple()
        self.sessions = Sessions(Trail(AuditList(), "nodeserver", Clock()))
        self.ended: dict[str, Ending] = {}
        reviewer: Any = None
        guard = SessionGuard(self.sessions, reviewer, Clock())
        self.endings = Endings(guard, self.root_pods, self.leaves)
        self.endings.start()
        for node in ("leaf-one", "leaf-two"):
            self.open(node)

    def open(self, node: str) -> None:
        def end(ending: Ending) -> None:
            self.ended[node] = ending

        self.sessions.open(Subject(node, pool=node)).carry(StreamDouble(end))

    def stand(self, leaf: str, *nodes: str) -> SimpleLeaf:
        leaf_nodes = [LeafNode(node, leaf) for node in nodes]
        return SimpleLeaf(leaf, memory_cluster(), ClientConfig("https://x.example"), leaf_nodes)

    def test_other_leaf(self) -> None:
        """A Node that stands for another leaf now ends its sessions, and no other Node's."""
        two = self.stand("two", "leaf-two")
        self.leaves.leaves.append(two)
        self.leaves.tell()
        self.assertEqual(self.ended, {})
        two.nodes = self.stand("two", "leaf-one", "leaf-two").nodes
        self.leaves.leaves = [two]
        self.leaves.tell()
        (ending,) = self.ended.values()
        self.assertEqual((list(self.ended), ending.reason), (["leaf-one"], POOL_DELETED))
        self.assertEqual(ending.message, 'node "leaf-one" does not stand for leaf "one" now')

    def test_same_leaf(self) -> None:
        """A leaf whose credentials or labels are others is the same leaf."""
        (leaf,) = self.leaves.leaves
        leaf.nodes = [LeafNode("leaf-one", "one", labels={"zone": "a"})]
        self.leaves.tell()
        self.assertEqual(self.ended, {})

    def test_other_leaf_of_the_name(self) -> None:
        """A new leaf under an old name is another leaf; the reason of the removal is in the message."""
        (leaf,) = self.leaves.leaves
        leaf.gone = 'space "default/one" is gone: it was deleted'
        self.leaves.leaves = [self.stand("one", "leaf-one")]
        self.leaves.tell()
        cases = (
            'node "leaf-one" does not stand for leaf "one" now: space "default/one" is gone: it was '
            "deleted"
        )
        self.assertEqual(self.ended["leaf-one"], Ending(POOL_DELETED, cases))

    def test_stopped(self) -> None:
        """Nothing is followed any more."""
        self.endings.stop()
        self.leaves.leaves.clear()
        self.leaves.tell()
        self.root_pods.tell(pod(), None)
        self.assertEqual((self.ended, self.leaves.followers), ({}, []))
