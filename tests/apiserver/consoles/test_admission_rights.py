"""
Tests for :mod:`twisted_exec.apiserver.consoles.admission`: rights at consoles.
"""

from __future__ import annotations

from typing import Any

from tests.apiserver.chain import EXEC, WEBSOCKET, MachineTestCase
from tests.apiserver.rights import BINDINGS, ROLES, binding, console_role
from twisted_exec.api import kinds
from twisted_exec.apiserver.settings import Settings
from twisted_exec.streaming.http.upgrade_client import UpgradeRefused

MACHINES, POOLS = kinds.MACHINES.resource, kinds.MACHINEPOOLS.resource
SESSIONS = kinds.CONSOLESESSIONS.resource

CONSOLE = EXEC.replace("/exec", "/console")


class RightsTests(MachineTestCase):
    """
    Rights at a console, as verbs of ``machines/console``.

    :cvar terms_of_edit: the terms that the poollet gets for a user with the role edit.
    """

    terms_of_edit: list[str] | None = None

    async def grant(self, *verbs: str, resource: str = "machines/console") -> None:
        await self.admin.create(ROLES, console_role("r", *verbs, resource=resource))
        await self.admin.create(BINDINGS, binding("jane", "r"), "default")

    async def test_observer(self) -> None:
        """A user who may only observe is attached as an observer, without asking for it."""
        await self.grant("observe")
        await self.open(user="jane")
        self.assertEqual(self.pool.requests[-1][2]["x-twisted-exec-terms"], ["right=observe"])
        message = await self.refused(403, user="jane", query="?force=true")
        self.assertIn("you may observe it: open it without --force", message)

    async def test_default_roles(self) -> None:
        """The default roles: console-observer observes, console-user and edit type, console-operator and admin take over."""
        for role, terms in (
            ("console-observer", ["right=observe"]),
            ("console-user", ["right=drive"]),
            ("console-operator", None),
            ("edit", self.terms_of_edit),
            ("admin", None),
        ):
            await self.admin.create(BINDINGS, binding("jane", role), "default")
            await self.open(user="jane")
            opened = [headers for method, _, headers in self.pool.requests if method == "POST"]
            self.assertEqual(opened[-1].get("x-twisted-exec-terms"), terms)
            await self.admin.delete(BINDINGS, f"jane-{role}", "default")

    async def test_readers(self) -> None:
        """No role of the standard read verbs opens a console, whatever its resources."""
        await self.grant("get", "list", "watch", resource="*")
        await self.refused(403, user="jane")
        await self.refused(403, user="jane", path=CONSOLE, method=b"GET")
        self.assertEqual(self.pool.requests, [])

    async def test_observers_path(self) -> None:
        """``GET machines/NAME/console`` observes, whatever its query and the user's rights."""
        await self.open(path=CONSOLE, method=b"GET", query="?stdin=true&tty=true&force=true")
        path = self.pool.requests[-1][1]
        self.assertTrue(path.startswith(EXEC.format("vm").replace("v1alpha1/", "")), path)
        self.assertIn("readOnly=true", path)
        self.assertNotIn("force", path)
        self.assertEqual(await self.code(CONSOLE), 405)
        while not (listed := (await self.admin.list(SESSIONS, "default"))["items"]):
            pass  # a session has no object in its first moments
        self.assertEqual([each["spec"]["via"] for each in listed], ["machines/console"])

    async def test_machine_uid(self) -> None:
        """The poollet gets the UID of the machine, whatever the client sends."""
        machine = await self.admin.get(MACHINES, "vm", "default")
        forged = (b"X-Twisted-Exec-Machine-Uid", b"u-other")
        await self.open(headers=[*WEBSOCKET, forged])
        headers = self.pool.requests[-1][2]
        self.assertEqual(headers["x-twisted-exec-machine-uid"], [machine["metadata"]["uid"]])

    async def code(self, path: str) -> int:
        try:
            await self.dial(path=path)
        except UpgradeRefused as answer:
            return answer.code
        raise AssertionError("it was opened")

    async def test_other_poollet(self) -> None:
        """
        A poollet that cannot hold a session to its terms gets none: ironcore's passes input on even
        if the request is for output only.
        """
        await self.grant("observe")
        self.pool.holds = False
        message = await self.refused(501, user="jane")
        self.assertIn("cannot hold a session to its terms (right=observe)", message)
        await self.until(lambda: self.pool.lines[0].lost)
        for query in ("?stdout=true", "?readOnly=true"):
            await self.refused(501, user="jane", query=query)
        await self.open(query="?stdout=true")  # of a user who may type

    async def test_withdrawn(self) -> None:
        """Losing the right to drive turns the session to observing; losing all ends it."""
        await self.grant("observe", "drive")
        end = await self.open(user="jane")
        role = console_role("r", "observe")
        await self.admin.patch(ROLES, "r", {"rules": role["rules"]})
        await self.until(lambda: self.pool.requests[-1][0] == "PATCH")
        self.assertIn("terms=right%3Dobserve", self.pool.requests[-1][1])
        end.transport.write(b"hello")  # type: ignore[union-attr]
        await self.until(lambda: end.received == b"hello")  # the poollet has confirmed
        await self.admin.patch(ROLES, "r", {"rules": []})
        await self.until(lambda: end.lost)
        self.assertEqual(self.pool.requests[-1][0], "DELETE")

    async def test_powered_off(self) -> None:
        """Who may switch the machine on reads how; others read the role that may, too."""
        await self.make_machine("off", power="Off")
        await self.admin.create(BINDINGS, binding("jane", "console-user"), "default")
        how = "kubectl patch machine off -n default --type=merge"
        who = "and you may not switch it; a user with the role edit powers it on"
        for user, told in (("jane", f", {who}: {how}"), ("", f"; power it on: {how}")):
            message = await self.refused(409, "off", **({"user": user} if user else {}))
            self.assertIn(f'machine "off" is powered off{told}', message)

    async def test_not_confirmed(self) -> None:
        """A session ends if the next hop does not confirm the terms; no input passes meanwhile."""
        await self.admin.create(BINDINGS, binding("jane", "edit"), "default")
        end = await self.open(user="jane")
        self.pool.holds = False
        await self.grant_observer()
        await self.until(lambda: end.lost)
        self.assertEqual([each[0] for each in self.pool.requests], ["POST", "PATCH", "DELETE"])

    async def grant_observer(self) -> None:
        await self.admin.create(BINDINGS, binding("jane", "console-observer"), "default")
        await self.admin.delete(BINDINGS, "jane-edit", "default")

    async def test_reviews(self) -> None:
        """``kubectl auth can-i`` gives the answers by which consoles are opened."""
        await self.admin.create(BINDINGS, binding("jane", "console-observer"), "default")
        for verb, allowed in (("observe", True), ("drive", False), ("takeover", False)):
            place = {"namespace": "default", "group": "compute.ironcore.dev", "name": "vm"}
            spec = {"resource": "machines", "subresource": "console", "verb": verb, **place}
            review = await self.client("jane").create(
                kinds.SELFSUBJECTACCESSREVIEWS.resource,
                {
                    "apiVersion": "authorization.k8s.io/v1",
                    "kind": "SelfSubjectAccessReview",
                    "spec": {"resourceAttributes": spec},
                },
            )
            self.assertEqual(review["status"]["allowed"], allowed, verb)


class StrictTests(RightsTests):
    """``--console-verbs=strict``: without the verb to take over, edit drives only."""

    terms_of_edit = ["right=drive"]

    def settings(self, **more: Any) -> Settings:
        return super().settings(strict_verbs=True, **more)

    async def test_exec(self) -> None:
        """``create machines/exec`` opens nothing."""
        await self.grant("create", "get", resource="machines/exec")
        message = await self.refused(403, user="jane", query="?stdin=true")
        self.assertIn('cannot drive resource "machines/console"', message)
