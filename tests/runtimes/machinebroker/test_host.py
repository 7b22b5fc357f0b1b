"""
Tests for :mod:`twisted_exec.runtimes.machinebroker.host`, and its routes and admissions: brokers
before a whole API server, whose poollet is a stand-in.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from typing import Any

from twisted.internet.defer import Deferred, DeferredList
from twisted.logger import globalLogPublisher

from tests.apiserver.chain import WEBSOCKET, ChainTestCase
from tests.apiserver.rights import binding
from tests.audits import AuditList
from tests.chain import POOL, pki, reactor
from tests.contracts.machine_runtime import machine
from tests.runtimes.support import errors_of, open_log
from tests.streaming.raw import Raw
from twisted_exec.api import kinds
from twisted_exec.api.dialects import IRONCORE
from twisted_exec.api.status import APIError
from twisted_exec.iri.client import IRIClient
from twisted_exec.iri.protos import console_pb2
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.kube.client import KubeClient
from twisted_exec.kube.kubeconfig.loader import load
from twisted_exec.runtimes.machinebroker import streams
from twisted_exec.runtimes.machinebroker.host import BrokerHost
from twisted_exec.runtimes.machinebroker.ledgers import LEASES
from twisted_exec.runtimes.machinebroker.place import BrokerIdentity, BrokerPlace
from twisted_exec.runtimes.machinebroker.settings import Settings
from twisted_exec.runtimes.machinebroker.tokens import new_key
from twisted_exec.streaming.http.upgrade_client import UpgradeRefused, UpgradeRequest, upgrade
from twisted_exec.streaming.interfaces import SHUTTING_DOWN
from twisted_exec.tls.endpoints import unix_client_endpoint
from twisted_exec.tls.errors import TLSConfigError

CLASS, NAMESPACE = "small", "default"
BINDINGS, MACHINES = kinds.ROLEBINDINGS.resource, kinds.MACHINES.resource
FOR_JANE = ((b"X-Twisted-Exec-User", b"jane"), (b"X-Twisted-Exec-Machine-Uid", b"uid-x"))


class HostCase(ChainTestCase):
    """A target with a pool and a class, and brokers before it."""

    async def setUp(self) -> None:
        await super().setUp()
        self.directory = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.directory)
        self.records = AuditList()
        self.pool, port = await self.poollet()
        await self.make_pool(("InternalIP", "127.0.0.1"), port=port)
        room = {"status": {"allocatable": {f"{IRONCORE.capacity_prefix}{CLASS}": "9"}}}
        await self.admin.patch(kinds.MACHINEPOOLS.resource, POOL, room, subresource="status")
        small = {"metadata": {"name": CLASS}, "capabilities": {"cpu": "1", "memory": "1Gi"}}
        resource = kinds.MACHINECLASSES.resource
        small |= {"apiVersion": resource.api_version, "kind": resource.kind}
        await self.admin.create(resource, small)
        await self.admin.create(BINDINGS, binding("a:jane", "edit"), NAMESPACE)

    def host(self, name: str = "one", *, user: str = "admin", **options: Any) -> BrokerHost:
        """A broker, its consoles on a private UNIX socket."""
        config = load(self.kubeconfig(f"user-{user}"))
        client = KubeClient(config, reactor)
        self.addCleanup(client.close)
        settings = Settings(
            place=BrokerPlace(IRONCORE, NAMESPACE, "a", POOL),
            identity=options.pop("identity", BrokerIdentity("a")),
            state_directory=os.path.join(self.directory, name),
            iri_target=f"unix://{self.directory}/{name}.iri",
            **options,
        )
        broker_host = BrokerHost(settings, client, lambda: config, self.records, reactor)
        self.addCleanup(lambda: broker_host.stopService() if broker_host.running else None)
        return broker_host

    async def ready(self, *arguments: Any, **options: Any) -> BrokerHost:
        """A broker that knows its target."""
        broker_host = self.host(*arguments, **options)
        broker_host.startService()
        await broker_host.when_ready()
        await self.until(lambda: self.known(broker_host))
        return broker_host

    def current(self, host: BrokerHost) -> bool:
        try:
            host.broker.check()
        except APIError:
            return False
        return True

    def known(self, host: BrokerHost) -> bool:
        return self.current(host) and CLASS in host.broker.capacity.names()

    async def replicas(self) -> list[BrokerHost]:
        """Two brokers that share a key."""
        path = os.path.join(self.directory, "key")
        with open(path, "wb") as file:
            file.write(new_key())
        return [await self.ready(name, token_key=path) for name in ("one", "two")]

    async def machine(self, host: BrokerHost) -> str:
        """The id of a machine."""
        request = pb.CreateMachineRequest(machine=machine("x", CLASS))
        return str((await host.broker.create_machine(request)).machine.metadata.id)

    async def token(self, host: BrokerHost, machine_id: str, user: str = "jane") -> str:
        request = pb.ExecRequest(machine_id=machine_id)
        facts = {"user": user, "machine_uid": "uid-x", "session": "session-1"}
        return str((await host.broker.exec(request, **facts)).url.rsplit("/", 1)[1])

    async def use(
        self,
        host: BrokerHost,
        token: str,
        method: bytes = b"GET",
        headers: Any = (*WEBSOCKET, *FOR_JANE),
        query: str = "",
    ) -> Raw:
        """
        Open the console of a token.

        :raises UpgradeRefused: it is not opened.
        """
        path = host.streams.listening.address.removeprefix("unix:").replace("\\:", ":")
        head = UpgradeRequest(method, f"/exec/{token}{query}".encode(), b"localhost", headers)
        endpoint = unix_client_endpoint(reactor, path)
        upgraded = await upgrade(endpoint, head, clock=reactor, timeout_seconds=600)
        end = Raw()
        upgraded.hand_over(end)
        self.addCleanup(lambda: end.transport.abortConnection())  # type: ignore[union-attr]
        return end

    async def answer(self, *arguments: Any, **more: Any) -> tuple[int, str]:
        """Code and message of a refusal."""
        try:
            await self.use(*arguments, **more)
        except UpgradeRefused as refused:
            document = json.loads(refused.body)
            self.assertEqual(document["kind"], "Status")
            return refused.code, str(document.get("message", ""))
        self.fail("it was opened")


class ConsoleTests(HostCase):
    """A console through a broker."""

    async def test_bytes(self) -> None:
        """Bytes pass; the target sees the user's name with the source cluster's prefix."""
        host = await self.ready()
        token = await self.token(host, await self.machine(host))
        end = await self.use(host, token, query="?readOnly=1")
        end.transport.write(b"hello")  # type: ignore[union-attr]
        await self.until(lambda: end.received == b"hello")
        _, uri, headers = self.pool.requests[0]
        self.assertEqual(headers["x-remote-user"], ["a:jane"])
        self.assertEqual(headers["audit-id"], ["session-1"])
        self.assertTrue(uri.endswith("/exec?readOnly=true"), uri)
        self.assertEqual(self.audit[0]["user"], "a:jane")
        self.assertEqual(self.audit[0]["session"], "session-1")

    async def test_audit(self) -> None:
        """One start and one end, by the user's and the machine's own names; no token anywhere."""
        host = await self.ready()
        token = await self.token(host, await self.machine(host))
        end = await self.use(host, token)
        end.transport.loseConnection()  # type: ignore[union-attr]
        await self.until(lambda: len(self.records) == 2)
        for record in self.records:
            self.assertEqual(record["hop"], "broker")
            self.assertEqual((record["user"], record["machine"]), ("jane", "x"))
            self.assertEqual((record["session"], record["uid"]), ("session-1", "uid-x"))
        self.assertNotIn(token, json.dumps(list(self.records)))

    async def test_reason(self) -> None:
        """The reason is on record here and in the target, and reaches the target's poollet."""
        host = await self.ready()
        token = await self.token(host, await self.machine(host))
        reason = (b"X-Twisted-Exec-Reason", b"INC%207")
        await self.use(host, token, headers=(*WEBSOCKET, *FOR_JANE, reason))
        self.assertEqual(self.records[0]["declared_reason"], "INC 7")
        self.assertEqual(self.audit[0]["declared_reason"], "INC 7")
        self.assertEqual(self.pool.requests[0][2]["x-twisted-exec-reason"], ["INC%207"])

    async def test_once(self) -> None:
        """A complete upgrade uses a token up; whatever is less does not."""
        host = await self.ready()
        token = await self.token(host, await self.machine(host))
        h2c = ((b"Connection", b"Upgrade"), (b"Upgrade", b"h2c"))
        evil = (*WEBSOCKET, (b"Origin", b"https://evil.example"))
        other = (*WEBSOCKET, (b"X-Twisted-Exec-User", b"eve"))
        for headers, code in (((), 400), (h2c, 400), (evil, 403), (other, 404)):
            self.assertEqual((await self.answer(host, token, headers=headers))[0], code)
        self.assertEqual((await self.answer(host, token, b"PUT"))[0], 405)
        await self.use(host, token)
        self.assertEqual((await self.answer(host, token))[0], 404)
        self.assertEqual(len(self.pool.requests), 1)

    async def test_18_errors_of_the_target(self) -> None:
        """Errors of the target keep their code and message, and the token stays valid."""
        host = await self.ready()
        token = await self.token(host, await self.machine(host))
        for code, reason in ((404, "NotFound"), (409, "Conflict"), (503, "ServiceUnavailable")):
            status = {"kind": "Status", "message": f"no {code}", "reason": reason, "code": code}
            self.pool.answer = code, status
            output = await self.answer(host, token)
            self.assertEqual(output[0], code)
            self.assertIn(f"no {code}", output[1])
            self.assertIn('"x"', output[1])
        self.pool.answer = None
        await self.use(host, token)

    async def test_not_permitted(self) -> None:
        """The target refuses users without rights, whatever the broker's own rights are."""
        host = await self.ready()
        token = await self.token(host, await self.machine(host), user="eve")
        for_eve = (*WEBSOCKET, (b"X-Twisted-Exec-User", b"eve"), FOR_JANE[1])
        code, message = await self.answer(host, token, headers=for_eve)
        self.assertEqual(code, 403)
        self.assertIn('User "a:eve" cannot create resource "machines/exec"', message)

    async def test_no_impersonation(self) -> None:
        """
        Without impersonation rights the target refuses; with its own identity the broker opens the
        console.
        """
        await self.admin.create(BINDINGS, binding("jane", "edit"), NAMESPACE)
        readers = binding("jane", "view") | {"kind": "ClusterRoleBinding"}
        await self.admin.create(kinds.CLUSTERROLEBINDINGS.resource, readers)
        host = await self.ready(user="jane")
        id = await self.machine(host)
        code, message = await self.answer(host, await self.token(host, id))
        self.assertEqual(code, 403)
        self.assertIn("cannot impersonate", message)
        own = await self.ready("own", user="jane", identity=BrokerIdentity("a", own=True))
        await self.use(own, await self.token(own, id))
        self.assertEqual(self.audit[-1]["user"], "jane")

    async def test_gone_meanwhile(self) -> None:
        """A token of a machine that is gone, or off, by now leads nowhere."""
        host = await self.ready()
        id = await self.machine(host)
        token = await self.token(host, id)
        await self.admin.patch(MACHINES, id, {"spec": {"power": "Off"}}, NAMESPACE)
        await self.until(lambda: not host.broker.cache.get(id).is_on)
        self.assertEqual((await self.answer(host, token))[0], 409)
        await self.admin.delete(MACHINES, id, NAMESPACE)
        await self.until(lambda: not list(host.broker.cache))
        self.assertEqual((await self.answer(host, token))[0], 404)

    async def test_target_down(self) -> None:
        """An unreachable target is reported without its address."""
        host = await self.ready()
        token = await self.token(host, await self.machine(host))
        await self.server.stopService()
        code, message = await self.answer(host, token)
        self.assertIn(code, (502, 503))
        self.assertNotIn("127.0.0.1", message)

    async def test_log(self) -> None:
        """A log passes as text, with its options; its token opens no console."""
        host = await self.ready()
        request = console_pb2.LogRequest(machine_id=await self.machine(host))
        url = (await host.broker.log(request, user="jane", machine_uid="uid-x")).url
        token = url.rsplit("/", 1)[1]
        self.assertEqual((await self.answer(host, token))[0], 404)
        as_jane = {name.decode(): value.decode() for name, value in FOR_JANE}
        reader = await open_log(url, "tailLines=3&junk=1", **as_jane)
        await self.until(lambda: bytes(reader.got) == b"hello\n")
        self.assertIn("/log?frames=true&tailLines=3", self.pool.requests[-1][1])
        self.pool.logs[0].finish()
        with self.assertRaises(UpgradeRefused):
            await open_log(url, **as_jane)

    async def screen(self, query: str) -> Any:
        """Request a screen for jane, with the token of a log."""
        host = await self.ready()
        request = console_pb2.LogRequest(machine_id=await self.machine(host))
        url = (await host.broker.log(request, user="jane", machine_uid="uid-x")).url
        as_jane = {name.decode(): value.decode() for name, value in FOR_JANE}
        return await open_log(url.replace("/log/", "/screen/"), query, **as_jane)

    async def test_screen(self) -> None:
        """A screen is rendered where the machine runs, with its options."""
        reader = await self.screen("as=state&size=80x24&junk=1")
        await self.until(lambda: bool(reader.got))
        self.assertIn("/screen?as=state&size=80x24", self.pool.requests[-1][1])

    async def test_no_screen(self) -> None:
        """Without screens in the target cluster the refusal says why."""
        self.pool.serves_logs = False
        with self.assertRaises(UpgradeRefused) as caught:
            await self.screen("")
        self.assertEqual(caught.exception.code, 501)
        self.assertIn(b"does not serve screens", caught.exception.body)


class TermsTests(HostCase):
    """Terms of sessions in another cluster."""

    terms = (b"X-Twisted-Exec-Terms", b"right=observe&people=2")

    async def test_sent(self) -> None:
        """The terms of the source cluster reach the target's poollet, which must confirm them."""
        host = await self.ready()
        id = await self.machine(host)
        headers = (*WEBSOCKET, *FOR_JANE, self.terms)
        await self.use(host, await self.token(host, id), headers=headers)
        sent = self.pool.requests[-1][2]["x-twisted-exec-terms"]
        self.assertEqual(sent, ["right=observe&people=2"])
        self.pool.holds = False
        code, message = await self.answer(host, await self.token(host, id), headers=headers)
        self.assertEqual(code, 501)
        self.assertIn("cannot hold a session to its terms", message)

    async def test_changed(self) -> None:
        """A change reaches the target's poollet; a session that cannot follow ends."""
        host = await self.ready()
        token = await self.token(host, await self.machine(host))
        end = await self.use(host, token)
        query = "?session=session-1&terms=right%3Dobserve"
        headers = [(b"X-Twisted-Exec-User", b"eve")]
        self.assertEqual((await self.answer(host, token, b"PATCH", headers, query))[0], 404)
        other = "?session=session-2&terms="
        self.assertEqual((await self.answer(host, token, b"PATCH", FOR_JANE, other))[0], 404)
        self.assertEqual((await self.answer(host, token, b"PATCH", FOR_JANE, query))[0], 200)
        await self.until(lambda: self.pool.requests[-1][0] == "PATCH")
        self.assertIn("terms=right%3Dobserve", self.pool.requests[-1][1])
        end.transport.write(b"x")  # type: ignore[union-attr]
        await self.until(lambda: end.received == b"x")
        self.pool.holds = False
        query = "?session=session-1&terms="
        self.assertEqual((await self.answer(host, token, b"PATCH", FOR_JANE, query))[0], 200)
        await self.until(lambda: end.lost)


class EndTests(HostCase):
    """Endings of sessions."""

    async def test_by_request(self) -> None:
        """The client that opened a session ends it with a reason, which reaches the target."""
        host = await self.ready()
        token = await self.token(host, await self.machine(host))
        end = await self.use(host, token)
        query = "?session=session-1&reason=PoweredOff&message=bye"
        headers = [(b"X-Twisted-Exec-User", b"eve")]
        self.assertEqual((await self.answer(host, token, b"DELETE", headers, query))[0], 404)
        other = "?session=session-2&reason=PoweredOff"
        self.assertEqual((await self.answer(host, token, b"DELETE", (), other))[0], 404)
        self.assertEqual((await self.answer(host, token, b"DELETE", FOR_JANE, query))[0], 200)
        await self.until(lambda: end.lost)
        await self.until(self.ends)
        self.assertIn("reason=PoweredOff&message=bye", self.pool.requests[-1][1])
        self.assertEqual(self.ends(), [("PoweredOff", None)])

    async def test_28_stop(self) -> None:
        """A broker that stops says why, and leaves nothing behind."""
        host = await self.ready(drain_seconds=600.0)
        end = await self.use(host, await self.token(host, await self.machine(host)))
        await host.stopService()
        await self.until(lambda: end.lost)
        self.assertIn(f"reason={SHUTTING_DOWN}", self.pool.requests[-1][1])
        self.assertEqual(self.records[-1]["reason"], SHUTTING_DOWN)
        self.assertFalse(os.path.exists(f"{self.directory}/one.iri"))


class ReplicaTests(HostCase):
    """Two brokers behind one address."""

    async def test_either(self) -> None:
        """Either replica accepts the other's token, once in total."""
        first, second = await self.replicas()
        token = await self.token(first, await self.machine(first))
        await self.until(lambda: list(second.broker.cache))
        await self.use(second, token)
        for host in (first, second):
            self.assertEqual((await self.answer(host, token))[0], 404)
        (lease,) = (await self.admin.list(LEASES, NAMESPACE))["items"]
        self.assertEqual(lease["spec"]["leaseDurationSeconds"] > 50, True)

    async def test_17_at_once(self) -> None:
        """Of many who come at once with one token, to either, one gets in."""
        first, second = await self.replicas()
        token = await self.token(first, await self.machine(first))
        await self.until(lambda: list(second.broker.cache))
        request = [Deferred.fromCoroutine(self.use(host, token)) for host in (first, second) * 4]
        results = await DeferredList(request, consumeErrors=True)
        self.assertEqual(sum(1 for opened, _ in results if opened), 1)
        codes = {result.value.code for opened, result in results if not opened}
        self.assertEqual(codes, {404})
        self.assertEqual(len(self.pool.requests), 1)

    async def test_restarted(self) -> None:
        """A restarted broker knows the tokens of before, and which of them were used; without a key file, none."""
        path = os.path.join(self.directory, "key")
        with open(path, "wb") as file:
            file.write(new_key())
        for name, key, code in (("kept", path, 0), ("new", "", 404)):
            host = await self.ready(name, token_key=key)
            id = await self.machine(host)
            used, fresh = await self.token(host, id), await self.token(host, id)
            await self.use(host, used)
            await host.stopService()
            host = await self.ready(name, token_key=key)
            self.assertEqual((await self.answer(host, used))[0], 404)
            if code:
                self.assertEqual((await self.answer(host, fresh))[0], code)
            else:
                await self.use(host, fresh)

    async def test_refused_upgrade_spends_nothing(self) -> None:
        """A token that one replica could not use works at the other."""
        first, second = await self.replicas()
        token = await self.token(first, await self.machine(first))
        await self.until(lambda: list(second.broker.cache))
        self.pool.answer = 503, {"kind": "Status", "message": "soon", "code": 503}
        self.assertEqual((await self.answer(first, token))[0], 503)
        self.assertEqual((await self.admin.list(LEASES, NAMESPACE))["items"], [])
        self.pool.answer = None
        await self.use(second, token)

    async def test_ended_by_the_other(self) -> None:
        """The request to end a session may come to the replica that has not got it."""
        first, second = await self.replicas()
        token = await self.token(first, await self.machine(first))
        end = await self.use(first, token)
        query = "?session=session-1&reason=PoweredOff&message=bye"
        self.assertEqual((await self.answer(second, token, b"DELETE", FOR_JANE, query))[0], 200)
        await self.until(lambda: end.lost)
        self.assertIn("reason=PoweredOff", self.pool.requests[-1][1])
        self.assertEqual((await self.answer(second, token, b"DELETE", FOR_JANE, query))[0], 404)

    async def test_without_the_right(self) -> None:
        """A replica that cannot keep claims opens nothing and is not ready; the other serves on."""
        first, _ = await self.replicas()
        token = await self.token(first, await self.machine(first))
        key = os.path.join(self.directory, "key")
        await self.admin.create(BINDINGS, binding("jane", "edit"), NAMESPACE)
        readers = binding("jane", "view") | {"kind": "ClusterRoleBinding"}
        await self.admin.create(kinds.CLUSTERROLEBINDINGS.resource, readers)
        poor = await self.ready("poor", user="jane", token_key=key)
        code, message = await self.answer(poor, token)
        self.assertEqual(code, 503)
        self.assertIn("leases.coordination.k8s.io", message)
        problems = errors_of(await poor.streams.health.check())
        self.assertEqual([name for name, problem in problems.items() if problem], ["tokens"])
        await self.use(first, token)


class FaultTests(HostCase):
    """Known faults of ironcore's broker and poollet, which this one has not."""

    async def test_15_token_burnt_by_a_probe(self) -> None:
        """Any GET, HEAD or POST burns theirs: a probe or a link preview kills the session."""
        host = await self.ready()
        token = await self.token(host, await self.machine(host))
        for method in (b"GET", b"HEAD", b"POST"):
            headers = [(b"Content-Length", b"0")] if method == b"POST" else []
            with self.assertRaises(UpgradeRefused):
                await self.use(host, token, method, headers)
        await self.use(host, token)

    async def test_16_token_in_the_log(self) -> None:
        """Tokens do not appear in the log."""
        calls: list[str] = []

        def keep(event: Any) -> None:
            calls.append(json.dumps({key: str(value) for key, value in event.items()}))

        globalLogPublisher.addObserver(keep)
        self.addCleanup(globalLogPublisher.removeObserver, keep)
        host = await self.ready()
        token = await self.token(host, await self.machine(host))
        self.pool.answer = 404, {"kind": "Status", "message": "gone", "code": 404}
        await self.answer(host, token)
        self.pool.answer = None
        await self.use(host, token)
        self.assertTrue(calls)
        self.assertNotIn(token, "".join(calls))

    async def test_17_tokens_lost_by_a_restart(self) -> None:
        """Theirs are in the memory of one process."""
        first, second = await self.replicas()
        token = await self.token(first, await self.machine(first))
        await self.until(lambda: list(second.broker.cache))
        await first.stopService()
        await self.use(second, token)

    async def test_18_url_of_a_machine_that_is_not_there(self) -> None:
        """Theirs gives one, and tells of it after the upgrade as an internal error."""
        host = await self.ready()
        with self.assertRaises(APIError) as caught:
            await self.token(host, "f" * 63)
        self.assertEqual(caught.exception.code, 404)

    async def test_25_no_deadline(self) -> None:
        """A target that does not answer is not waited for for ever; the token is good again."""
        host = await self.ready()
        token = await self.token(host, await self.machine(host))
        self.pool.silent = True
        self.patch(streams, "ANSWER_SECONDS", 0.2)
        self.assertEqual((await self.answer(host, token))[0], 504)
        self.pool.silent = False
        self.patch(streams, "ANSWER_SECONDS", 600)
        await self.use(host, token)

    async def test_21_read_only(self) -> None:
        """Theirs knows no looking on; here the wish reaches the machine's end, and taking over too."""
        host = await self.ready()
        id = await self.machine(host)
        for query in ("readOnly=true", "force=true"):
            await self.use(host, await self.token(host, id), query=f"?{query}")
            self.assertTrue(self.pool.requests[-1][1].endswith(f"/exec?{query}"))


class StartTests(HostCase):
    """Starting, and who is served."""

    async def test_by_grpc(self) -> None:
        """A poollet asks by gRPC: machines, and for whom a console is."""
        host = await self.ready()
        client = IRIClient(host.iri.target, reactor)
        self.addCleanup(client.stopService)
        request = pb.CreateMachineRequest(machine=machine("x", CLASS))
        id = (await client.create_machine(request)).machine.metadata.id
        listed = await client.list_machines(pb.ListMachinesRequest())
        self.assertEqual([each.metadata.id for each in listed.machines], [id])
        query = pb.ExecRequest(machine_id=id)
        self.assertTrue((await client.exec(query, user="jane")).url.startswith("http+unix://"))
        with self.assertRaises(APIError) as caught:
            await client.exec(query)
        self.assertEqual(caught.exception.code, 403)

    async def test_readiness(self) -> None:
        """Each probe passes, and says when the target is away."""
        host = await self.ready()
        self.assertEqual(
            errors_of(await host.streams.health.check()),
            {"target": None, "classes": None, "iri": None},
        )
        await self.server.stopService()
        await self.until(lambda: not self.known(host))
        self.assertTrue(errors_of(await host.streams.health.check())["target"])

    async def test_no_such_pool(self) -> None:
        """If the target lacks the pool, the probe names it and its option; first the list's absence."""
        await self.admin.delete(kinds.MACHINEPOOLS.resource, POOL)
        host = self.host()
        problems = errors_of(await host.streams.health.check())
        self.assertIn("is not available", str(problems["classes"]))
        host.startService()
        await host.when_ready()
        await self.until(lambda: self.current(host))
        self.assertEqual(
            errors_of(await host.streams.health.check())["classes"],
            f'the target has no MachinePool "{POOL}" (--machine-pool-name)',
        )

    async def test_bad_key(self) -> None:
        """A key that is no secret keeps it from starting."""
        path = os.path.join(self.directory, "key")
        with open(path, "wb") as file:
            file.write(b"short")
        host = self.host(token_key=path)
        ready = host.when_ready()
        host.startService()
        with self.assertRaises(TLSConfigError):
            await ready

    async def test_over_tls(self) -> None:
        """Consoles are offered where it listens, by TLS."""
        from twisted_exec.runtimes.serving.options import Listening

        pair = pki().pair("apiserver")
        listening = Listening(
            "tcp:0:interface=127.0.0.1", certificate=pair.certificate, key=pair.key
        )
        host = await self.ready(streaming=listening)
        token = host.streams.exec_url("t")
        self.assertTrue(token.startswith("https://127.0.0.1:"), token)
