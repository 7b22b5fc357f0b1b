"""
Tests for :mod:`twisted_exec.apiserver.consoles.retained_texts`: TLS and sockets are real, the poollet is a
stand-in.
"""

from __future__ import annotations

import gc
import json
from typing import Any

from tests.apiserver.chain import MachineTestCase
from tests.apiserver.rights import BINDINGS, binding
from tests.chain import POOL
from tests.streaming.readers import Reader, read
from twisted_exec.api import kinds
from twisted_exec.streaming.http.upgrade_client import UpgradeRefused, UpgradeRequest
from twisted_exec.streaming.text.stream import TextStream

MACHINES = kinds.MACHINES.resource
POOLS = kinds.MACHINEPOOLS.resource

LOG = "/apis/compute.ironcore.dev/v1alpha1/namespaces/default/machines/{}/log"
POD_LOG = "/api/v1/namespaces/default/pods/{}/log"


class LogCase(MachineTestCase):
    """A machine whose poollet answers with one line, and goes on as the test says."""

    async def log(
        self,
        query: str = "",
        *,
        name: str = "vm",
        user: str = "admin",
        path: str = LOG,
        **more: str,
    ) -> Reader:
        """Ask for a log; the head has come."""
        headers = [(key.replace("_", "-").encode(), value.encode()) for key, value in more.items()]
        head = UpgradeRequest(b"GET", f"{path.format(name)}{query}".encode(), b"server", headers)
        reader = await read(self.endpoint(user), head)
        self.addCleanup(reader.download.abort)
        return reader

    async def follow(self, **more: str) -> Reader:
        """A follower that has the first line."""
        reader = await self.log("?follow=true", **more)
        await self.until(lambda: reader.got == b"hello\n")
        return reader

    async def denied(self, code: int, query: str = "", **more: str) -> dict[str, Any]:
        """The Status of a refusal, which is on record with its code."""
        before = len(self.audit)
        with self.assertRaises(UpgradeRefused) as caught:
            await self.log(query, **more)
        told: dict[str, Any] = json.loads(caught.exception.body)
        self.assertEqual(
            (caught.exception.code, told["kind"], told["code"]), (code, "Status", code)
        )
        start, end = self.audit[before:]
        self.assertEqual((start["event"], end["event"], end["code"]), ("start", "end", code))
        self.assertEqual(end["subresource"], "log")
        return told

    async def last_end(self) -> tuple[str, int | None]:
        """Reason and code of the one session."""
        await self.until(self.ends)
        (end,) = self.ends()
        return end


class ReadTests(LogCase):
    """A log that is read."""

    async def test_what_the_poollet_sees(self) -> None:
        """The poollet gets the user, the checked options, and nothing else of the request."""
        reader = await self.log(
            "?container=console&follow=true&sinceSeconds=5&timestamps=1&stream=All&x=y"
            "&insecureSkipTLSVerifyBackend=true",
            Cookie="a=b",
            Accept="application/json, */*",
            X_Remote_User="root",
        )
        await self.until(lambda: reader.got)
        method, uri, headers = self.pool.requests[0]
        self.assertEqual(
            (method, uri),
            (
                "GET",
                "/apis/compute.ironcore.dev/namespaces/default/machines/vm/log"
                "?follow=true&timestamps=true&frames=true&sinceSeconds=5",
            ),
        )
        ours = {"audit-id", "host", "x-remote-group", "x-remote-user", "x-twisted-exec-machine-uid"}
        others = {name for name in headers if not name.startswith("x-remote-extra-")}
        self.assertEqual(others, ours)
        self.assertEqual(headers["x-remote-user"], ["admin"])

    async def test_text(self) -> None:
        """The log passes at once; its end ends the response; start and end are audited."""
        reader = await self.follow()
        self.pool.logs[0].write(b"more\n")
        await self.until(lambda: reader.got == b"hello\nmore\n")
        self.pool.logs[0].finish()
        await self.until(lambda: reader.complete)
        self.assertEqual(await self.last_end(), ("backend closed", None))
        start, end = self.audit
        self.assertEqual(
            (end["user"], end["machine"], end["pool"], end["subresource"], end["bytes_to_user"]),
            ("admin", "vm", POOL, "log", 11),
        )
        self.assertEqual(end["uid"], self.made["metadata"]["uid"])
        self.assertEqual(start["session"], self.pool.requests[0][2]["audit-id"][0])

    async def test_leaves(self) -> None:
        """A reader that leaves leaves the poollet at once."""
        reader = await self.follow()
        reader.download.abort()
        await self.until(lambda: self.pool.logs[0].gone)
        self.assertEqual(await self.last_end(), ("client closed", None))

    async def test_nothing_is_left(self) -> None:
        """A disconnected reader leaves no reference cycle behind."""
        gc.collect()
        gc.disable()
        self.addCleanup(gc.enable)
        reader = await self.follow()
        reader.download.abort()
        await self.until(lambda: self.pool.logs[0].gone)

        def is_left() -> bool:
            return any(isinstance(each, TextStream) for each in gc.get_objects(generation=0))

        await self.until(lambda: not is_left())

    async def test_without_power(self) -> None:
        """A machine that is off has a log; switching it off ends no follower."""
        first = await self.follow()
        await self.admin.patch(MACHINES, "vm", {"spec": {"power": "Off"}}, "default")
        second = await self.follow()
        self.pool.logs[0].write(b"more\n")
        await self.until(lambda: first.got == b"hello\nmore\n")
        self.assertIsNone(second.complete)

    async def test_pod(self) -> None:
        """The log of the machine's Pod is the machine's log."""
        reader = await self.log("?container=console&tailLines=3", path=POD_LOG)
        await self.until(lambda: reader.got)
        self.assertTrue(
            self.pool.requests[0][1].endswith("/machines/vm/log?frames=true&tailLines=3")
        )
        self.assertEqual((self.audit[0]["machine"], self.audit[0]["subresource"]), ("vm", "log"))


class PermissionTests(LogCase):
    """Permissions for logs."""

    async def test_edit(self) -> None:
        """``edit``, ``admin`` and ``console-log-reader`` may read logs."""
        for role in ("edit", "admin", "console-log-reader"):
            await self.admin.create(BINDINGS, binding("jane", role), "default")
            await self.follow(user="jane")
            await self.follow(user="jane", path=POD_LOG)
            await self.admin.delete(BINDINGS, f"jane-{role}", "default")

    async def test_view(self) -> None:
        """``view`` and the roles that only use consoles may not."""
        for role in ("view", "console-observer", "console-user", "console-operator"):
            await self.admin.create(BINDINGS, binding("jane", role), "default")
        told = await self.denied(403, user="jane")
        self.assertEqual(
            told["message"],
            'machines.compute.ironcore.dev "vm" is forbidden: User "jane" cannot get resource '
            '"machines/log" in API group "compute.ironcore.dev" in the namespace "default": ask an '
            'administrator for the role console-log-reader in the namespace "default"',
        )
        self.assertEqual(
            told["details"]["causes"],
            [
                {
                    "reason": "MissingRight",
                    "message": told["message"],
                    "user": "jane",
                    "verb": "get",
                    "group": "compute.ironcore.dev",
                    "resource": "machines",
                    "subresource": "log",
                    "namespace": "default",
                    "remedy": 'ask an administrator for the role console-log-reader in the namespace "default"',
                }
            ],
        )
        told = await self.denied(403, user="jane", path=POD_LOG)
        self.assertIn("ask an administrator for the role console-log-reader in ", told["message"])
        await self.denied(403, name="nothing", user="jane")

    async def test_nobody(self) -> None:
        """Requests without credentials get 401."""
        await self.denied(401, user="")

    async def test_acting(self) -> None:
        """Under impersonation the impersonated user's permissions count; the record has both."""
        await self.admin.create(BINDINGS, binding("jane", "edit"), "default")
        await self.follow(Impersonate_User="jane", Impersonate_Group="dev")
        self.assertEqual(self.pool.requests[0][2]["x-remote-user"], ["jane"])
        self.assertEqual((self.audit[0]["user"], self.audit[0]["caller"]), ("jane", "admin"))


DELETED_LOG = "/apis/console.twisted-exec.dev/v1alpha1/namespaces/default/deletedconsoles/{}/log"


class DeletedTests(LogCase):
    """The log of a deleted machine."""

    async def setUp(self) -> None:
        await super().setUp()
        await self.admin.delete(kinds.MACHINES.resource, "vm", "default")
        self.uid = self.made["metadata"]["uid"]
        self.name = f"vm-{self.uid[:8]}"

    async def test_read(self) -> None:
        """The poollet gets the DeletedConsole's name, the user and the options; the audit, the UID."""
        await self.log("?tailLines=5", name=self.name, path=DELETED_LOG)
        await self.until(lambda: self.pool.requests)
        method, uri, headers = self.pool.requests[0]
        self.assertEqual(method, "GET")
        expected = (
            f"/apis/console.twisted-exec.dev/namespaces/default/deletedconsoles/{self.name}/log"
        )
        self.assertEqual(uri, expected + "?frames=true&tailLines=5")
        self.assertEqual(headers["x-remote-user"], ["admin"])
        self.pool.logs[0].finish()
        await self.until(self.ends)
        end = self.audit[-1]
        self.assertEqual(
            (end["machine"], end["uid"], end["pool"], end["resource"]),
            (self.name, self.uid, POOL, "deletedconsoles.console.twisted-exec.dev"),
        )

    async def test_permission(self) -> None:
        """Users of machines may list them; reading the output needs a permission of its own."""
        resource = kinds.DELETEDCONSOLES.resource
        for role in ("view", "edit"):
            await self.admin.create(BINDINGS, binding("jane", role), "default")
            told = await self.denied(403, name=self.name, path=DELETED_LOG, user="jane")
            self.assertIn('cannot get resource "deletedconsoles/log"', told["message"])
        listed = await self.client("jane").list(resource, "default")
        self.assertEqual([each["metadata"]["name"] for each in listed["items"]], [self.name])
        await self.admin.create(BINDINGS, binding("jane", "admin"), "default")
        await self.log(name=self.name, path=DELETED_LOG, user="jane")

    async def test_unknown(self) -> None:
        """A name that nothing has: 404; a pool that is gone: 404 with its name."""
        told = await self.denied(404, name="vm-0", path=DELETED_LOG)
        self.assertIn('deletedconsoles.console.twisted-exec.dev "vm-0" not found', told["message"])
        await self.admin.delete(POOLS, POOL)
        told = await self.denied(404, name=self.name, path=DELETED_LOG)
        self.assertIn('machine "vm" is assigned to it', told["message"])

    async def test_other_poollet(self) -> None:
        """A poollet that serves no such logs is named, with what it does not serve."""
        self.pool.serves_logs = False
        status = await self.denied(501, name=self.name, path=DELETED_LOG)
        message = (
            f'the poollet of pool "{POOL}" does not serve logs of deleted machines: '
            "it is not an exec-poollet"
        )
        self.assertEqual(status["reason"], "NotImplemented")
        self.assertTrue(status["message"].endswith(message), status["message"])


class RefuseTests(LogCase):
    """Refused requests."""

    async def test_options(self) -> None:
        """Options are checked before any lookup, with the messages of Kubernetes."""
        for query, code, reason in (
            ("?tailLines=-1", 422, "Invalid"),
            ("?sinceSeconds=1&sinceTime=2026-11-20T05:00:00Z", 422, "Invalid"),
            ("?stream=Stderr", 422, "Invalid"),
            ("?limitBytes=many", 400, "BadRequest"),
            ("?fromOffset=x", 400, "BadRequest"),
            ("?container=web", 400, "BadRequest"),
        ):
            for path in (LOG, POD_LOG):
                told = await self.denied(code, query, name="nothing", path=path)
                self.assertEqual(told["reason"], reason, query)
        self.assertEqual(self.pool.requests, [])

    async def test_missing(self) -> None:
        """A missing machine or pool gets 404, a machine without a pool 400."""
        await self.denied(404, name="nothing")
        await self.make_machine("floating", pool="")
        await self.denied(400, name="floating")
        await self.make_machine("lost", pool="no-pool")
        await self.denied(404, name="lost")

    async def test_refused_by_the_poollet(self) -> None:
        """The poollet's Status is passed on: a runtime without logs gets 501."""
        status = {
            "kind": "Status",
            "status": "Failure",
            "code": 501,
            "reason": "NotImplemented",
            "message": 'machine "vm": the machine\'s runtime keeps no log',
        }
        self.pool.answer = (501, status)
        told = await self.denied(501)
        self.assertEqual((told["reason"], told["message"]), (status["reason"], status["message"]))

    async def test_poollet_without_logs(self) -> None:
        """A poollet that does not know the path, such as ironcore's own, gives 501 and the reason."""
        self.pool.serves_logs = False
        for path in (LOG, POD_LOG):
            status = await self.denied(501, path=path)
            self.assertEqual(status["reason"], "NotImplemented")
            self.assertIn(f'the poollet of pool "{POOL}" does not serve logs', status["message"])
            self.assertIn("exec-poollet", status["message"])

    async def test_not_found_by_the_poollet(self) -> None:
        """A 404 of a poollet that serves logs is passed on: it does not know the machine yet."""
        self.pool.answer = (404, {"kind": "Status", "code": 404, "message": "no such machine"})
        self.assertIn("no such machine", (await self.denied(404))["message"])

    async def test_methods(self) -> None:
        """A log is read with GET."""
        for method in (b"POST", b"DELETE", b"PUT"):
            head = UpgradeRequest(method, LOG.format("vm").encode(), b"server")
            with self.assertRaises(UpgradeRefused) as caught:
                await read(self.endpoint("admin"), head)
            self.assertEqual(caught.exception.code, 405)


class EndTests(LogCase):
    """Followers that are ended from here."""

    async def test_withdrawn(self) -> None:
        """Taking the role away ends it soon, with the reason on a line of its own."""
        await self.admin.create(BINDINGS, binding("jane", "edit"), "default")
        reader = await self.follow(user="jane")
        await self.admin.delete(BINDINGS, "jane-edit", "default")
        await self.until(lambda: reader.complete is False)
        self.assertIn(b"[twisted-exec: AuthorizationWithdrawn: ", reader.got)
        self.assertIn(b'cannot get resource "machines/log"', reader.got)
        self.assertEqual(await self.last_end(), ("AuthorizationWithdrawn", None))
        await self.until(lambda: self.pool.logs[0].gone)

    async def test_deleted(self) -> None:
        """A deleted machine's log ends, as complete, also when the poollet does not end it."""
        reader = await self.follow()
        await self.admin.delete(MACHINES, "vm", "default")
        await self.until(lambda: reader.complete)
        self.assertEqual(await self.last_end(), ("MachineDeleted", None))

    async def test_deleted_pool(self) -> None:
        """After the pool is deleted, the rest of the log is unavailable."""
        reader = await self.follow()
        await self.admin.delete(POOLS, POOL)
        await self.until(lambda: reader.complete is False)
        self.assertIn(b"[twisted-exec: PoolDeleted: ", reader.got)

    async def test_stops(self) -> None:
        """A server that stops says so."""
        reader = await self.follow()
        await self.server.stopService()
        await self.until(lambda: reader.complete is False)
        self.assertIn(b"[twisted-exec: ShuttingDown: ", reader.got)
        self.assertEqual(self.ends(), [("ShuttingDown", None)])


class DiscoveryTests(LogCase):
    """Discovery of logs."""

    async def test_reviews(self) -> None:
        """Reviews tell of logs apart from machines."""
        await self.admin.create(BINDINGS, binding("jane", "view"), "default")
        for resource, allowed in (("machines", True), ("machines/log", False)):
            name, _, subresource = resource.partition("/")
            attributes = {
                "namespace": "default",
                "verb": "get",
                "group": "compute.ironcore.dev",
                "resource": name,
                "subresource": subresource,
            }
            review = {
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SelfSubjectAccessReview",
                "spec": {"resourceAttributes": attributes},
            }
            jane = self.client("jane")
            told = await jane.create(kinds.SELFSUBJECTACCESSREVIEWS.resource, review)
            self.assertEqual(told["status"]["allowed"], allowed, resource)
