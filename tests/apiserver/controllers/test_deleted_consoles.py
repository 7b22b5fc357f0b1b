"""
Tests for :mod:`twisted_exec.apiserver.controllers.deleted_consoles`.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred, fail

from tests.apiserver.support import EPOCH, EVENTS, MACHINES, MERGE, APITestCase
from twisted_exec.api.dialects import IRONCORE
from twisted_exec.api.kinds import DELETEDCONSOLES, Object
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import Forbidden
from twisted_exec.api.times import seconds
from twisted_exec.apiserver.controllers.deleted_consoles import NOT_KEPT, DeletedConsoles
from twisted_exec.apiserver.controllers.expiry import EXPIRED_SECONDS, LOOK_SECONDS
from twisted_exec.apiserver.serving.target import RequestTarget
from twisted_exec.apiserver.serving.verbs import Verbs

GROUP = "/apis/console.twisted-exec.dev/v1alpha1"
CONSOLES = f"{GROUP}/namespaces/default/deletedconsoles"
DAY = 86_400


class DeletedConsolesTests(APITestCase):
    """An API server whose machines are deleted."""

    def consoles(self) -> list[Object]:
        items: list[Object] = self.answer("GET", CONSOLES)["items"]
        return items

    def make_held(self) -> None:
        """A machine that waits for its poollet before it goes."""
        self.make_machine("vm")
        patch = {"metadata": {"finalizers": ["example.com/poollet"]}}
        self.answer("PATCH", f"{MACHINES}/vm", patch, content_type=MERGE)

    def pass_time(self, duration: float) -> None:
        for _ in range(int(duration / LOOK_SECONDS)):
            self.clock.advance(LOOK_SECONDS)

    def test_deleted(self) -> None:
        """A deleted machine leaves its name, UID, pool and the time."""
        machine = self.make_machine("vm")
        self.assertEqual(self.consoles(), [])
        self.answer("DELETE", f"{MACHINES}/vm")
        (console,) = self.consoles()
        uid = machine["metadata"]["uid"]
        self.assertEqual(console["metadata"]["name"], f"vm-{uid[:8]}")
        spec = console["spec"]
        self.assertEqual(
            (spec["machine"], spec["machineUID"], spec["pool"], spec["machineResource"]),
            ("vm", uid, "pool-a", "machines.compute.ironcore.dev"),
        )
        self.assertEqual(seconds(spec["deletionTime"]), EPOCH)
        self.assertEqual(seconds(spec["expirationTime"]), EPOCH + 7 * DAY)

    def test_waits_for_its_poollet(self) -> None:
        """The object exists as soon as the deletion begins, and only once."""
        self.make_held()
        self.answer("DELETE", f"{MACHINES}/vm")
        self.assertEqual(len(self.consoles()), 1)
        patch = {"metadata": {"finalizers": None}}
        self.answer("PATCH", f"{MACHINES}/vm", patch, content_type=MERGE)
        self.refused(404, "GET", f"{MACHINES}/vm")
        self.assertEqual(len(self.consoles()), 1)

    def test_same_name(self) -> None:
        """Each machine of a name has an object of its own."""
        for _ in range(2):
            self.make_machine("vm")
            self.answer("DELETE", f"{MACHINES}/vm")
        self.assertEqual(len({each["spec"]["machineUID"] for each in self.consoles()}), 2)

    def test_without_a_pool(self) -> None:
        """A machine that never had a pool has printed nothing."""
        self.make_machine("vm", pool="")
        self.answer("DELETE", f"{MACHINES}/vm")
        self.assertEqual(self.consoles(), [])

    def test_expires(self) -> None:
        """The object is deleted after seven days; a clock that is wrong for a while deletes nothing."""
        self.make_machine("vm")
        self.answer("DELETE", f"{MACHINES}/vm")
        self.pass_time(7 * DAY)
        self.assertEqual(len(self.consoles()), 1)
        self.pass_time(EXPIRED_SECONDS + 2 * LOOK_SECONDS)
        self.assertEqual(self.consoles(), [])

    def test_only_read_and_deleted(self) -> None:
        """Nobody creates or changes one; whoever may, deletes it."""
        self.make_machine("vm")
        self.answer("DELETE", f"{MACHINES}/vm")
        (console,) = self.consoles()
        path = f"{CONSOLES}/{console['metadata']['name']}"
        told = self.refused(405, "POST", CONSOLES, console)
        self.assertIn("the server creates them when machines are deleted", told)
        self.refused(405, "PATCH", path, {}, content_type=MERGE)
        self.answer("DELETE", path)
        self.assertEqual(self.consoles(), [])

    def test_selected(self) -> None:
        """Users find them by the name of the machine."""
        for name in ("a", "b"):
            self.make_machine(name)
            self.answer("DELETE", f"{MACHINES}/{name}")
        listed = self.answer("GET", f"{CONSOLES}?fieldSelector=spec.machine%3Da")["items"]
        self.assertEqual([each["spec"]["machine"] for each in listed], ["a"])

    def controller(self, **more: Any) -> DeletedConsoles:
        """Another controller over the same store."""
        verbs = Verbs(self.storage, [], self.clock.seconds)
        made = DeletedConsoles(
            [IRONCORE], self.storage, verbs, self.clock, self.clock.seconds, **more
        )
        made.startService()
        self.addCleanup(lambda: made.running and made.stopService())
        return made

    def test_most(self) -> None:
        """Beyond a number the oldest are deleted early."""
        for name in ("a", "b", "c"):
            self.make_machine(name)
            self.answer("DELETE", f"{MACHINES}/{name}")
            self.clock.advance(1)
        self.controller(most_objects=2)
        self.pass_time(LOOK_SECONDS)
        self.assertEqual([each["spec"]["machine"] for each in self.consoles()], ["b", "c"])

    def test_missed(self) -> None:
        """A server that starts finds the machines whose deletion began before."""
        self.make_held()
        self.answer("DELETE", f"{MACHINES}/vm")
        (console,) = self.consoles()
        self.successResultOf(self.storage.delete(DELETEDCONSOLES.resource, console))
        self.controller()
        self.assertEqual(len(self.consoles()), 1)

    def test_refused(self) -> None:
        """An Event of the first machine of a namespace tells users that consoles are not kept."""
        create = self.storage.create

        def refusing(resource: Resource, obj: Object) -> Deferred[Object]:
            if resource == DELETEDCONSOLES.resource:
                return fail(Forbidden("exceeded quota: namespace default"))
            return create(resource, obj)

        def reported() -> list[str]:
            events = self.answer("GET", EVENTS)["items"]
            names = [each["involvedObject"]["name"] for each in events if NOT_KEPT in str(each)]
            return sorted(names)

        refused = self.patch(self.storage, "create", refusing)
        for name in ("a", "b"):
            self.make_deleted(name)
        self.assertEqual(reported(), ["a"])
        refused.restore()
        self.make_deleted("c")
        self.assertEqual(len(self.consoles()), 1)
        self.patch(self.storage, "create", refusing)
        self.make_deleted("d")
        self.assertEqual(reported(), ["a", "d"])

    def test_failing(self) -> None:
        """The same after a bug; the console is kept in the end."""
        create = Verbs.create

        def failing(verbs: Verbs, user: Any, target: RequestTarget, *more: Any) -> Any:
            if target.kind is DELETEDCONSOLES:
                raise ZeroDivisionError
            return create(verbs, user, target, *more)

        failed = self.patch(Verbs, "create", failing)
        self.make_deleted("a")
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        (event,) = [e for e in self.answer("GET", EVENTS)["items"] if e["reason"] == NOT_KEPT]
        self.assertIn("its log says more", event["message"])
        failed.restore()
        self.pass_time(LOOK_SECONDS)
        self.assertEqual(len(self.consoles()), 1)

    def make_deleted(self, name: str) -> None:
        self.make_machine(name)
        self.answer("DELETE", f"{MACHINES}/{name}")
