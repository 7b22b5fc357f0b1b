"""Tests for the rights of users at consoles of a poollet."""

from __future__ import annotations

from typing import Any

from tests.chain import until
from tests.poollet.chain import EXEC, JANE, PoolletCase, status
from twisted_exec.api.conditions import writers_of
from twisted_exec.api.kinds import EVENTS, MACHINES
from twisted_exec.streaming.http.upgrade_client import UpgradeRefused
from twisted_exec.streaming.interfaces import UID_HEADER
from twisted_exec.wire.session_terms import TERMS_HEADER

HEADER = TERMS_HEADER.encode()


class RightsTests(PoolletCase):
    """A poollet decides by itself, and passes the stricter terms on."""

    async def setUp(self) -> None:
        await super().setUp()
        self.lines.holds = True

    def terms(self) -> list[bytes]:
        """Return the terms that the runtime got with the last request."""
        lines = self.lines.heads[-1].split(b"\r\n")
        return [line.partition(b": ")[2] for line in lines if line.startswith(HEADER)]

    async def test_own(self) -> None:
        """The user's right here limits the session, whatever the API server sends."""
        self.allowed.discard(("jane", "machines/exec", "vm"))
        self.rights = {("jane", "observe")}
        await self.start()
        for sent in ([], [(HEADER, b"right=drive&viewers=3")]):
            await self.view(sent)
        self.assertEqual(self.terms(), [b"right=observe&viewers=3"])

    async def test_sent(self) -> None:
        """What the API server sends limits the session, whatever the user's right here."""
        await self.start()
        await self.view([(HEADER, b"right=observe")])
        self.assertEqual(self.terms(), [b"right=observe"])
        await self.view()
        self.assertEqual(self.terms(), [])

    async def test_strict(self) -> None:
        """With strict verbs the permission to open a console is no right."""
        await self.start(strict_verbs=True)
        with self.assertRaises(UpgradeRefused) as caught:
            await self.open()
        self.assertIn("machines/console", status(caught.exception.body)["message"])

    async def test_unknown(self) -> None:
        """Terms of a later release are refused."""
        await self.start()
        with self.assertRaises(UpgradeRefused) as caught:
            await self.open([(HEADER, b"recording=yes")])
        self.assertEqual(caught.exception.code, 400)
        self.assertIn("recording", status(caught.exception.body)["message"])

    async def test_other_runtime(self) -> None:
        """A runtime that does not hold sessions to terms gets none with terms."""
        self.lines.holds = False
        await self.start()
        with self.assertRaises(UpgradeRefused) as caught:
            await self.open([(HEADER, b"right=observe")])
        self.assertEqual(caught.exception.code, 501)
        await self.view()

    async def test_observer_elsewhere(self) -> None:
        """A runtime that may ignore ``readOnly`` gets no session of a user who may only observe."""
        self.allowed.discard(("jane", "machines/exec", "vm"))
        self.rights = {("jane", "observe")}
        self.lines.holds = False
        await self.start()
        for query in ("readOnly=true", "stdout=true"):
            with self.assertRaises(UpgradeRefused) as caught:
                await self.open(path=f"{EXEC.format('lab', 'vm')}?{query}")
            self.assertEqual(caught.exception.code, 501)


class TakeoverTests(PoolletCase):
    """Users who connect without an API server, and may drive."""

    async def setUp(self) -> None:
        await super().setUp()
        self.lines.holds = True
        self.allowed = {("jane", "machinepools/proxy", "pool-a"), *self.allowed}
        self.allowed.discard(("jane", "machines/exec", "vm"))
        self.rights = {("jane", "drive")}
        await self.start()

    async def force(self) -> None:
        with self.assertRaises(UpgradeRefused) as caught:
            await self.open(
                user=b"", identity=JANE, path=f"{EXEC.format('lab', 'vm')}?stdin=true&force=true"
            )
        self.assertEqual(caught.exception.code, 403)
        message = status(caught.exception.body)["message"]
        self.assertIn("you may drive it: open it without --force", message)

    async def test_denied(self) -> None:
        """A denied take-over is an Event and an audit record, once a minute for user and machine."""
        self.allowed.add(("ann", "machines/exec", "vm"))
        await self.view(user=b"ann")
        session = self.poollet.consoles.sessions.live()[-1].subject.session
        (machine,) = self.runtime.machines.values()
        machine.status.machine_conditions.add(
            type="ConsoleInUse",
            status="True",
            reason="HasWriter",
            message=f"the writers are the sessions {session}",
        )
        await until(lambda: writers_of(self.poollet.machines.get("vm", "lab") or {}))
        for _ in range(3):
            await self.force()
        records = [each for each in self.audit if each["event"] == "takeover_denied"]
        self.assertEqual(
            [(each["user"], each["other_user"]) for each in records], [("jane", "ann")]
        )
        self.assertTrue(records[0]["uid"])
        found: list[dict[str, Any]] = []
        while not found:
            items = (await self.client.list(EVENTS.resource, "lab"))["items"]
            found = [each for each in items if each["reason"] == "ConsoleTakeoverDenied"]
        self.assertEqual([each.get("count", 1) for each in found], [1])
        self.assertIn('"jane" may not take over the console from user "ann"', found[0]["message"])


class MachineTests(PoolletCase):
    """A machine that was created again while a console was being opened."""

    async def test_another(self) -> None:
        """What the API server decided about one machine opens no other one of its name."""
        await self.start()
        with self.assertRaises(UpgradeRefused) as caught:
            await self.open([(UID_HEADER, b"u-other")])
        self.assertEqual(caught.exception.code, 404)
        self.assertEqual(self.lines.heads, [])
        machine = await self.client.get(MACHINES.resource, "vm", "lab")
        await self.view([(UID_HEADER, machine["metadata"]["uid"].encode())])
