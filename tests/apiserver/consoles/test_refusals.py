"""
Tests for :mod:`twisted_exec.apiserver.consoles.refusals`: denied take-overs.
"""

from __future__ import annotations

from tests.apiserver.chain import EXEC, POD, ChainTestCase
from twisted_exec.api import kinds
from twisted_exec.api.kinds import Object

RBAC = "rbac.authorization.k8s.io"
FORCE = "?stdin=true&stdout=true&tty=true&force=true"
POD_FORCE = "?stdin=true&stdout=true&tty=true&command=console&command=--force"
DENIED = "ConsoleTakeoverDenied"


class TakeoverTests(ChainTestCase):
    """Jane may drive, under strict verbs; eve has no role."""

    async def setUp(self) -> None:
        await super().setUp()
        await self.bind("jane", "edit")
        _, port = await self.poollet()
        await self.make_pool(("InternalIP", "127.0.0.1"), port=port)
        await self.make_machine()
        policy = {"metadata": {"name": "p"}, "spec": {"verbs": "Strict"}}
        await self.admin.create(kinds.CONSOLEPOLICIES.resource, policy, "default")

    async def bind(self, user: str, role: str) -> None:
        binding = {
            "metadata": {"name": user},
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": RBAC, "kind": "User", "name": user}],
        }
        await self.admin.create(kinds.ROLEBINDINGS.resource, binding, "default")

    async def events(self, number: int) -> list[Object]:
        """Return the Events about denied take-overs once there are so many."""
        while True:
            items = (await self.admin.list(kinds.EVENTS.resource, "default"))["items"]
            found = [each for each in items if each["reason"] == DENIED]
            if len(found) >= number:
                return found

    def records(self) -> list[Object]:
        return [each for each in self.audit if each["event"] == "takeover_denied"]

    async def writes(self, user: str) -> None:
        """Open a session of a user whom the machine names as its writer."""
        await self.open(user=user, query="?stdin=true&stdout=true")
        session = self.server._parts.sessions.live()[-1].subject.session
        resource = kinds.CONSOLESESSIONS.resource
        while not (await self.admin.list(resource, "default"))["items"]:
            pass
        machine = kinds.MACHINES.resource
        status = {
            "status": {
                "conditions": [
                    {
                        "type": "ConsoleInUse",
                        "status": "True",
                        "reason": "HasWriter",
                        "message": f"the writers are the sessions {session}",
                    }
                ]
            }
        }
        await self.admin.patch(machine, "vm", status, "default", subresource="status")

    async def test_denied(self) -> None:
        """It is an Event and an audit record with both users, once a minute for user and machine."""
        await self.writes("admin")
        for path, query in ((EXEC, FORCE), (f"{POD}/exec", POD_FORCE), (EXEC, FORCE)):
            message = await self.refused(403, user="jane", path=path, query=query)
            self.assertIn("you may drive it: open it without --force", message)
        (event,) = await self.events(1)
        self.assertEqual(event["involvedObject"]["name"], "vm")
        self.assertEqual((event["type"], event.get("count", 1)), ("Warning", 1))
        text = 'user "jane" may not take over the console from user "admin"'
        self.assertEqual(event["message"], text)
        (record,) = self.records()
        self.assertEqual(
            (record["user"], record["other_user"], record["machine"]), ("jane", "admin", "vm")
        )
        self.assertTrue(record["uid"])
        refusals = [each for each in self.audit if each.get("code") == 403]
        self.assertEqual([each["user"] for each in refusals], ["jane"] * 3)

    async def test_free(self) -> None:
        """Without a writer the record and the Event have one user."""
        await self.refused(403, user="jane", query=FORCE)
        (event,) = await self.events(1)
        self.assertEqual(event["message"], 'user "jane" may not take over the console')
        self.assertEqual([each["other_user"] for each in self.records()], [""])

    async def test_by_a_policy(self) -> None:
        """A refusal by a policy a moment before does not hide it."""
        policy = {"metadata": {"name": "q"}, "spec": {"reason": "Required"}}
        await self.admin.create(kinds.CONSOLEPOLICIES.resource, policy, "default")
        await self.refused(403, user="jane", query="?stdin=true&stdout=true")
        await self.refused(403, user="jane", query=FORCE)
        await self.events(1)

    async def test_nobody(self) -> None:
        """Users without any right cause no Events."""
        await self.refused(403, user="eve", query=FORCE)
        await self.refused(403, user="jane", query=FORCE)
        self.assertEqual(len(await self.events(1)), 1)
        self.assertEqual([each["user"] for each in self.records()], ["jane"])
