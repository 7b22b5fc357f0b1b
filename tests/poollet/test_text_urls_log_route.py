"""
Tests for :mod:`twisted_exec.poollet.text_urls`: TLS and sockets are real, the runtime is a
stand-in.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from zope.interface import implementer_only

from tests.chain import until
from tests.poollet.chain import API_SERVER, FORWARDING, JANE, Line, PoolletCase, status
from tests.poollet.doubles import MACHINES, MemoryRuntime
from tests.streaming.readers import Reader, read
from twisted_exec.api.kinds import DELETEDCONSOLES
from twisted_exec.api.status import NotFound, NotImplementedByBackend
from twisted_exec.iri.interfaces import IMachineRuntime
from twisted_exec.poollet.service import Poollet
from twisted_exec.streaming.http.upgrade_client import UpgradeRefused, UpgradeRequest
from twisted_exec.tls.pki.authority import Issued

LOG = "/apis/compute.ironcore.dev/namespaces/{}/machines/{}/log"
DELETED = "/apis/console.twisted-exec.dev/namespaces/lab/deletedconsoles/{}/log"
JANE_MAY = ("jane", "machines/log", "vm")


@implementer_only(IMachineRuntime)
class Foreign(MemoryRuntime):
    """A runtime that keeps no logs, and is in this process."""


class LogCase(PoolletCase):
    """Jane may read the log of ``lab/vm``, and not open its console."""

    subresource = "log"

    async def start(self, **more: Any) -> Poollet:
        self.allowed.remove(("jane", "machines/exec", "vm"))
        self.allowed.add(JANE_MAY)
        return await super().start(**more)

    async def read(
        self,
        query: str = "",
        *,
        user: bytes = b"jane",
        identity: Issued | None = API_SERVER,
        path: str = LOG.format("lab", "vm"),
        headers: Sequence[tuple[bytes, bytes]] = (),
    ) -> Reader:
        """Request a log as the API server does for ``user``; the header has arrived."""
        told = [*([(b"X-Remote-User", user)] if user else []), *headers]
        head = UpgradeRequest(b"GET", f"{path}{query}".encode(), b"poollet", told)
        reader = await read(self.endpoint(identity), head)
        self.addCleanup(reader.download.abort)
        return reader

    async def follow(self, **more: Any) -> Reader:
        """Return a follower that has received the first line."""
        reader = await self.read("?follow=true", **more)
        await until(lambda: reader.got == b"hello\n")
        return reader

    async def refused(self, code: int, query: str = "", **more: Any) -> str:
        """The message of a refusal, which is a Status, and on record with its code."""
        before = len(self.audit)
        with self.assertRaises(UpgradeRefused) as caught:
            await self.read(query, **more)
        answer = status(caught.exception.body)
        self.assertEqual((caught.exception.code, answer["code"]), (code, code), answer)
        start, end = self.audit[before:]
        self.assertEqual((start["event"], end["event"], end["code"]), ("start", "end", code))
        self.assertEqual(end["subresource"], self.subresource)
        message: str = answer["message"]
        return message

    def forget(self) -> None:
        """Forget all cached answers of the API server."""
        self.poollet.consoles.permissions.forget()

    async def ended(self) -> dict[str, Any]:
        """The audit end of the one session."""
        await until(lambda: self.audit and self.audit[-1]["event"] == "end")
        self.assertEqual([each["event"] for each in self.audit], ["start", "end"])
        return self.audit[-1]

    def line(self) -> Line:
        (line,) = self.lines.lines
        return line


class ReadTests(LogCase):
    """Reading a log."""

    async def test_request(self) -> None:
        """The runtime receives the user and the options, and no other part of the request."""
        await self.start()
        session = [(b"Audit-Id", b"s-7"), (b"Cookie", b"a=b"), (b"Authorization", b"Bearer x")]
        reader = await self.read(
            "?follow=true&tailLines=5&sinceTime=2026-11-20T05%3A00%3A00Z&unknown=x",
            headers=session,
        )
        await until(lambda: reader.got)
        ((_, user, uid, arguments),) = self.runtime.logs
        self.assertEqual((user, arguments), ("jane", "s-7"))
        head = self.lines.heads[0].split(b"\r\n")
        self.assertEqual(
            head[0],
            b"GET /log/token-2?follow=true&tailLines=5"
            b"&sinceTime=2026-11-20T05%3A00%3A00.000000000Z HTTP/1.1",
        )
        self.assertEqual(
            sorted(head[2:-2]),
            [
                b"Audit-Id: s-7",
                b"X-Twisted-Exec-Machine-Uid: " + uid.encode(),
                b"X-Twisted-Exec-User: jane",
            ],
        )

    async def test_text(self) -> None:
        """The text is relayed as it arrives; its end ends the answer, and one record has the size."""
        await self.start()
        reader = await self.follow()
        self.line().transport.write(b"5\r\nmore\n\r\n")
        await until(lambda: reader.got == b"hello\nmore\n")
        self.line().transport.write(b"0\r\n\r\n")
        await until(lambda: reader.complete)
        end = await self.ended()
        self.assertEqual(
            (end["user"], end["machine"], end["caller"], end["bytes_to_user"], end["reason"]),
            ("jane", "vm", "exec-apiserver", 11, "backend closed"),
        )

    async def test_leaves(self) -> None:
        """A reader that leaves ends the request to the runtime."""
        await self.start()
        reader = await self.follow()
        reader.download.abort()
        await until(lambda: self.line().lost)
        self.assertEqual((await self.ended())["reason"], "client closed")

    async def test_without_power(self) -> None:
        """A machine that is off has a log; switching it off ends no follower."""
        await self.start()
        first = await self.follow()
        await self.client.patch(MACHINES, "vm", {"spec": {"power": "Off"}}, "lab")
        await until(lambda: "update_machine_power" in self.runtime.calls)
        second = await self.read("?follow=true")
        await until(lambda: second.got)
        self.assertIsNone(first.complete)

    async def test_direct(self) -> None:
        """A user without a proxy needs permission for the pool as well."""
        await self.start()
        answer = await self.refused(403, user=b"", identity=JANE)
        self.assertIn("machinepools/proxy", answer)
        self.allowed.add(("jane", "machinepools/proxy", "pool-a"))
        self.forget()
        reader = await self.read(user=b"", identity=JANE)
        await until(lambda: reader.got)


class DeletedTests(LogCase):
    """The log of a deleted machine."""

    async def start(self, **more: Any) -> Poollet:
        spec = {
            "machine": "old",
            "machineResource": "machines.compute.ironcore.dev",
            "machineUID": "u-old",
            "deletionTime": "2026-01-01T00:00:00Z",
            "expirationTime": "2026-01-08T00:00:00Z",
        }
        for name, pool in (("old-1", "pool-a"), ("old-2", "pool-b")):
            body = {"metadata": {"name": name}, "spec": {**spec, "pool": pool}}
            await self.client.create(DELETEDCONSOLES.resource, body, "lab")
            self.allowed.add(("jane", "deletedconsoles/log", name))
        self.runtime.deleted.add("u-old")
        return await super().start(**more)

    async def test_read(self) -> None:
        """The runtime is called without a machine, with the UID of the deleted one."""
        await self.start()
        reader = await self.read("?tailLines=5", path=DELETED.format("old-1"))
        await until(lambda: reader.got)
        ((machine_id, user, uid, _),) = self.runtime.logs
        self.assertEqual((machine_id, user, uid), ("", "jane", "u-old"))
        head = self.lines.heads[0].split(b"\r\n")
        self.assertTrue(head[0].startswith(b"GET /log/token-2?tailLines=5"), head[0])
        self.assertIn(b"X-Twisted-Exec-Machine-Uid: u-old", head)

    async def test_refused(self) -> None:
        """Users without the permission, unknown names, and machines of another pool."""
        await self.start()
        path = DELETED.format("old-1")
        self.assertIn("deletedconsoles/log", await self.refused(403, path=path, user=b"joe"))
        for name in ("old-2", "old-3"):
            self.allowed.add(("jane", "deletedconsoles/log", name))
            told = await self.refused(404, path=DELETED.format(name))
            self.assertIn(f'"{name}" not found in pool "pool-a"', told)
        await self.refused(422, "?limitBytes=0", path=path)
        self.assertEqual(self.runtime.logs, [])

    async def test_discarded(self) -> None:
        """A runtime that has discarded the output answers 404."""
        await self.start()
        self.runtime.deleted.clear()
        await self.refused(404, path=DELETED.format("old-1"))


class RefuseTests(LogCase):
    """Requests that are refused."""

    async def test_who(self) -> None:
        """
        No credentials, an unlisted proxy, a user without permission; that for the console is not
        enough.
        """
        await self.start()
        await self.refused(401, user=b"", identity=None)
        await self.refused(401, identity=FORWARDING.issue_client("other"))
        self.allowed.add(("joe", "machines/exec", "vm"))
        self.assertEqual(
            await self.refused(403, user=b"joe"),
            'machines.compute.ironcore.dev "vm" is forbidden: User "joe" cannot get resource '
            '"machines/log" in API group "compute.ironcore.dev" in the namespace "lab": ask an '
            'administrator for the role console-log-reader in the namespace "lab"',
        )
        self.allowed.remove(("exec-apiserver", "machinepools/proxy", "pool-a"))
        self.assertIn("machinepools/proxy", await self.refused(403))
        self.assertEqual(self.runtime.logs, [])

    async def test_options(self) -> None:
        """Invalid options do not reach the runtime."""
        await self.start()
        await self.refused(400, "?tailLines=x")
        await self.refused(422, "?limitBytes=0")
        await self.refused(400, "?container=web")
        self.assertEqual(self.runtime.logs, [])

    async def test_unknown(self) -> None:
        """A machine that does not exist: 404; one that the runtime does not have yet: 503."""
        self.allowed.add(("jane", "machines/log", "no"))
        await self.start()
        await self.refused(404, path=LOG.format("lab", "no"))
        self.runtime.machines.clear()
        self.runtime.problem = None
        self.assertIn("not running yet", await self.refused(503))

    async def test_foreign(self) -> None:
        """A runtime without logs differs from a broken one: 501."""
        message = 'machine "vm": the machine\'s runtime keeps no log'
        self.runtime.refusals["log"] = NotImplementedByBackend("Method not found!")
        await self.start()
        self.assertEqual(await self.refused(501), message)
        del self.runtime.refusals["log"]
        self.runtime.log_url = ""
        self.assertEqual(await self.refused(501), message)

    async def test_foreign_here(self) -> None:
        """The same for a runtime in this process."""
        url, self.runtime = self.runtime.url, Foreign()
        self.runtime.url = url
        await self.start()
        self.assertIn("keeps no log", await self.refused(501))

    async def test_runtime_refuses(self) -> None:
        """The answer of the runtime's server is passed on."""
        await self.start()
        self.lines.refusal = b"HTTP/1.1 429 X\r\nRetry-After: 9\r\nContent-Length: 4\r\n\r\nfull"
        self.assertEqual(await self.refused(429), 'machine "vm": full')
        self.runtime.refusals["log"] = NotFound("machines", "x")
        await self.refused(404)


class EndTests(LogCase):
    """Followers that the poollet ends."""

    async def test_withdrawn(self) -> None:
        """A follower that lost its permission gets a line that says so at the next review."""
        await self.start()
        reader = await self.follow()
        self.allowed.remove(JANE_MAY)
        self.allowed.add(("jane", "machines/exec", "vm"))  # another right does not keep it
        self.forget()
        await self.poollet.consoles.guard.review()
        await until(lambda: reader.complete is False)
        self.assertIn(b"[twisted-exec: AuthorizationWithdrawn: ", reader.got)
        self.assertEqual((await self.ended())["reason"], "AuthorizationWithdrawn")
        await until(lambda: self.line().lost)

    async def test_deleted(self) -> None:
        """The log of a deleted machine ends, even if the runtime stays silent."""
        await self.start()
        reader = await self.follow()
        await self.client.delete(MACHINES, "vm", "lab")
        await until(lambda: reader.complete)
        self.assertEqual((await self.ended())["reason"], "MachineDeleted")

    async def test_stops(self) -> None:
        """A poollet that stops ends its followers with a message."""
        await self.start()
        reader = await self.follow()
        await self.poollet.stopService()
        await until(lambda: reader.complete is False)
        self.assertIn(b"[twisted-exec: ShuttingDown: ", reader.got)
