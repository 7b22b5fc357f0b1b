"""
Tests for :mod:`twisted_exec.apiserver.consoles.recordings`: real sessions that are recorded.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, quote

from twisted.internet.defer import Deferred
from twisted.internet.endpoints import connectProtocol

from tests.apiserver.chain import EXEC, POD, WEBSOCKET, ChainTestCase, Poollet
from tests.apiserver.rights import BINDINGS, binding
from tests.streaming.raw import Raw
from twisted_exec.api import kinds
from twisted_exec.api.kinds import Object
from twisted_exec.streaming.interfaces import REVOKED
from twisted_exec.wire.session_terms import TERMS_HEADER

POLICIES, RECORDINGS = kinds.CONSOLEPOLICIES.resource, kinds.CONSOLERECORDINGS.resource
STDIN = "?stdin=true&stdout=true&tty=true"


class RecordedTests(ChainTestCase):
    """Jane edits a namespace with a machine."""

    poollet_seconds = 10.0  # some of them wait for this end

    poollet_: Poollet

    async def setUp(self) -> None:
        await super().setUp()
        await self.admin.create(BINDINGS, binding("jane", "edit"), "default")
        self.poollet_, port = await self.poollet()
        await self.make_pool(("InternalIP", "127.0.0.1"), port=port)
        await self.make_machine()

    async def make_policy(self, name: str = "p", **recording: Any) -> Object:
        body = {"metadata": {"name": name}, "spec": {"recording": recording}}
        return await self.admin.create(POLICIES, body, "default")

    async def recordings(self) -> list[Object]:
        listed: list[Object] = (await self.admin.list(RECORDINGS, "default"))["items"]
        return listed

    def term(self) -> str:
        """The recording in the terms of the last session, as the poollet has received them."""
        # A policy may change or end an earlier session meanwhile.
        opened = [each for method, _, each in self.poollet_.requests if method == "POST"]
        (text,) = opened[-1].get(TERMS_HEADER.lower(), [""])
        return parse_qs(text).get("recording", [""])[0]

    async def test_required(self) -> None:
        """The first session begins the recording, and names it; the next one joins it."""
        await self.make_policy(retentionDays=9)
        await self.open(user="jane", query=f"{STDIN}&reason=OPS-1")
        (recording,) = await self.recordings()
        term = f"{recording['metadata']['uid']}/masked"
        self.assertEqual(self.term(), term)
        await self.open(query=STDIN)
        self.assertEqual(self.term(), term)
        (recording,) = await self.recordings()
        machine = await self.admin.get(kinds.MACHINES.resource, "vm", "default")
        last = recording["spec"].pop("lastSessionTime")
        self.assertTrue(last)
        self.assertEqual(
            recording["spec"],
            {
                "machine": "vm",
                "machineResource": "machines.compute.ironcore.dev",
                "machineUID": machine["metadata"]["uid"],
                "pool": "pool-a",
                "input": "masked",
                "reason": "OPS-1",
                "retentionDays": 9,
                "user": "jane",
                "users": ["jane", "admin"],
                "policies": ["p"],
                "endsWithSessions": True,
            },
        )

    async def test_over(self) -> None:
        """An ended or failed recording is not joined."""
        await self.make_policy()
        for change in ({"spec": {"ended": True}}, {"status": {"phase": "Failed"}}):
            await self.open(user="jane", query=STDIN)
            uid, _, _ = self.term().partition("/")
            (name,) = (
                each["metadata"]["name"]
                for each in await self.recordings()
                if each["metadata"]["uid"] == uid
            )
            part = "status" if "status" in change else ""
            await self.admin.patch(RECORDINGS, name, change, "default", subresource=part)
        await self.open(user="jane", query=STDIN)
        self.assertEqual(len(await self.recordings()), 3)

    async def test_strictest(self) -> None:
        """Policies that overlap make one recording with the most input."""
        await self.make_policy("a", input="none", retentionDays=50)
        await self.open(user="jane", query=STDIN)
        self.assertIn("/none", self.term())
        await self.make_policy("b", input="all", mode="Optional", retentionDays=10)
        await self.open(user="jane", query=STDIN)
        self.assertIn("/all", self.term())
        found = [each["spec"] for each in await self.recordings() if each["spec"]["input"] == "all"]
        (spec,) = found
        self.assertEqual((spec["policies"], spec["retentionDays"]), (["a", "b"], 50))

    async def test_optional(self) -> None:
        """An optional recording is no term, so a runtime of another make does without."""
        await self.make_policy(mode="Optional")
        self.poollet_.holds = False
        await self.open(user="jane", query=STDIN)
        self.assertEqual((self.term(), len(await self.recordings())), ("", 1))

    async def test_header(self) -> None:
        """
        The client learns from the answer how much is recorded; of a recording that is optional only when it has begun,
        because the session does not wait for that.
        """
        await self.open(user="jane", query=STDIN)
        self.assertNotIn(b"Recorded", await self.answer_head())
        await self.make_policy("a", mode="Optional", input="all")
        self.assertNotIn(b"Recorded", await self.answer_head())
        (recording,) = await self.recordings()
        name, begun = recording["metadata"]["name"], {"status": {"phase": "Recording"}}
        await self.admin.patch(RECORDINGS, name, begun, "default", subresource="status")
        head = b""
        while b"X-Twisted-Exec-Recorded: all\r\n" not in head:  # the server follows its store
            head = await self.answer_head()
        await self.make_policy("b", input="masked")
        self.assertIn(b"X-Twisted-Exec-Recorded: all\r\n", await self.answer_head())

    async def test_required_header(self) -> None:
        """A session that requires a recording begins with it, and the client learns so from the answer."""
        await self.make_policy(input="masked")
        self.assertIn(b"X-Twisted-Exec-Recorded: masked\r\n", await self.answer_head())

    async def answer_head(self) -> bytes:
        """The head of the answer to a WebSocket of jane."""
        end: Any = await connectProtocol(self.endpoint("jane"), Raw())
        lines = [f"GET {EXEC.format('vm')}{STDIN} HTTP/1.1", "Host: server"]
        lines += [f"{name.decode()}: {value.decode()}" for name, value in WEBSOCKET]
        end.transport.write("\r\n".join([*lines, "Connection: Upgrade", "", ""]).encode())
        await self.until(lambda: b"\r\n\r\n" in end.received)
        end.transport.loseConnection()
        head: bytes = end.received.partition(b"\r\n\r\n")[0] + b"\r\n"
        return head

    async def test_foreign(self) -> None:
        """A poollet that makes no recordings gets no session that needs one."""
        await self.make_policy()
        self.poollet_.holds = False
        message = await self.refused(501, user="jane", query=STDIN)
        self.assertIn("ConsolePolicy default/p requires a recording of this console: ", message)
        self.assertIn("makes no recordings", message)
        await self.check_refusal_event(message)

    async def check_refusal_event(self, message: str) -> None:
        """There is an Event about the machine with a message to the user, and no recording is left."""
        while not (items := (await self.admin.list(kinds.EVENTS.resource, "default"))["items"]):
            pass
        (event,) = items
        self.assertEqual(event["reason"], "ConsoleRefused")
        self.assertIn('user "jane" was refused the console: ', event["message"])
        self.assertIn(message.partition(": ")[2], event["message"])
        self.assertIn("ConsolePolicy default/p", event["message"])
        while await self.recordings():
            pass

    async def test_unable(self) -> None:
        """A runtime that cannot record now: the refusal is an Event that names the policy."""
        await self.make_policy()
        self.poollet_.answer = (
            503,
            {
                "kind": "Status",
                "status": "Failure",
                "code": 503,
                "message": "No space left on device",
                "details": {"causes": [{"reason": "CannotBeRecorded", "message": "No space"}]},
            },
        )
        message = await self.refused(503, user="jane", query=STDIN)
        self.assertIn(
            "ConsolePolicy default/p requires a recording of this console: No space left", message
        )
        await self.check_refusal_event(message)

    async def test_other_refusal(self) -> None:
        """A refusal without that cause is not one by the policy, whatever its message says."""
        await self.make_policy()
        self.poollet_.answer = (
            503,
            {"kind": "Status", "status": "Failure", "code": 503, "message": "cannot be recorded"},
        )
        message = await self.refused(503, user="jane", query=STDIN)
        self.assertNotIn("ConsolePolicy", message)

    async def test_own_demand(self) -> None:
        """A user who has asked for a recording that cannot be made reads that this is the reason."""
        self.poollet_.holds = False
        message = await self.refused(501, query=f"{STDIN}&record=")
        self.assertIn("you asked for a recording of this console: ", message)

    async def refused_meanwhile(self, **status: str) -> str:
        """Refuse a session whose recording gets a status before; return the message to the user."""
        await self.make_policy()
        self.poollet_.silent = True
        refused = Deferred.fromCoroutine(self.refused(504, user="jane", query=STDIN))
        await self.until(lambda: self.poollet_.requests)
        (recording,) = await self.recordings()
        name, body = recording["metadata"]["name"], {"status": status}
        await self.admin.patch(RECORDINGS, name, body, "default", subresource="status")
        return await refused

    async def test_refused_with_status(self) -> None:
        """The recording of a refused session is deleted, also if a poollet has said why it does not begin."""
        await self.refused_meanwhile(message="there is no certificate")
        while await self.recordings():
            pass

    async def test_refused_and_begun(self) -> None:
        """If the runtime has begun it, it is retained, ends at once, and says why."""
        message = await self.refused_meanwhile(phase="Recording")
        (recording,) = await self.recordings()
        while not recording["spec"].get("ended"):
            (recording,) = await self.recordings()
        spec = recording["spec"]
        self.assertTrue(spec["endedTime"])
        self.assertIn('the session of user "jane" was not opened: ', spec["endedReason"])
        self.assertIn(spec["endedReason"].partition(": ")[2], message)

    async def test_joined_meanwhile(self) -> None:
        """A recording remains if another session has joined it before the first one was refused."""
        await self.make_policy()
        self.poollet_.silent = True
        refused = Deferred.fromCoroutine(self.refused(504, user="jane", query=STDIN))
        await self.until(lambda: self.poollet_.requests)
        self.poollet_.silent = False
        await self.open(user="jane", query=STDIN)
        await refused
        (recording,) = await self.recordings()
        self.assertEqual(self.term(), f"{recording['metadata']['uid']}/masked")

    async def test_named(self) -> None:
        """The audit records and the object of a session name its recording."""
        await self.open(user="jane", query=STDIN)
        await self.make_policy(mode="Optional")
        await self.open(user="jane", query=STDIN)
        (recording,) = await self.recordings()
        metadata = recording["metadata"]
        without, start = [each for each in self.audit if each["event"] == "start"][-2:]
        self.assertNotIn("recording", without)
        self.assertEqual(
            (start["recording"], start["recording_uid"]), (metadata["name"], metadata["uid"])
        )
        sessions: list[Object] = []
        while len(sessions) < 2:
            listed = await self.admin.list(kinds.CONSOLESESSIONS.resource, "default")
            sessions = listed["items"]
        named = {each["spec"]["session"]: each["spec"].get("recording") for each in sessions}
        self.assertEqual(named, {without["session"]: None, start["session"]: metadata["name"]})

    async def test_new_policy(self) -> None:
        """A session that began without a recording ends when a policy requires one."""
        await self.open(user="jane", query=STDIN)
        (session,) = self.server._parts.sessions.live()
        await self.make_policy()
        await self.until(lambda: session.ending)
        assert session.ending is not None
        self.assertEqual(session.ending.reason, REVOKED)
        self.assertIn(
            "this session began without the policy's recording: a new session has it",
            session.ending.message,
        )
        self.assertEqual(session.ending.causes, ("NotRecorded",))

    async def test_policy_deleted(self) -> None:
        """A session keeps its recording when the policy is gone."""
        await self.make_policy()
        await self.make_policy("q", input="none")
        await self.open(user="jane", query=STDIN)
        (session,) = self.server._parts.sessions.live()
        term = session.terms.recording
        for name in ("p", "q"):
            await self.admin.delete(POLICIES, name, "default")
        await self.until(lambda: session.terms.policy == "")
        self.assertEqual(session.terms.recording, term)

    async def test_approved_reason(self) -> None:
        """The recording, the audit records and the next hop have the reason that was approved."""
        body = {"metadata": {"name": "p"}, "spec": {"recording": {}, "approval": "Once"}}
        await self.admin.create(POLICIES, body, "default")
        requests = kinds.CONSOLEREQUESTS.resource
        asked = {"metadata": {"name": "r"}, "spec": {"machine": "vm", "reason": "OPS-1"}}
        await self.client("jane").create(requests, asked, "default")
        approved = {"status": {"approved": True}}
        await self.admin.patch(requests, "r", approved, "default", subresource="approval")
        await self.open(user="jane", query=STDIN)
        (recording,) = await self.recordings()
        self.assertEqual(recording["spec"]["reason"], "OPS-1")
        self.assertEqual(self.audit[-1]["declared_reason"], "OPS-1")
        headers = self.poollet_.requests[-1][2]
        self.assertEqual(headers["x-twisted-exec-reason"], ["OPS-1"])

    async def test_wish(self) -> None:
        """A user asks for a recording: in the query, or in the command for stock kubectl."""
        await self.open(user="jane", query=f"{STDIN}&record=all")
        self.assertIn("/all", self.term())
        words = "".join(f"&command={quote(word)}" for word in ("console", "--record=none"))
        await self.open(user="jane", path=f"{POD}/exec", query=STDIN + words)
        self.assertIn("/none", self.term())
        made = sorted(each["spec"]["input"] for each in await self.recordings())
        self.assertEqual(made, ["all", "none"])
        message = await self.refused(400, user="jane", query=f"{STDIN}&record=some")
        self.assertIn('a recording has the input none, masked or all, not "some"', message)

    async def test_no_right(self) -> None:
        """A user who may not create recordings cannot ask for one; a policy can."""
        await self.admin.create(BINDINGS, binding("eve", "console-observer"), "default")
        message = await self.refused(403, user="eve", query="?stdout=true&record=")
        self.assertIn("consolerecordings", message)
        await self.make_policy()
        await self.open(user="eve", query="?stdout=true")
        self.assertTrue(self.term())

    async def test_unrecorded(self) -> None:
        """Nothing is recorded of a session that needs none."""
        await self.open(user="jane", query=STDIN)
        self.assertEqual((self.term(), await self.recordings()), ("", []))
