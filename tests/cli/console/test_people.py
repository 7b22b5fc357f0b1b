"""
Tests for :mod:`twisted_exec.cli.console.people`, in a session, and for messages between users.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.cli.console.test_outage import OutageCase, ResumableStream
from twisted_exec.api import times
from twisted_exec.api.dialects import IRONCORE
from twisted_exec.api.status import APIError, Forbidden, ServiceUnavailable, from_code
from twisted_exec.cli.console import people as people_module
from twisted_exec.cli.console.menu import MachineAccess
from twisted_exec.cli.console.people import (
    ATTEMPTS,
    MOST_TOLD,
    NOT_LISTED,
    Company,
    Person,
    names_of,
    people_at,
)
from twisted_exec.kube.kubeconfig.client_config import ClientConfig
from twisted_exec.wire.marks import Attendance
from twisted_exec.wire.resize import Message

ADA, BOB, EVE = Person("ada", is_own=True), Person("bob"), Person("eve")


class ServedPeople:
    """An API server's list of sessions."""

    def __init__(self, *items: dict[str, Any]) -> None:
        self.items, self.asked = items, ""

    def list(self, resource: Any, namespace: str, *, field_selector: str, trim: Any) -> Any:
        self.asked = f"{resource.plural} {namespace} {field_selector}"
        return succeed({"items": [trim(each) for each in self.items]})


class ServedAccess(MachineAccess):
    """Access to the machine ``a``."""

    served: ServedPeople

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Any]:
        yield self.served


def timed(user: str, seconds: float) -> Person:
    return Person(user, seconds=seconds)


class NamesTests(SynchronousTestCase):
    """The users at a console."""

    def listed(
        self, *sessions: dict[str, Any], served: ServedPeople | None = None
    ) -> Sequence[Person]:
        """The people that a server lists a minute after the year has begun."""
        access = ServedAccess(ClientConfig("https://x", namespace="ns"), IRONCORE, "a", "", Clock())
        object.__setattr__(access, "served", served or ServedPeople(*sessions))
        self.patch(people_module.time, "time", lambda: times.seconds("2026-01-01T00:01:00Z"))
        return self.successResultOf(Deferred.fromCoroutine(people_at(access, "s1")))

    def test_list(self) -> None:
        """The sessions at this machine are listed; another kind of machine may have the same name."""
        served = ServedPeople(
            {
                "spec": {
                    "user": "ada",
                    "session": "s1",
                    "machineResource": "machines.compute.ironcore.dev",
                }
            },
            {
                "spec": {"user": "bob", "session": "s2"},
                "status": {"awaySince": "2026-01-01T00:00:00Z"},
            },
            {"spec": {"user": "eve", "session": "s3", "machineResource": "instances.example.com"}},
            {},
        )
        people = self.listed(served=served)
        self.assertEqual(served.asked, "consolesessions ns spec.machine=a")
        self.assertEqual(people, [ADA, Person("bob", is_lost=True, seconds=60.0), Person("")])

    def test_check(self) -> None:
        """A session of the doctor is a check of its user, and no person who watches."""
        spec = {"user": "bob\n", "session": "s2", "agent": "twisted-exec doctor"}
        (check,) = self.listed({"spec": spec})
        self.assertEqual(names_of([ADA, BOB, check]), "ada (you), bob, twisted-exec doctor of bob?")

    def test_times(self) -> None:
        """A session counts from its begin; the clock of another host, which may be ahead, makes no negative times."""
        for moment, seconds in (
            ("2026-01-01T00:00:30Z", 30.0),
            ("2026-01-01T00:02:00Z", 0.0),
            ("yesterday", None),
        ):
            session = {"metadata": {"creationTimestamp": moment}, "spec": {"user": "ada"}}
            (person,) = self.listed(session)
            self.assertEqual(person.seconds, seconds)

    def test_names(self) -> None:
        """Each user is named once, the own first, those whose connections are lost last."""
        lost = Person("ada", is_lost=True)
        for people, names in (
            ([], ""),
            ([BOB, ADA], "ada (you), bob"),
            ([BOB, EVE, BOB, ADA, Person("ada")], "ada (you, 2), bob (2), eve"),
            (
                [ADA, lost, lost, Person("bob", is_lost=True)],
                "ada (you), ada (lost, 2), bob (lost)",
            ),
            ([Person("x\x1b[31m\u202e"), Person("")], "somebody, x?[31m?"),
        ):
            self.assertEqual(names_of(people), names)
        for people, names in (
            ([EVE, timed("ada", 7), timed("ada", 300)], "ada (2, for 5 min 0 s), eve"),
            ([Person("ada", is_own=True, seconds=0)], "ada (you)"),
            ([Person("ada", is_lost=True, seconds=90)], "ada (lost, for 1 min 30 s)"),
            ([timed("ada", 7), Person("ada")], "ada (2, for 7 s)"),
        ):
            self.assertEqual(names_of(people), names)
        many = names_of(Person(f"u{number:04}") for number in range(1000))
        self.assertTrue(many.endswith("u0011, and 988 more"), many)


class CompanyCase(SynchronousTestCase):
    """A console whose people the test sets."""

    def setUp(self) -> None:
        self.clock, self.said, self.looks = Clock(), [], 0
        self.people: Sequence[Person] | APIError = [ADA]
        self.company = Company(self.clock, self.look, self.said.append, jitter=lambda: 0.0)
        self.arrive(ADA)

    async def look(self) -> Sequence[Person]:
        self.looks += 1
        if isinstance(self.people, APIError):
            raise self.people
        return self.people

    def arrive(self, *people: Person) -> list[str]:
        """Let these people be at the console; return what the user reads."""
        self.people = people
        return self.change(len(people))

    def change(self, count: int, lost: int = 0) -> list[str]:
        """Let the server tell so many sessions, with those whose connections are lost."""
        self.said.clear()
        self.company.changed(Attendance(count, lost=lost))
        self.clock.pump([0.7] * 8)
        return list(self.said)


class CompanyTests(CompanyCase):
    """Who joins and leaves."""

    def test_names(self) -> None:
        """A user who joins or leaves is named; the users at the beginning are not."""
        self.assertEqual(self.arrive(ADA, BOB), ["bob has joined"])
        self.assertEqual(self.arrive(ADA, BOB, EVE), ["eve has joined"])
        self.assertEqual(self.arrive(ADA), ["bob and eve have left"])
        crowd = [Person(f"u{number}") for number in range(6)]
        self.assertEqual(self.arrive(ADA, *crowd), ["u0, u1, u2 and 3 more have joined"])
        self.assertEqual(self.arrive(ADA, BOB), ["bob has joined; u0, u1, u2 and 3 more have left"])

    def test_early(self) -> None:
        """A user who joins before the first look is named, if nobody else was there before."""
        for count, said in ((1, ["bob has joined"]), (2, [])):
            self.company = Company(self.clock, self.look, self.said.append, jitter=lambda: 0.0)
            self.company.changed(Attendance(count))
            self.assertEqual(self.arrive(ADA, BOB), said)

    def test_sessions(self) -> None:
        """More sessions of a user who is here are no news, unless it is the user's own name."""
        self.arrive(ADA, BOB)
        self.assertEqual(self.arrive(ADA, BOB, BOB), [])
        self.assertEqual(
            self.arrive(ADA, BOB, BOB, Person("ada")), ["another session of yours has joined"]
        )

    def test_lost(self) -> None:
        """A loss and a return are neither: the session goes on."""
        self.arrive(ADA, BOB)
        self.assertEqual(self.arrive(ADA, Person("bob", is_lost=True)), [])
        self.assertEqual(self.arrive(ADA, BOB), [])

    def test_lost_before(self) -> None:
        """
        A session that is lost has not joined: the list may have it longer than the console. It has
        joined when it is back, and leaves in silence if the user has not read of it.
        """
        lost = Person("admin", is_lost=True)
        self.people = [ADA, BOB, lost]
        self.assertEqual(self.change(2), ["bob has joined"])
        self.people = [ADA, BOB, EVE]
        self.assertEqual(self.change(3), ["eve has joined"])
        self.assertEqual(self.arrive(ADA, BOB, EVE, lost), [])
        self.assertEqual(
            self.arrive(ADA, BOB, EVE, Person("admin"), Person("u")), ["admin and u have joined"]
        )
        self.assertEqual(self.arrive(ADA, BOB, EVE, lost), ["u has left"])
        self.assertEqual(self.arrive(ADA, BOB, EVE), ["admin has left"])

    def test_lost_own(self) -> None:
        """Nor is a lost session of the user another one that has joined."""
        self.assertEqual(self.arrive(ADA, Person("ada", is_lost=True)), [])

    def test_late_list(self) -> None:
        """The list is asked again until it has as many sessions as there are, but not for ever."""
        self.looks = 0
        self.company.changed(Attendance(2))
        self.clock.advance(0.7)
        self.assertEqual((self.said, self.looks), ([], 1))
        self.people = [ADA, BOB]
        self.clock.advance(0.7)
        self.assertEqual((self.said, self.looks), (["bob has joined"], 2))
        self.looks = 0
        self.assertEqual(self.change(3), [])
        self.assertEqual(self.looks, ATTEMPTS)

    def test_no_names(self) -> None:
        """A user without the right to list sessions reads numbers."""
        self.people = Forbidden("no")
        self.assertEqual(self.change(2), ["somebody has joined (2 sessions)"])
        self.assertEqual(self.change(1), ["somebody has left (1 session)"])
        self.people = ServiceUnavailable("later")
        self.assertEqual(self.change(3), ["somebody has joined (3 sessions)"])
        self.assertEqual(self.change(3, lost=2), [])
        self.assertEqual(self.change(4, lost=2), ["somebody has joined (2 sessions, 2 lost)"])
        self.assertEqual(self.change(3, lost=2), ["somebody has left (1 session, 2 lost)"])

    def test_outage(self) -> None:
        """
        A user who reads names reads no numbers while the server does not answer; the names follow
        with the next number.
        """
        self.arrive(ADA, BOB, EVE)
        self.people = ServiceUnavailable("later")
        self.assertEqual(self.change(2), [])
        self.assertEqual(self.change(3), [])
        self.assertEqual(self.change(2), [])
        self.assertEqual(self.arrive(ADA, BOB), ["eve has left"])
        self.people = ServiceUnavailable("later")
        self.company.changed(Attendance(3))
        self.clock.advance(0.7)
        self.people = [ADA, BOB, EVE]
        self.clock.advance(0.7)
        self.assertEqual(self.said, ["eve has left", "eve has joined"])

    def test_outage_of_new_user(self) -> None:
        """As long as no answer says otherwise, a user is expected to read names."""
        self.people = ServiceUnavailable("later")
        self.assertEqual(self.change(2), [])
        self.assertEqual(self.arrive(ADA, BOB), ["bob has joined"])

    def test_crowd(self) -> None:
        """At a console with very many sessions no client lists them for each change."""
        self.looks = 0
        for count in (MOST_TOLD + 1, MOST_TOLD + 2, 5000, MOST_TOLD + 1):
            self.assertEqual(self.change(count), [])
        self.assertEqual(self.looks, 0)
        self.assertEqual(self.arrive(ADA, BOB), [])
        self.assertEqual(self.arrive(ADA, BOB, EVE), ["eve has joined"])

    def test_heard(self) -> None:
        """What a notice has said about a user is not said again."""
        for notice in (
            "bob has left; this console has no writer (~f or --force takes over)",
            "you are the writer of this console again; bob has left",
        ):
            self.arrive(ADA, BOB)
            self.company.heard(notice)
            self.assertEqual(self.arrive(ADA), [], notice)

    def test_strange_name(self) -> None:
        """A name cannot carry control characters."""
        self.assertEqual(self.arrive(ADA, Person("x\x1b]0;t\x07")), ["x?]0;t? has joined"])

    def test_stop(self) -> None:
        """Nothing is left of a session that ends meanwhile."""
        self.company.changed(Attendance(2))
        self.company.stop()
        self.assertEqual(self.clock.getDelayedCalls(), [])


class SaidStream(ResumableStream):
    """A stream that records messages."""

    def say(self, message: Message) -> None:
        self.told.append(message)


class PeopleCase(OutageCase):
    """A session at a terminal with a server that lists sessions."""

    def open(self, **more: Any) -> SaidStream:
        self.listing: Any = [ADA, BOB]
        self.sessions: list[str] = []

        async def people(session: str) -> Any:
            self.sessions.append(session)
            return await (succeed(self.listing) if isinstance(self.listing, list) else self.listing)

        self.drawn = b""
        settings: dict[str, Any] = {
            "act": self.fail,
            "draw": self.draw,
            "shows_more": True,
            "tells_company": True,
            "people": people,
            **more,
        }
        self.begin(**settings)
        stream = SaidStream()
        stream.attendance = Attendance(2, message_characters=200)
        self.session.attached(stream)
        return stream

    def draw(self, data: bytes) -> None:
        self.drawn += data

    def status(self) -> list[str]:
        self.said.clear()
        self.session.typed(b"~s")
        return self.said[0].split("\n") if self.said else []


class SessionTests(PeopleCase):
    """People in a session."""

    def test_status(self) -> None:
        """``~s`` names the viewers, with the ids of the session that looks."""
        self.open()
        self.assertIn("  viewers     2: ada (you), bob", self.status())
        self.assertEqual(self.sessions, ["3f2a"])

    def test_status_without_the_right(self) -> None:
        """RBAC decides: other users read the number, and why."""
        self.open()
        self.listing = fail(from_code(403, "no"))
        self.assertIn(f"  viewers     2: {NOT_LISTED}", self.status())
        self.listing = fail(ServiceUnavailable("no"))
        self.assertIn("  viewers     2", self.status())

    def test_slow_server(self) -> None:
        """The status waits a second for the names, and never during an outage."""
        self.open()
        self.listing = Deferred()
        self.assertEqual(self.status(), [])
        self.clock.advance(1)
        self.assertIn("  viewers     2", self.said[0].split("\n"))
        self.session.outage("gone")
        self.assertIn("  viewers     2", self.status())

    def test_left(self) -> None:
        """A user who leaves meanwhile reads nothing more."""
        self.open()
        self.listing = Deferred()
        self.status()
        self.session.typed(b"\x1d")
        self.clock.advance(10)
        self.assertEqual((self.said, self.clock.getDelayedCalls()), ([], []))

    def test_company(self) -> None:
        """A line says who joins; with --no-presence, --quiet or without a terminal there is none."""
        for more, lines in (
            ({}, ["[twisted-exec: bob has joined]"]),
            ({"tells_company": False}, []),
            ({"quiet": True}, []),
            ({"interactive": False}, []),
            ({"shows_more": False}, []),
            ({"people": None}, []),
        ):
            self.open(**more)
            self.listing = [ADA]
            self.session.attendance_changed(Attendance(1))
            self.clock.advance(1.5)
            self.listing = [ADA, BOB]
            self.session.attendance_changed(Attendance(2))
            self.clock.advance(1.5)
            self.assertEqual(self.said, lines, more)
