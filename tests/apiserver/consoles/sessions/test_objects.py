"""
Tests for :mod:`twisted_exec.apiserver.consoles.sessions.objects` and its pace of writes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from twisted.internet.defer import Deferred, fail
from twisted.logger import capturedLogs
from twisted.trial.unittest import SynchronousTestCase

from tests.apiserver.consoles.support import LEASE_SECONDS, Carried, ObjectsCase
from tests.apiserver.support import EPOCH
from tests.streaming.session_streams import StreamDouble
from twisted_exec.api import kinds, strategy
from twisted_exec.api.conditions import CONSOLE_IN_USE, console_in_use, with_conditions
from twisted_exec.api.kinds import Object
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import Forbidden
from twisted_exec.api.times import seconds
from twisted_exec.apiserver.consoles.sessions.foreign import RENEW_SECONDS
from twisted_exec.apiserver.consoles.sessions.objects import (
    CREATE_SECONDS,
    LOOK_SECONDS,
    NOT_SHOWN,
    REMOVAL_PAUSE_SECONDS,
    REMOVALS_AT_ONCE,
    REMOVALS_PER_SECOND,
    SessionState,
    Step,
    plan,
)
from twisted_exec.streaming.interfaces import SESSION_DELETED
from twisted_exec.streaming.sessions.registry import Sessions, StreamRequest
from twisted_exec.streaming.subject import Subject
from twisted_exec.wire.resume import UNCONFIRMED_SECONDS
from twisted_exec.wire.stream_options import StreamOptions

RESUMABLE_SECONDS = 60


class PlanTests(SynchronousTestCase):
    """Tests for :func:`plan`."""

    def test_steps(self) -> None:
        """The step follows from the session and its object."""
        state = SessionState(
            is_live=True, is_away_too_long=False, has_object=True, is_stale=False, is_due=False
        )
        for changes, step in (
            ({}, Step.WAIT),
            ({"has_object": False}, Step.CREATE),
            ({"has_object": False, "is_stale": True, "is_due": True}, Step.CREATE),
            ({"is_stale": True}, Step.RENEW),
            ({"is_due": True}, Step.RENEW),
            ({"is_away_too_long": True, "is_due": True}, Step.END),
            ({"is_away_too_long": True, "has_object": False}, Step.END),
            ({"is_live": False, "is_stale": True}, Step.REMOVE),
            ({"is_live": False, "has_object": False, "is_away_too_long": True}, Step.FORGET),
        ):
            self.assertIs(plan(replace(state, **changes)), step, changes)


class LifeTests(ObjectsCase):
    """An object lives as long as its session."""

    def test_facts(self) -> None:
        """User, machine, client address, protocol, start, and server."""
        self.begin()
        (obj,) = self.stored()
        self.assertRegex(obj["metadata"]["name"], r"\Avm-[a-z0-9]{5}\Z")
        self.assertEqual(obj["metadata"]["namespace"], "default")
        self.assertEqual(seconds(obj["metadata"]["creationTimestamp"]), EPOCH)
        self.assertEqual(
            obj["spec"],
            {
                "session": "s-1",
                "user": "bob",
                "machine": "vm",
                "machineResource": "machines.compute.ironcore.dev",
                "machineUID": "u-1",
                "pool": "pool-a",
                "mode": "Drive",
                "via": "machines/exec",
                "address": "192.0.2.7",
                "protocol": "websocket v5.channel.k8s.io",
                "agent": "kubectl/v1.33",
                "replica": "one",
            },
        )

    def test_agent(self) -> None:
        """Of a client's name only its first bytes are shown, as text on one line."""
        agent = b"k\xff\r\nm\xc3\xbc" + b"x" * 200
        carried = Carried(self.sessions, agent=agent.decode("latin-1"))
        carried.begin()
        self.clock.advance(CREATE_SECONDS)
        self.assertEqual(self.stored()[0]["spec"]["agent"], "k\ufffd m\xfc" + "x" * 121)

    def test_sound(self) -> None:
        """Written objects are valid, and have no unknown fields."""
        self.begin(caller="front")
        (obj,) = self.stored()
        self.assertEqual(strategy.unknown_fields(kinds.CONSOLESESSIONS, obj), [])
        body = {**obj, "metadata": {"name": obj["metadata"]["name"]}}
        made = strategy.for_create(
            kinds.CONSOLESESSIONS, body, namespace="default", now=self.clock.seconds()
        )
        made["metadata"]["uid"] = obj["metadata"]["uid"]
        made["metadata"]["resourceVersion"] = obj["metadata"]["resourceVersion"]
        self.assertEqual(made, obj)

    def test_roles(self) -> None:
        """The role follows the condition of the machine, and is unknown without one."""

        def roles() -> list[str | None]:
            stored = sorted(self.stored(), key=lambda each: str(each["spec"]["session"]))
            return [each["status"].get("role") for each in stored]

        self.begin(1)
        machine = self.make_machine()
        self.assertEqual(roles(), [None])
        machine = self.set_writers(machine, ["s-1"])
        self.begin(2)
        self.assertEqual(roles(), ["Writer", "Observer"])
        machine = self.set_writers(machine, ["s-2"])
        self.assertEqual(roles(), ["Observer", "Writer"])
        machine = self.set_writers(machine, [])
        self.assertEqual(roles(), ["Observer", "Observer"])
        writes = self.storage.writes
        machine = self.set_writers(machine, [])
        self.assertEqual(self.storage.writes, writes + 1, "only the machine itself was written")
        self.set_writers(machine, None)
        self.assertEqual(roles(), [None, None])

    def test_role_of_a_deleted_object(self) -> None:
        """A role that cannot be written is not written again and again."""
        machine = self.make_machine()
        self.begin(1)
        (record,) = self.records()
        assert record.stored is not None
        stale = {**record.stored["metadata"], "resourceVersion": "1"}
        record.stored = {**record.stored, "metadata": stale}
        writes = self.storage.writes
        self.set_writers(machine, ["s-1"])
        self.assertEqual(self.storage.writes, writes + 2)

    def make_machine(self) -> Object:
        resource = kinds.MACHINES.resource
        head = {"apiVersion": resource.api_version, "kind": resource.kind}
        metadata = {"name": "vm", "namespace": "default", "uid": "u-1"}
        machine = {**head, "metadata": metadata, "spec": {}, "status": {}}
        return self.successResultOf(self.storage.create(resource, machine))

    def set_writers(self, machine: Object, writers: list[str] | None) -> Object:
        conditions = {} if writers is None else {CONSOLE_IN_USE: console_in_use(writers)}
        status = {"conditions": with_conditions([], conditions, "t")}
        updated = {**machine, "status": {**status, "observedGeneration": self.storage.writes}}
        return self.successResultOf(self.storage.update(kinds.MACHINES.resource, updated))

    def test_modes(self) -> None:
        """The mode follows the request; a forced session without input only watches."""
        for asked, mode in (
            (StreamOptions(), "Drive"),
            (StreamOptions(force=True), "TakeOver"),
            (StreamOptions(read_only=True, force=True), "Watch"),
        ):
            carried = Carried(self.sessions)
            carried.session.request = StreamRequest(options=asked)
            carried.begin()
            self.clock.advance(CREATE_SECONDS)
            self.assertEqual(self.stored()[0]["spec"]["mode"], mode)
            carried.over()

    def test_end(self) -> None:
        """The end of a session deletes its object, but no other object."""
        one, two = self.begin(1), self.begin(2)
        one.over()
        self.assertEqual([each["spec"]["session"] for each in self.stored()], ["s-2"])
        two.over()
        self.assertEqual(self.stored(), [])
        self.assertEqual(self.kept(), 0)

    def test_many_ends(self) -> None:
        """When many sessions end at once, their objects are deleted little by little."""
        for carried in self.begin_many():
            carried.over()
        self.clock.advance(REMOVAL_PAUSE_SECONDS)
        self.assertEqual(len(self.stored()), 30)
        self.clock.advance(10.5 / REMOVALS_PER_SECOND)
        self.assertEqual(len(self.stored()), 20)
        self.pass_time(LOOK_SECONDS)
        self.assertEqual((self.stored(), self.kept()), ([], 0))
        for carried in self.begin_many():
            carried.over()
        self.objects.stopService()
        self.assertEqual(self.stored(), [], "a server that stops does not wait")

    def test_steady_ends(self) -> None:
        """While sessions end for a second, few objects are deleted: ending the others comes first."""
        many = self.begin_many()
        for carried in many:
            carried.over()
            self.clock.advance(REMOVAL_PAUSE_SECONDS / len(many))
        deleted = len(many) - len(self.stored())
        self.assertLessEqual(deleted, 2 * REMOVALS_AT_ONCE + 1)
        self.assertGreater(deleted, REMOVALS_AT_ONCE)

    def begin_many(self) -> list[Carried]:
        return [self.begin(number) for number in range(REMOVALS_AT_ONCE + 30)]

    def test_short(self) -> None:
        """A session of a script that ends at once costs the store nothing."""
        before = self.storage.writes
        carried = Carried(self.sessions).begin()
        self.clock.advance(CREATE_SECONDS / 2)
        carried.over()
        self.pass_time(60)
        self.assertEqual((self.storage.writes, self.kept()), (before, 0))

    def test_not_every_session(self) -> None:
        """Refused requests have no object, and neither have logs."""
        refused = Carried(self.sessions)
        refused.session.over("no", code=502)
        self.begin(2, subresource="log")
        self.assertEqual(self.stored(), [])

    def test_session_does_not_wait(self) -> None:
        """While the store hesitates the session is up; one that ends meanwhile leaves nothing."""
        self.storage.hold = True
        one, two = self.begin(1), self.begin(2)
        one.over()
        self.assertEqual(self.stored(), [])
        self.storage.go()
        self.assertEqual([each["spec"]["session"] for each in self.stored()], ["s-2"])
        two.over()
        self.assertEqual(self.stored(), [])
        self.assertEqual(self.kept(), 0)

    def test_store_that_cannot_write(self) -> None:
        """Sessions work while the store fails; open ones get their objects afterwards."""
        self.storage.broken = True
        one, _ = self.begin(1), self.begin(2)
        one.over()
        self.pass_time(60)
        self.storage.broken = False
        self.pass_time(LOOK_SECONDS)
        self.assertEqual([each["spec"]["session"] for each in self.stored()], ["s-2"])
        self.assertEqual([each.id for each in self.records()], ["s-2"])

    def test_full_namespace(self) -> None:
        """An Event of a machine tells users that the sessions of a namespace are not shown, once."""
        create = self.storage.create

        def refusing(resource: Resource, obj: Object) -> Deferred[Object]:
            if resource == kinds.CONSOLESESSIONS.resource:
                return fail(Forbidden("exceeded quota: namespace default"))
            return create(resource, obj)

        self.make_machine()
        refused = self.patch(self.storage, "create", refusing)
        for number in (1, 2):
            self.begin(number)
        self.clock.advance(LOOK_SECONDS)
        (event,) = self.successResultOf(self.storage.list(kinds.EVENTS.resource)).items
        self.assertEqual((event["reason"], event["count"]), (NOT_SHOWN, 1))
        self.assertEqual(event["involvedObject"]["name"], "vm")
        self.assertIn("exceeded quota", event["message"])
        refused.restore()
        self.clock.advance(LOOK_SECONDS)
        self.assertEqual(len(self.stored()), 2)

    def test_store_that_cannot_delete(self) -> None:
        """An object that could not be taken away is taken away later."""
        each = self.begin()
        self.storage.broken = True
        each.over()
        self.pass_time(30)
        self.storage.broken = False
        self.pass_time(LOOK_SECONDS)
        self.assertEqual((self.stored(), self.kept()), ([], 0))

    def test_renewed(self) -> None:
        """The status is written every 20 s, with the byte counts; not for each byte."""
        each = self.begin()
        before = self.storage.writes
        for count in range(12):
            each.counts = (count, count * 100)
            self.pass_time(LOOK_SECONDS)
        self.assertEqual(self.storage.writes - before, 60 / RENEW_SECONDS)
        status = self.stored()[0]["status"]
        self.assertEqual((status["bytesToMachine"], status["bytesToUser"]), (11, 1100))
        self.assertEqual(seconds(status["renewTime"]), EPOCH + 60)
        self.assertEqual(status["leaseDurationSeconds"], LEASE_SECONDS)

    def test_many(self) -> None:
        """With many sessions, each is renewed less often, with a longer lease: fewer writes."""
        for number in range(1000):
            self.begin(number)
        self.pass_time(RENEW_SECONDS)
        before = self.storage.writes
        self.pass_time(500)
        self.assertLessEqual(self.storage.writes - before, 500 * 20 + 1000)
        self.assertGreaterEqual(self.storage.writes - before, 500 * 20 - 1000)
        self.assertEqual(self.stored()[0]["status"]["leaseDurationSeconds"], 150)
        self.assertEqual(len(self.stored()), 1000)

    def test_stop(self) -> None:
        """A server that stops waits for the last objects to go, but not for ever."""
        self.storage.hold = True
        self.begin().over()
        stopping = self.objects.stopService()
        self.assertNoResult(stopping)
        self.storage.go()
        self.successResultOf(stopping)
        self.assertEqual(self.stored(), [])

    def test_stop_without_a_store(self) -> None:
        """The service stops even if the store does not answer."""
        self.storage.hold = True
        self.begin().over()
        stopping = self.objects.stopService()
        self.clock.advance(3)
        self.successResultOf(stopping)

    def test_stop_before_the_store(self) -> None:
        """Deletions that a closed store refuses after the stop are left to others, and not logged."""
        self.storage.hold = True
        self.begin().over()
        stopping = self.objects.stopService()
        self.clock.advance(3)
        self.successResultOf(stopping)
        with capturedLogs() as logs:
            self.storage.broken = True
            self.storage.go()
        self.assertEqual(logs, [])


class Resumable(Carried):
    """A session that its user can resume."""

    def begin(self) -> Resumable:
        self.session.resumable_seconds = RESUMABLE_SECONDS
        self.cuts = 0
        self.counts = (6, 0)  # the client has answered the runtime's ping
        self.session.carry(
            StreamDouble(
                self.endings.append, self.cut, lambda: self.counts, None, supersede=self.cut
            )
        )
        return self

    def cut(self) -> None:
        self.cuts += 1

    def lose(self) -> None:
        """The connection is lost."""
        self.session.over("client lost", is_lost=True)


class AwayTests(ObjectsCase):
    """Sessions whose connection was lost, and whose users may come back."""

    def resumable(self, number: int = 1, **more: Any) -> Resumable:
        resumable = Resumable(self.sessions, number, **more).begin()
        self.clock.advance(CREATE_SECONDS)
        return resumable

    def resume(self, number: int, resumes: int, sessions: Sessions | None = None) -> Resumable:
        """The user is back: the next hop resumes a session."""
        sessions = self.sessions if sessions is None else sessions
        resumed = Resumable.__new__(Resumable)
        resumed.endings, resumed.counts = [], (0, 0)
        facts = {
            "user": "bob",
            "namespace": "default",
            "machine": "vm",
            "uid": "u-1",
            "resource": "machines.compute.ironcore.dev",
            "address": "192.0.2.99",
        }
        subject = Subject(f"s-{number}", **facts)
        resumed.session = sessions.open(subject, resumes=f"s-{resumes}")
        return resumed

    def shown(self) -> list[tuple[str, float | None]]:
        """Return the session of each object, and since when its user is absent."""
        return [
            (
                each["spec"]["session"],
                seconds(each["status"]["awaySince"]) - EPOCH
                if "awaySince" in each["status"]
                else None,
            )
            for each in self.stored()
        ]

    def test_ordinary(self) -> None:
        """Other sessions are not resumable, and their objects go at once."""
        one = self.begin()
        self.assertIs(self.stored()[0]["status"]["resumable"], False)
        one.over()
        self.assertEqual(self.stored(), [])

    def test_left(self) -> None:
        """The object of a user who leaves goes at once."""
        one = self.resumable()
        self.assertIs(self.stored()[0]["status"]["resumable"], True)
        one.over()
        self.assertEqual((self.stored(), self.kept()), ([], 0))

    def test_away(self) -> None:
        """The object stays for as long as the user may come back, and says since when."""
        one = self.resumable()
        one.counts = (3, 70)
        self.clock.advance(5 - CREATE_SECONDS)
        one.lose()
        (obj,) = self.stored()
        self.assertEqual(seconds(obj["status"]["awaySince"]), EPOCH + 5)
        self.assertEqual(obj["status"]["bytesToUser"], 70)
        self.assertEqual(strategy.unknown_fields(kinds.CONSOLESESSIONS, obj), [])
        self.pass_time(RESUMABLE_SECONDS - LOOK_SECONDS)
        self.assertEqual(len(self.stored()), 1)
        self.pass_time(2 * LOOK_SECONDS)
        self.assertEqual((self.stored(), self.kept()), ([], 0))

    def test_back(self) -> None:
        """When the user is back the object goes on under its name, with the new connection."""
        one = self.resumable()
        one.counts = (3, 70)
        one.lose()
        (before,) = self.stored()
        self.clock.advance(3)
        two = self.resume(2, 1)
        self.assertEqual(self.shown(), [("s-1", 0)])
        two.begin()
        (after,) = self.stored()
        for key in ("name", "uid"):
            self.assertEqual(after["metadata"][key], before["metadata"][key])
        self.assertEqual(after["spec"]["address"], "192.0.2.99")
        self.assertEqual(self.shown(), [("s-2", None)])
        two.counts = (1, 2)
        self.pass_time(2 * RESUMABLE_SECONDS)
        (obj,) = self.stored()
        status = obj["status"]
        self.assertEqual((status["bytesToMachine"], status["bytesToUser"]), (4, 72))
        self.delete(obj["metadata"]["name"])
        self.assertEqual([each.reason for each in two.endings], [SESSION_DELETED])
        two.over()
        self.assertEqual((self.stored(), self.kept()), ([], 0))

    def test_again(self) -> None:
        """A session may be resumed any number of times."""
        one = self.resumable()
        for number in range(2, 6):
            one.counts = (1, 1)
            one.lose()
            one = self.resume(number, number - 1).begin()
        self.assertEqual(self.shown(), [("s-5", None)])
        self.pass_time(RENEW_SECONDS + LOOK_SECONDS)
        self.assertEqual(self.stored()[0]["status"]["bytesToUser"], 4)
        self.assertEqual([each.id for each in self.records()], ["s-5"])

    def test_before_the_loss_is_known(self) -> None:
        """The user may be back before this server knows that the connection was lost."""
        one = self.resumable()
        one.counts = (3, 70)
        two = self.resume(2, 1).begin()
        self.assertEqual(one.cuts, 1)
        one.lose()
        self.assertEqual(self.shown(), [("s-2", None)])
        self.assertEqual(self.stored()[0]["status"]["bytesToUser"], 70)
        two.over()
        self.assertEqual(self.stored(), [])

    def test_ended_while_it_is_resumed(self) -> None:
        """
        The machine's end may end the old connection before its answer to the new one arrives: the
        object waits for the answer.
        """
        one = self.resumable()
        (name,) = (each["metadata"]["name"] for each in self.stored())
        two = self.resume(2, 1)
        one.over()
        self.assertEqual(len(self.stored()), 1)
        two.begin()
        self.assertEqual([each["metadata"]["name"] for each in self.stored()], [name])
        self.assertEqual(self.shown(), [("s-2", None)])

    def test_another_user(self) -> None:
        """A session goes on only for its own user, and at its own machine."""
        one = self.resumable()
        one.lose()
        for number, facts in enumerate(({"user": "eve"}, {"uid": "u-2"}), 2):
            session = self.sessions.open(
                replace(one.session.subject, session=f"s-{number}", **facts), resumes="s-1"
            )
            session.carry(StreamDouble())
            self.clock.advance(CREATE_SECONDS)
        self.assertEqual(sorted(each for each, _ in self.shown()), ["s-1", "s-2", "s-3"])

    def test_resumable_subject(self) -> None:
        """A session is known for its own user, at its own machine, until it is over."""
        subject = replace(self.resumable(1).session.subject, session="s-9")
        session = self.sessions.open(subject)
        session.resumable_seconds = RESUMABLE_SECONDS
        session.carry(StreamDouble())
        session.over("client lost", is_lost=True)
        resumed = (
            ("s-9", "bob", "u-1"),
            ("s-9", "eve", "u-1"),
            ("s-9", "bob", "u-2"),
            ("", "bob", "u-1"),
        )
        expected = [session.subject, None, None, None]
        self.assertEqual([self.objects.resumable(*each) for each in resumed], expected)
        self.clock.advance(RESUMABLE_SECONDS)
        self.assertIsNone(self.objects.resumable(*resumed[0]))

    def test_too_late(self) -> None:
        """A user who is back at the last moment gets an object, be it another one."""
        self.storage.hold = False
        one = self.resumable()
        one.lose()
        self.clock.advance(RESUMABLE_SECONDS)
        self.assertEqual(self.stored(), [])
        self.resume(2, 1).begin()
        self.clock.advance(CREATE_SECONDS)
        self.assertEqual(self.shown(), [("s-2", None)])

    def test_short(self) -> None:
        """A connection that is lost at once has an object, too, since the session goes on."""
        Resumable(self.sessions).begin().lose()
        self.assertEqual(self.stored(), [])
        self.clock.advance(CREATE_SECONDS)
        self.assertEqual([each for each, _ in self.shown()], ["s-1"])

    def test_unconfirmed(self) -> None:
        """A client that left while its session opened has no key: the object waits as briefly as the runtime."""
        one = Resumable(self.sessions).begin()
        one.counts = (0, 70)
        self.clock.advance(CREATE_SECONDS)
        one.lose()
        self.assertEqual([each for each, _ in self.shown()], ["s-1"])
        self.pass_time(UNCONFIRMED_SECONDS)
        self.assertEqual((self.stored(), self.kept()), ([], 0))

    def test_confirmed_before(self) -> None:
        """A client that resumes has a key, also if it has sent nothing to this server."""
        others, _ = self.server("two")
        self.resumable().lose()
        two = self.resume(2, 1, others).begin()
        two.counts = (0, 70)
        self.clock.advance(CREATE_SECONDS)
        two.lose()
        self.pass_time(2 * UNCONFIRMED_SECONDS)
        self.assertEqual([each for each, _ in self.shown()], ["s-2"])

    def test_deleted(self) -> None:
        """A session that is deleted while its user is absent cannot be resumed at any server."""
        others, _ = self.server("two")
        one = self.resumable()
        one.lose()
        (name,) = (each["metadata"]["name"] for each in self.stored())
        self.delete(name)
        self.assertEqual((self.stored(), self.records()), ([], []))
        for sessions in (self.sessions, others):
            with self.assertRaises(Forbidden) as caught:
                self.resume(2, 1, sessions)
            message = f"ada deleted the console session {name}"
            self.assertEqual(caught.exception.message, message)
        self.pass_time(2 * RESUMABLE_SECONDS)
        self.assertEqual(self.stored(), [])

    def test_machine_deleted(self) -> None:
        """Nobody comes back to a machine that is gone."""
        resource = kinds.MACHINES.resource
        machine = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {"name": "vm", "namespace": "default", "uid": "u-1"},
            "spec": {},
        }
        made = self.successResultOf(self.storage.create(resource, machine))
        self.resumable().lose()
        self.assertEqual(len(self.stored()), 1)
        self.successResultOf(self.storage.delete(resource, made))
        self.assertEqual((self.stored(), self.kept()), ([], 0))

    def test_other_server(self) -> None:
        """At another server the session gets another object, and the former one is deleted."""
        others, _ = self.server("two")
        self.resumable().lose()
        self.resume(2, 1, others).begin()
        self.clock.advance(CREATE_SECONDS)
        self.assertEqual([each for each, _ in self.shown()], ["s-2"])
        self.pass_time(2 * LOOK_SECONDS)
        self.assertEqual([each["spec"]["replica"] for each in self.stored()], ["two"])
        self.assertEqual(self.records(), [])

    def test_faster_than_the_other_server(self) -> None:
        """A user may be back here before the other server knows of the loss; then there is one object, too."""
        others, objects = self.server("two")
        one = self.resumable()
        resumed = self.resume(2, 1, others).begin()
        self.clock.advance(CREATE_SECONDS)
        one.lose()
        self.clock.advance(CREATE_SECONDS)
        self.assertEqual([each["spec"]["replica"] for each in self.stored()], ["two"])
        resumed.over()
        self.assertEqual(self.kept(objects), 0)

    def test_stopped_server(self) -> None:
        """Objects of absent users outlive a server that stops, so that others delete or replace them."""
        others, objects = self.server("two")
        for number in (1, 2):
            self.resumable(number).lose()
        self.successResultOf(self.objects.stopService())
        self.assertEqual(sorted(each for each, _ in self.shown()), ["s-1", "s-2"])
        resumed = self.resume(3, 2, others).begin()
        self.clock.advance(CREATE_SECONDS)
        self.assertEqual(sorted(each for each, _ in self.shown()), ["s-1", "s-3"])
        self.pass_time(LEASE_SECONDS + LOOK_SECONDS)
        self.assertEqual([each for each, _ in self.shown()], ["s-3"])
        resumed.over()
        self.assertLessEqual(self.kept(objects), 0)

    def test_many(self) -> None:
        """When many connections are lost at once, the objects are written little by little."""
        many = [self.resumable(number) for number in range(REMOVALS_AT_ONCE + 30)]
        for each in many:
            each.lose()
        away = [away for _, away in self.shown() if away is not None]
        self.assertEqual(len(away), REMOVALS_AT_ONCE)
        self.pass_time(2 * LOOK_SECONDS)
        self.assertNotIn(None, [away for _, away in self.shown()])
        self.pass_time(RESUMABLE_SECONDS + 2 * LOOK_SECONDS)
        self.assertEqual((self.stored(), self.kept()), ([], 0))

    def test_store_that_cannot_write(self) -> None:
        """A loss that cannot be written is written later."""
        one = self.resumable()
        self.storage.broken = True
        one.lose()
        self.storage.broken = False
        self.assertEqual(self.shown(), [("s-1", None)])
        self.pass_time(RENEW_SECONDS + LOOK_SECONDS)
        self.assertEqual(self.shown(), [("s-1", 0)])
