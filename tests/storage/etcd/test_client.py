"""
Tests for :mod:`twisted_exec.storage.etcd.client`: members, TLS, users and passwords.
"""

from __future__ import annotations

import json
import os
import time
import urllib.request
from dataclasses import replace
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import gatherResults
from twisted.internet.threads import deferToThread
from twisted.logger import capturedLogs, formatEvent

from tests import needs
from tests.contracts.storage import MACHINES, machine
from tests.storage.etcds import EtcdCase, Etcds, any_prefix, loopback, shared, until
from tests.tiers import PROGRAMS
from tests.tls.support import authority, client_identity, write
from twisted_exec.storage.etcd import client as client_module
from twisted_exec.storage.etcd.client import RANGE, TXN, EtcdClient, grpc
from twisted_exec.storage.etcd.errors import EtcdError
from twisted_exec.storage.etcd.protos import etcd_pb2 as pb
from twisted_exec.storage.etcd.target import EtcdTarget
from twisted_exec.storage.interfaces import StorageError
from twisted_exec.tls.files import read_file


class MemberTests(EtcdCase):
    """Several endpoints."""

    starts = PROGRAMS
    skip = needs.etcd()

    async def test_first_is_gone(self) -> None:
        """If the first endpoint refuses connections, the next is used and no call fails."""
        there = shared().members[0].endpoint
        nobody = replace(there, host=loopback())
        target = replace(shared().target(any_prefix()), endpoints=(nobody, there))
        storage = await self.open(target)
        await storage.create(MACHINES, machine("a"))
        self.assertEqual((await storage.list(MACHINES)).items[0]["metadata"]["name"], "a")

    async def test_one_goes(self) -> None:
        """If an endpoint fails, writes go through the other and watches miss nothing."""
        member = shared().members[0]
        first, second = self.gate(member), self.gate(member, 7001)
        target = replace(shared().target(any_prefix()), endpoints=(first.endpoint, second.endpoint))
        storage = await self.open(target)
        events: list[Any] = []
        storage.watch(MACHINES, None, events.append)
        await storage.create(MACHINES, machine("a"))
        await first.close()
        await until(lambda: not first.through)
        await storage.current()
        await storage.create(MACHINES, machine("b"))
        await second.close()
        first.open()
        await until(lambda: not second.through)
        await storage.current()
        await storage.create(MACHINES, machine("c"))
        await until(lambda: len(events) == 3)
        self.assertEqual([one.obj["metadata"]["name"] for one in events], ["a", "b", "c"])

    async def test_nonsense(self) -> None:
        """A server that does not implement etcd's methods is reported as UNIMPLEMENTED."""
        await self.open(shared().target(any_prefix()))  # it answers now
        client = self.client(shared().target())
        refused = replace(RANGE, path="/etcdserverpb.KV/Nothing")
        problem = await self.assertFailure(
            self.deferred(client.read(refused, pb.RangeRequest(key=b"x"))), EtcdError
        )
        self.assertIs(problem.code, grpc.StatusCode.UNIMPLEMENTED)

    async def test_closed(self) -> None:
        """close() cancels all calls, retries included, and leaves no connection open."""
        await self.open(shared().target(any_prefix()))
        member = shared().members[0]
        first, second = self.gate(member), self.gate(member, 7001)
        first.deaf = second.deaf = True
        endpoints = (first.endpoint, second.endpoint)
        target = replace(shared().target(any_prefix()), endpoints=endpoints)
        client = EtcdClient(target, reactor, read_seconds=600.0, write_seconds=600.0)
        self.addCleanup(client.close)
        reading = self.deferred(client.read(RANGE, pb.RangeRequest(key=b"x")))
        writing = self.deferred(client.write(TXN, pb.TxnRequest()))
        await until(lambda: first.through)
        client.leave(first.endpoint)  # as when another call was not answered
        client.close()
        for call in (reading, writing):
            problem = await self.assertFailure(call, EtcdError)
            self.assertIs(problem.code, grpc.StatusCode.CANCELLED)
        # Also what was being connected to.
        await until(lambda: not first.through and not second.through)
        late = self.deferred(client.read(RANGE, pb.RangeRequest(key=b"x")))
        await self.assertFailure(late, EtcdError)

    async def test_nobody_answers_a_password(self) -> None:
        """Calls that need the same token wait for it together, not one after the other."""
        await self.open(shared().target(any_prefix()))
        gate = self.gate(shared().members[0])
        gate.deaf = True
        password = self.mktemp()
        with open(password, "w") as file:
            file.write("secret")
        target = replace(
            shared().target(), endpoints=(gate.endpoint,), user="x", password_file=password
        )
        client = EtcdClient(target, reactor, read_seconds=0.2)
        self.addCleanup(client.close)
        read: list[str] = []

        def counted(path: str, name: str) -> bytes:
            read.append(path)
            return read_file(path, name)

        self.patch(client_module, "read_file", counted)
        calls = [self.deferred(client.write(TXN, pb.TxnRequest())) for _ in range(50)]
        for call in calls:
            await self.assertFailure(call, EtcdError)
        self.assertEqual(read, [password])


class TLSTests(EtcdCase):
    """etcd by TLS, with certificates of clients."""

    starts = PROGRAMS
    skip = needs.etcd()

    def setUp(self) -> None:
        self.directory = self.mktemp()
        os.mkdir(self.directory)

    def file(self, name: str, content: bytes) -> str:
        return os.path.abspath(write(self.directory, name, content))

    def secured(self) -> tuple[Etcds, EtcdTarget]:
        """Return a cluster that requires client certificates, and its target."""
        host = loopback()
        issued = authority("etcd").issue_server([host])
        flags = [
            f"--cert-file={self.file('server.crt', issued.certificate_pem)}",
            f"--key-file={self.file('server.key', issued.key_pem)}",
            f"--trusted-ca-file={self.file('users.crt', authority('users').certificate_pem)}",
            "--client-cert-auth",
        ]
        etcds = self.cluster(flags=flags, secure=True, host=host)
        return etcds, etcds.target(ca=self.file("ca.crt", authority("etcd").certificate_pem))

    def shown(self, name: str) -> dict[str, str]:
        """A client's certificate and key, in files."""
        identity = client_identity(name)
        return {
            "certificate": self.file("client.crt", identity.certificate_pem),
            "key": self.file("client.key", identity.key_pem),
        }

    async def test_certificate(self) -> None:
        """etcd accepts a client certificate of its CA; a renewed certificate is loaded and used."""
        etcds, target = self.secured()
        target = replace(target, **self.shown("first"))
        storage = await self.open(target)
        events: list[Any] = []
        storage.watch(MACHINES, None, events.append)
        await storage.create(MACHINES, machine("a"))
        with capturedLogs() as logged:
            self.shown("second")
            await until(lambda: _said(logged, "reloaded"), storage.current)
            await storage.create(MACHINES, machine("b"))
        etcds.members[0].kill()
        await until(lambda: storage.trouble)
        etcds.start()
        await until(lambda: not storage.trouble)
        await storage.create(MACHINES, machine("c"))
        self.assertEqual([one.obj["metadata"]["name"] for one in events], ["a", "b", "c"])

    async def test_none(self) -> None:
        """Without a client certificate, or with an etcd of another CA, the store is not served."""
        _, target = self.secured()
        strangers = self.file("strangers.crt", authority("strangers").certificate_pem)
        with_certificate = replace(target, **self.shown("first"))
        for wrong in (target, replace(with_certificate, ca=strangers)):
            with capturedLogs() as logged:
                storage = self.begin(wrong, read_seconds=1.0)
                ready = storage.when_ready()
                await until(lambda: _said(logged, "(look at ca=, and at cert= and key="))
            self.assertTrue(storage.trouble)
            self.assertFalse(ready.called)
            ready.addErrback(lambda failure: failure.trap(StorageError) and None)
            await storage.stopService()

    async def test_files(self) -> None:
        """Files that cannot be used end the start with a line that names them."""
        shown = self.shown("first")
        good = EtcdTarget(
            shared().target().endpoints,
            ca=self.file("ca.crt", authority("etcd").certificate_pem),
            **shown,
        )
        other = self.file("other.key", client_identity("other").key_pem)
        for wrong, told in [
            (replace(good, ca="/nonexistent/ca"), "cannot read '/nonexistent/ca'"),
            (replace(good, ca=shown["key"]), "no PEM certificate"),
            (replace(good, key=other), "other.key"),
            (replace(good, user="u", password_file="/nonexistent/p"), "cannot read the password"),
        ]:
            storage = self.begin(wrong)
            problem = await self.assertFailure(storage.when_ready(), StorageError)
            self.assertIn(told, str(problem))


class UserTests(EtcdCase):
    """etcd's own users."""

    starts = PROGRAMS
    skip = needs.etcd()

    async def tell(self, etcds: Etcds, path: str, **told: Any) -> None:
        """Send an administrator's command to etcd's JSON gateway."""
        url = f"http://{etcds.members[0].endpoint}/v3/{path}"

        def ask() -> None:
            for _ in range(12_000):  # ten minutes
                try:
                    with urllib.request.urlopen(url, json.dumps(told).encode(), timeout=600):
                        return
                except OSError:  # it is not there yet
                    time.sleep(0.05)
            raise AssertionError(f"etcd did not take {path}")

        await deferToThread(ask)

    async def guarded(self) -> Etcds:
        """A cluster where a user may use one prefix."""
        etcds = self.cluster()
        for name in ("root", "console"):
            await self.tell(etcds, "auth/user/add", name=name, password=f"s3cret-{name}")
            await self.tell(etcds, "auth/role/add", name=name)
            await self.tell(etcds, "auth/user/grant", user=name, role=name)
        # Bytes are base64 in etcd's JSON: from /mine/ up to /mine0.
        mine = {"permType": "READWRITE", "key": "L21pbmUv", "range_end": "L21pbmUw"}
        await self.tell(etcds, "auth/role/grant", name="console", perm=mine)
        await self.tell(etcds, "auth/enable")
        return etcds

    def as_console(self, etcds: Etcds, password: str, prefix: str = "/mine") -> EtcdTarget:
        path = self.mktemp()
        with open(path, "w") as stream:
            stream.write(f"{password}\n")
        return etcds.target(prefix, user="console", password_file=path)

    async def test_user(self) -> None:
        """A user's store works, also when etcd has forgotten its tokens."""
        etcds = await self.guarded()
        storage = await self.open(self.as_console(etcds, "s3cret-console"))
        events: list[Any] = []
        storage.watch(MACHINES, None, events.append)
        await gatherResults([storage.create(MACHINES, machine(name)) for name in "ab"])
        etcds.members[0].kill()
        await until(lambda: storage.trouble)
        etcds.start()
        await until(lambda: not storage.trouble)
        await storage.create(MACHINES, machine("c"))
        self.assertEqual(sorted(one.obj["metadata"]["name"] for one in events), ["a", "b", "c"])

    async def test_refused(self) -> None:
        """A wrong password, no user, a prefix that is not the user's: one line, no secret in it."""
        etcds = await self.guarded()
        for target, told in [
            (self.as_console(etcds, "s3cret-wrong"), "authentication failed"),
            (
                self.as_console(etcds, "s3cret-console", "/others"),
                "permission denied: grant 'console' readwrite on what begins with /others/",
            ),
            (etcds.target("/mine"), "user name is empty"),
        ]:
            with capturedLogs() as logged:
                storage = self.begin(target)
                problem = await self.assertFailure(storage.when_ready(), StorageError)
            self.assertIn(told, str(problem))
            self.assertNotIn("s3cret", str(problem))
            self.assertFalse(_said(logged, "s3cret"))


def _said(logged: Any, words: str) -> bool:
    return any(words in (formatEvent(event) or "") for event in logged)
