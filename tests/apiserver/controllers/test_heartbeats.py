"""
Tests for :mod:`twisted_exec.apiserver.controllers.heartbeats`.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred, fail

from tests.apiserver.support import EVENTS, MACHINES, MERGE, POOLS, APITestCase
from twisted_exec.api import kinds
from twisted_exec.api.conditions import condition_of
from twisted_exec.api.dialects import IRONCORE, SPHERIC
from twisted_exec.api.kinds import Object
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.apiserver.controllers.heartbeats import (
    LOOK_SECONDS,
    NOT_MARKED,
    SILENCE_SECONDS,
)

FLEETS = SPHERIC.pool.path()
READY = {"type": "Ready", "status": "True", "reason": "HeartbeatReceived", "message": ""}
LEASES = "/apis/coordination.k8s.io/v1/namespaces/ironcore-machinepool-lease/leases"


class PoolHeartbeatsTests(APITestCase):
    """Tests for :class:`PoolHeartbeats`, within an API server."""

    def setUp(self) -> None:
        super().setUp()
        self.beats = 0
        self.make_pool("pool-a")
        self.beat()

    def beat(self, **told: str) -> None:
        """Send a poollet's heartbeat, as every ten seconds."""
        self.beats += 1
        condition = {**READY, "lastUpdateTime": f"2026-01-01T00:00:{self.beats:02}Z", **told}
        patch = {"status": {"conditions": [condition]}}
        self.answer("PATCH", f"{POOLS}/pool-a/status", patch, content_type=MERGE, user="pool-a")

    def pass_time(self, seconds: float) -> None:
        self.clock.pump([LOOK_SECONDS] * int(seconds / LOOK_SECONDS))

    def ready(self) -> tuple[Any, Any]:
        condition = condition_of(self.stored(kinds.MACHINEPOOLS, "pool-a"), "Ready")
        return condition.get("status"), condition.get("reason")

    def test_heard_of(self) -> None:
        """A pool whose poollet goes on telling stays as it tells."""
        for _ in range(10):
            self.pass_time(SILENCE_SECONDS - LOOK_SECONDS)
            self.beat()
        self.assertEqual(self.ready(), ("True", "HeartbeatReceived"))

    def test_silent(self) -> None:
        """After 50 s of silence it is not known whether the pool is ready; until it tells again."""
        self.pass_time(SILENCE_SECONDS)
        self.assertEqual(self.ready(), ("Unknown", "MachinePoolStatusUnknown"))
        version = self.storage.version()
        self.pass_time(5 * SILENCE_SECONDS)
        self.assertEqual(self.storage.version(), version, "told more than once")
        self.beat()
        self.assertEqual(self.ready(), ("True", "HeartbeatReceived"))
        self.pass_time(SILENCE_SECONDS)
        self.assertEqual(self.ready()[0], "Unknown")

    def machine(self, name: str, pool: str, *types: str) -> None:
        """Create a running machine of a pool, with these conditions."""
        self.make_machine(name, pool=pool)
        conditions = [{"type": each, "status": "True", "reason": "Running"} for each in types]
        status = {"status": {"state": "Running", "conditions": conditions}}
        path = f"{MACHINES}/{name}/status"
        self.answer("PATCH", path, status, content_type=MERGE)

    def conditions(self, name: str) -> dict[str, tuple[str, str]]:
        status = self.stored(kinds.MACHINES, name, "default")["status"]
        self.assertEqual(status["state"], "Running")
        return {each["type"]: (each["status"], each["reason"]) for each in status["conditions"]}

    def test_machines(self) -> None:
        """Whether machines of a silent pool run is unknown, and kubectl shows that."""
        self.make_pool("pool-b")
        self.machine("vm", "pool-a", "Ready", "VolumesReady")
        self.machine("other", "pool-b", "Ready")
        self.machine("foreign", "pool-a")  # ironcore's own poollet reports no conditions
        self.pass_time(SILENCE_SECONDS)
        unknown = ("Unknown", "MachinePoolStatusUnknown")
        self.assertEqual(self.conditions("vm"), {"Ready": unknown, "VolumesReady": unknown})
        self.assertEqual(self.conditions("other"), {"Ready": ("True", "Running")})
        self.assertEqual(self.conditions("foreign"), {})
        version = self.storage.version()
        self.pass_time(5 * SILENCE_SECONDS)
        self.assertEqual(self.storage.version(), version)

    def test_machines_of_a_stopped_poollet(self) -> None:
        """A poollet that said it stops is no longer heard of either."""
        self.machine("vm", "pool-a", "Ready")
        self.beat(status="False", reason="PoolletStopped")
        self.pass_time(SILENCE_SECONDS)
        self.assertEqual(self.conditions("vm")["Ready"][0], "Unknown")

    def test_leads_no_longer(self) -> None:
        """
        A controller that stops while it reads a pool does not mark it: it may have missed
        heartbeats.
        """
        asked: list[Deferred[Object]] = []
        get = self.storage.get

        def slow(resource: Resource, namespace: str, name: str, **more: Any) -> Any:
            if resource != kinds.MACHINEPOOLS.resource:
                return get(resource, namespace, name, **more)
            asked.append(Deferred())
            return asked[-1]

        self.patch(self.storage, "get", slow)
        self.pass_time(SILENCE_SECONDS)
        (asking,) = asked
        self.storage.get = get  # type: ignore[method-assign]
        self.successResultOf(self.parts.leading.stopService())
        asking.callback(self.stored(kinds.MACHINEPOOLS, "pool-a"))
        self.assertEqual(self.ready(), ("True", "HeartbeatReceived"))
        self.parts.leading.startService()

    def test_what_users_change(self) -> None:
        """A label that a user adds to a pool is no heartbeat."""
        self.pass_time(SILENCE_SECONDS - LOOK_SECONDS)
        patch = {"metadata": {"labels": {"a": "b"}}}
        self.answer("PATCH", f"{POOLS}/pool-a", patch, content_type=MERGE)
        self.pass_time(LOOK_SECONDS)
        self.assertEqual(self.ready()[0], "Unknown")

    def test_not_ready_anyway(self) -> None:
        """A pool that is not ready, or never told, stays as it is."""
        self.beat(status="False", reason="PoolletStopped")
        self.make_pool("quiet")
        self.pass_time(2 * SILENCE_SECONDS)
        self.assertEqual(self.ready(), ("False", "PoolletStopped"))
        self.assertEqual(condition_of(self.stored(kinds.MACHINEPOOLS, "quiet"), "Ready"), {})

    def test_lease(self) -> None:
        """ironcore's poollet renews a lease, and writes conditions only when they change."""
        self.answer(
            "POST", "/api/v1/namespaces", {"metadata": {"name": LEASES.split("/")[-2]}}, code=201
        )
        self.answer("POST", LEASES, {"metadata": {"name": "pool-a"}}, code=201)
        for turn in range(5):
            self.pass_time(SILENCE_SECONDS - LOOK_SECONDS)
            renewed = {"spec": {"renewTime": f"2026-01-01T00:00:0{turn}.000000Z"}}
            self.answer("PATCH", f"{LEASES}/pool-a", renewed, content_type=MERGE)
        self.assertEqual(self.ready()[0], "True")

    def test_deleted(self) -> None:
        """Of a pool that is gone nothing is remembered."""
        self.answer("DELETE", f"{POOLS}/pool-a")
        self.pass_time(2 * SILENCE_SECONDS)
        self.make_pool("pool-a")
        self.beat()
        self.pass_time(LOOK_SECONDS)
        self.assertEqual(self.ready()[0], "True")

    def test_store_in_trouble(self) -> None:
        """A failed write is retried."""
        patched = self.patch(
            self.storage, "update", lambda *_: fail(ServiceUnavailable("the disk is full"))
        )
        self.pass_time(SILENCE_SECONDS)
        self.assertEqual(self.ready()[0], "True")
        patched.restore()
        self.pass_time(LOOK_SECONDS)
        self.assertEqual(self.ready()[0], "Unknown")

    def test_one_cannot_be_written(self) -> None:
        """A pool that cannot be written holds up no other."""
        update = self.storage.update

        def refusing(resource: Resource, obj: Object) -> Deferred[Object]:
            if obj["metadata"]["name"] == "pool-a":
                return fail(ServiceUnavailable("the object is too large"))
            return update(resource, obj)

        self.make_pool("pool-b")
        self.answer(
            "PATCH",
            f"{POOLS}/pool-b/status",
            {"status": {"conditions": [READY]}},
            content_type=MERGE,
        )
        self.storage.update = refusing  # type: ignore[method-assign]
        self.pass_time(SILENCE_SECONDS)
        self.assertEqual(self.ready()[0], "True")
        other = condition_of(self.stored(kinds.MACHINEPOOLS, "pool-b"), "Ready")
        self.assertEqual(other["status"], "Unknown")
        self.pass_time(SILENCE_SECONDS)
        (event,) = self.answer("GET", EVENTS)["items"]
        self.assertEqual((event["reason"], event["count"]), (NOT_MARKED, 1))
        self.assertEqual(event["involvedObject"]["name"], "pool-a")
        self.assertIn("the object is too large", event["message"])

    def test_machine_cannot_be_written(self) -> None:
        """A machine that cannot be written holds up neither other machines nor its pool."""
        update = self.storage.update

        def refusing(resource: Resource, obj: Object) -> Deferred[Object]:
            if obj["metadata"]["name"] == "vm-a":
                raise ZeroDivisionError
            return update(resource, obj)

        for name in ("vm-a", "vm-b"):
            self.machine(name, "pool-a", "Ready")
        self.storage.update = refusing  # type: ignore[method-assign]
        self.pass_time(2 * SILENCE_SECONDS)
        self.assertEqual(self.ready()[0], "Unknown")
        statuses = [self.conditions(name)["Ready"][0] for name in ("vm-a", "vm-b")]
        self.assertEqual(statuses, ["True", "Unknown"])
        (event,) = self.answer("GET", EVENTS)["items"]
        self.assertEqual((event["reason"], event["count"]), (NOT_MARKED, 1))
        self.assertIn("its log says more", event["message"])
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)


class DialectsTests(APITestCase):
    """Pools of several dialects."""

    dialects = (IRONCORE, SPHERIC)

    def test_each(self) -> None:
        """A fleet's poollet is missed as a machine pool's is, and neither stands for the other."""
        self.make_pool("p")
        self.answer("POST", FLEETS, {"metadata": {"name": "p"}}, code=201)
        ready = {"status": {"conditions": [READY]}}
        for pools in (POOLS, FLEETS):
            self.answer("PATCH", f"{pools}/p/status", ready, content_type=MERGE)
        for turn in range(int(SILENCE_SECONDS / LOOK_SECONDS) + 1):
            self.clock.advance(LOOK_SECONDS)
            told = {**READY, "lastUpdateTime": f"2026-01-01T00:00:{turn:02}Z"}
            heard = {"status": {"conditions": [told]}}
            self.answer("PATCH", f"{POOLS}/p/status", heard, content_type=MERGE)
        fleet = self.answer("GET", f"{FLEETS}/p")
        self.assertEqual(condition_of(fleet, "Ready")["status"], "Unknown")
        self.assertEqual(condition_of(self.answer("GET", f"{POOLS}/p"), "Ready")["status"], "True")
