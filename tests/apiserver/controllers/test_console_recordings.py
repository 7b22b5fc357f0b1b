"""
Tests for :mod:`twisted_exec.apiserver.controllers.console_recordings`.
"""

from __future__ import annotations

from typing import Any

from tests.apiserver.consoles.test_recording_rules import RECORDINGS, RecordingTestCase
from tests.apiserver.support import MACHINES
from twisted_exec.api.kinds import CONSOLERECORDINGS, CONSOLESESSIONS, Object
from twisted_exec.api.kinds.consolerecordings import state_of
from twisted_exec.api.times import timestamp
from twisted_exec.apiserver.controllers.console_recordings import NOT_ENDED
from twisted_exec.apiserver.controllers.expiry import EXPIRED_SECONDS, LOOK_SECONDS

DAY = 86_400


class ConsoleRecordingsTests(RecordingTestCase):
    """A machine with a recording that the server made for its sessions."""

    def make_shared(self) -> None:
        self.make_shared_as("r")

    def make_shared_as(self, name: str) -> None:
        made = self.make(name, "admin")
        joined = {"endsWithSessions": True, "lastSessionTime": timestamp(self.clock.seconds())}
        made["spec"] |= {**joined, "policies": ["p"]}
        self.successResultOf(self.storage.update(CONSOLERECORDINGS.resource, made))

    def make_session(self, name: str) -> Object:
        """A session at the machine, as an API server writes it."""
        resource = CONSOLESESSIONS.resource
        obj: Object = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {
                "name": name,
                "namespace": "default",
                "uid": name,
                "creationTimestamp": timestamp(self.clock.seconds()),
            },
            "spec": {"session": name, "machineUID": self.machine["metadata"]["uid"]},
            "status": {
                "renewTime": timestamp(self.clock.seconds()),
                "leaseDurationSeconds": 10 * DAY,
            },
        }
        made: Object = self.successResultOf(self.storage.create(resource, obj))
        return made

    def pass_time(self, duration: float) -> None:
        for _ in range(int(duration / LOOK_SECONDS)):
            self.clock.advance(LOOK_SECONDS)

    def state(self) -> str:
        return state_of(self.stored(CONSOLERECORDINGS, "r"))

    def report(self, **status: Any) -> None:
        path = f"{RECORDINGS}/r/status"
        self.answer("PATCH", path, {"status": status}, content_type="application/merge-patch+json")

    def test_last_session(self) -> None:
        """It goes on while there are sessions, and for a minute after the last one."""
        self.make_shared()
        sessions = [self.make_session(name) for name in ("s-1", "s-2")]
        self.pass_time(300)
        for session in sessions:
            self.assertEqual(self.state(), "Pending")
            self.clock.advance(1)
            self.successResultOf(self.storage.delete(CONSOLESESSIONS.resource, session))
            self.clock.advance(LOOK_SECONDS - 1)
        self.assertEqual(self.state(), "Pending")
        self.pass_time(LOOK_SECONDS)
        self.assertEqual(self.state(), "Ending")
        spec = self.stored(CONSOLERECORDINGS, "r")["spec"]
        self.assertTrue(spec["endedTime"])
        self.assertEqual(spec["endedReason"], "no session has been open for 60 seconds")

    def test_no_session(self) -> None:
        """It ends if the session for which it was made was never opened."""
        self.make_shared()
        self.pass_time(LOOK_SECONDS)
        self.assertEqual(self.state(), "Pending")
        self.pass_time(2 * LOOK_SECONDS)
        self.assertEqual(self.state(), "Ending")

    def test_not_closed(self) -> None:
        """If the runtime does not close it within five minutes, an Event says so, once."""
        self.make()
        self.answer("DELETE", f"{MACHINES}/vm-1")
        self.pass_time(5 * LOOK_SECONDS)
        self.assertEqual(self.events(), [])
        self.pass_time(600)
        (event,) = self.events()
        self.assertEqual((event["type"], event["count"]), ("Warning", 1))
        self.assertEqual(event["involvedObject"]["name"], "r")
        self.assertIn("has not closed it: nothing is proven about output after", event["message"])

    def events(self, reason: str = "RecordingNotClosed") -> list[Object]:
        items: list[Object] = self.answer("GET", "/api/v1/namespaces/default/events")["items"]
        return [each for each in items if each["reason"] == reason]

    def test_by_hand(self) -> None:
        """A recording of a user goes on without sessions, and ends with its machine."""
        self.make()
        self.pass_time(600)
        self.assertEqual(self.state(), "Pending")
        self.answer("DELETE", f"{MACHINES}/vm-1")
        self.pass_time(LOOK_SECONDS)
        self.assertEqual(self.state(), "Ending")
        spec = self.stored(CONSOLERECORDINGS, "r")["spec"]
        self.assertEqual(spec["endedReason"], "the machine was deleted")

    def test_retention(self) -> None:
        """It is deleted after its retention, also if a policy required it."""
        self.make_shared()
        self.report(phase="Closed", endTime=timestamp(self.clock.seconds()))
        self.clock.advance(30 * DAY - LOOK_SECONDS)
        self.pass_time(LOOK_SECONDS)
        self.assertEqual(self.state(), "Closed")
        self.pass_time(EXPIRED_SECONDS + 2 * LOOK_SECONDS)
        self.refused(404, "GET", f"{RECORDINGS}/r")

    def test_no_end(self) -> None:
        """A recording that goes on has no end of its retention; one that never closes has."""
        self.make(retentionDays=1)
        self.pass_time(2 * DAY)
        self.assertEqual(self.state(), "Pending")
        self.patch({"spec": {"ended": True}})
        self.pass_time(DAY + EXPIRED_SECONDS + 2 * LOOK_SECONDS)
        self.refused(404, "GET", f"{RECORDINGS}/r")

    def test_broken(self) -> None:
        """A recording that cannot be understood has an Event, and holds up no other."""
        for name in ("q", "r"):
            self.make_shared_as(name)
        broken = self.stored(CONSOLERECORDINGS, "q")
        broken["spec"]["lastSessionTime"] = "yesterday"
        self.successResultOf(self.storage.update(CONSOLERECORDINGS.resource, broken))
        self.pass_time(3 * LOOK_SECONDS)
        self.assertEqual(self.state(), "Ending")
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)
        (event,) = self.events(NOT_ENDED)
        self.assertEqual((event["involvedObject"]["name"], event["count"]), ("q", 1))
        self.assertIn("its log says more", event["message"])
