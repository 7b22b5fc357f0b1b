"""Tests for :mod:`twisted_exec.kube.informers`."""

from __future__ import annotations

import random
from typing import Any

from twisted.internet.defer import Deferred, fail
from twisted.internet.task import Clock
from twisted.logger import formatEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api import kinds
from twisted_exec.api.status import Expired, Forbidden, TooManyRequests, Unauthorized
from twisted_exec.control.backoff import LONGEST_PAUSE_SECONDS
from twisted_exec.kube.informers import Reflector
from twisted_exec.testing.cluster import MemoryCluster, unreachable

MACHINES = kinds.MACHINES.resource


class ReflectorTests(SynchronousTestCase):
    """Tests for :class:`Reflector`."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.cluster = MemoryCluster()
        self.client = self.cluster.client()
        self.changes: list[tuple[str | None, str | None]] = []
        self.reflector = self.make()

    def make(self, **more: Any) -> Reflector:
        return Reflector(
            self.client,
            MACHINES,
            self.clock,
            on_change=self.changed,
            rng=random.Random(1),
            **more,
        )

    def changed(self, before: Any, after: Any) -> None:
        def told(obj: Any) -> str | None:
            return obj and f"{obj['metadata']['name']}:{obj['spec']['n']}"

        self.changes.append((told(before), told(after)))

    def machine(self, name: str, n: int = 0, pool: str = "p") -> None:
        spec = {"n": n, "machinePoolRef": {"name": pool}}
        self.successResultOf(
            self.client.create(MACHINES, {"metadata": {"name": name}, "spec": spec}, "lab")
        )

    def patch_machine(self, name: str, n: int, **spec: Any) -> None:
        self.successResultOf(self.client.patch(MACHINES, name, {"spec": {"n": n, **spec}}, "lab"))

    def delete(self, name: str) -> None:
        self.successResultOf(self.client.delete(MACHINES, name, "lab"))

    def info(self) -> list[str]:
        """Collect what is logged from now on, with its level."""
        lines: list[str] = []

        def observe(event: Any) -> None:
            lines.append(f"{event['log_level'].name}: {formatEvent(event)}")

        globalLogPublisher.addObserver(observe)
        self.addCleanup(globalLogPublisher.removeObserver, observe)
        return lines

    def test_absent_group(self) -> None:
        """A group that the server lacks, for which RBAC answers 403, is waited for without a warning."""
        kind = self.cluster.kinds.pop(MACHINES)
        self.cluster.kinds = {
            resource: each
            for resource, each in self.cluster.kinds.items()
            if resource.group != MACHINES.group
        }
        self.cluster.forbidden.add(MACHINES)
        lines = self.info()
        self.reflector = self.make(optional=True)
        self.reflector.start()
        for _ in range(10):
            self.clock.advance(LONGEST_PAUSE_SECONDS)
        self.assertEqual(lines, [f"info: the API server has no {MACHINES.qualified}"])
        self.cluster.forbidden.clear()
        self.cluster.kinds[MACHINES] = kind
        self.machine("a")
        self.clock.advance(LONGEST_PAUSE_SECONDS)
        self.assertEqual(self.changes, [(None, "a:0")])

    def test_absent_resource(self) -> None:
        """An older server's group without the resource is no reason for a warning, either."""
        del self.cluster.kinds[MACHINES]
        lines = self.info()
        self.reflector = self.make(optional=True)
        self.reflector.start()
        self.assertEqual(lines, [f"info: the API server has no {MACHINES.qualified}"])

    def test_forbidden_group(self) -> None:
        """A role without the right is a warning, also if the server may lack the resource."""
        self.cluster.forbidden.add(MACHINES)
        lines = self.info()
        self.reflector = self.make(optional=True)
        self.reflector.start()
        self.assertEqual(lines, [f"warn: {MACHINES.qualified}: {MACHINES.qualified} is forbidden"])

    def test_trimmed(self) -> None:
        """``trim`` applies to listed and to watched objects."""
        self.reflector = self.make(trim=lambda obj: {**obj, "status": None})
        self.machine("a")
        self.reflector.start()
        self.machine("b")
        self.assertEqual([obj["status"] for obj in self.reflector], [None, None])
        self.patch_machine("a", 2)
        self.assertEqual([obj["status"] for obj in self.reflector], [None, None])

    def test_too_many(self) -> None:
        """Beyond ``max_objects`` watched objects, the reflector lists again, with pauses."""
        self.reflector = self.make(max_objects=3)
        self.reflector.start()
        for number in range(3):
            self.machine(f"vm-{number}")
        self.patch_machine("vm-1", 2)
        self.assertEqual(self.count("list"), 1)
        self.machine("vm-3")
        for _ in range(20):
            self.clock.advance(0.5)
        self.assertEqual(len(list(self.reflector)), 4)
        self.assertLess(self.count("list"), 5)

    def count(self, verb: str) -> int:
        """Count the requests with a verb; each failure adds one list that selects nothing."""
        return [request[0] for request in self.cluster.requests].count(verb)

    def test_follows(self) -> None:
        """The listed objects are reported first, then each change."""
        self.machine("a")
        synced = self.reflector.when_synced()
        self.assertNoResult(synced)
        self.reflector.start()
        self.successResultOf(synced)
        self.machine("b")
        self.patch_machine("a", 1)
        self.delete("b")
        self.assertEqual(
            self.changes, [(None, "a:0"), (None, "b:0"), ("a:0", "a:1"), ("b:0", None)]
        )
        self.assertEqual(len(self.reflector), 1)
        found = self.reflector.get("a", "lab")
        assert found is not None
        self.assertEqual(found["spec"]["n"], 1)
        self.assertIsNone(self.reflector.get("b", "lab"))

    def test_begins_with_a_copy(self) -> None:
        """A copy that is complete needs no list: the watch goes on from its version."""
        for name in "ab":
            self.machine(name)
        listed = self.successResultOf(self.client.list(MACHINES))
        self.patch_machine("a", 1)
        self.delete("b")
        before = self.count("list")
        reflector = self.make()
        reflector.begin_with(listed["items"], listed["metadata"]["resourceVersion"])
        self.assertTrue(reflector.synced)
        reflector.start()
        self.addCleanup(reflector.stop)
        self.assertEqual(self.changes, [("a:0", "a:1"), ("b:0", None)])
        self.assertEqual(self.count("list"), before)

    def test_selector(self) -> None:
        """An object that leaves the selection is reported as deleted, one that enters as added."""
        self.reflector = self.make(field_selector="spec.machinePoolRef.name=p")
        self.reflector.start()
        self.machine("a")
        self.machine("other", pool="q")
        self.patch_machine("a", 0, machinePoolRef={"name": "q"})
        self.patch_machine("other", 0, machinePoolRef={"name": "p"})
        self.assertEqual(self.changes, [(None, "a:0"), ("a:0", None), (None, "other:0")])

    def test_resumes(self) -> None:
        """A watch that ends normally resumes from its last version, without a new list."""
        self.reflector.start()
        self.machine("a")
        self.clock.advance(60)
        self.cluster.end_watches()
        self.assertEqual((self.count("list"), self.cluster.watches), (1, 1))
        self.machine("b")
        self.assertEqual(self.changes, [(None, "a:0"), (None, "b:0")])

    def test_lost_connection(self) -> None:
        """A broken watch resumes after a pause and misses no change."""
        self.reflector.start()
        self.machine("a")
        self.cluster.end_watches(unreachable())
        self.assertEqual(self.cluster.watches, 0)
        self.assertIn("connection refused", self.reflector.problem)
        self.patch_machine("a", 1)
        self.clock.advance(0.5)
        self.assertEqual((self.cluster.watches, self.count("list")), (1, 2))
        self.assertEqual(self.changes, [(None, "a:0"), ("a:0", "a:1")])
        self.assertEqual(self.reflector.problem, "")

    def test_gone_back(self) -> None:
        """
        After a server restores an older backup, the reflector lists again: a watch from a newer
        version would report nothing.
        """
        self.machine("kept")
        backup = self.cluster.version, dict(self.cluster.objects)
        self.machine("lost")
        self.patch_machine("kept", 1)
        self.reflector.start()
        self.cluster.end_watches(unreachable())
        self.cluster.version, self.cluster.objects = backup
        self.cluster.compact()
        self.cluster.objects = {
            key: {**obj, "spec": {**obj["spec"], "n": 0}}
            for key, obj in self.cluster.objects.items()
        }
        self.clock.advance(0.5)
        self.assertEqual(
            sorted(self.changes[2:], key=str), [("kept:1", "kept:0"), ("lost:0", None)]
        )
        self.machine("new")
        self.assertEqual(self.changes[-1], (None, "new:0"))

    def test_lost_connection_of_a_quiet_watch(self) -> None:
        """
        After a lost connection the copy counts as current once a new watch stays open, even without
        events; a watch that ends at once does not count.
        """
        self.reflector.start()
        self.cluster.end_watches(unreachable())
        self.clock.advance(0.5)
        self.assertEqual(self.cluster.watches, 1)
        self.cluster.end_watches(unreachable())
        self.assertIn("connection refused", self.reflector.problem)
        self.clock.advance(1)
        self.assertEqual(self.cluster.watches, 1)
        self.clock.advance(1)
        self.assertEqual(self.reflector.problem, "")

    def test_expired(self) -> None:
        """
        When the version is too old, the reflector lists again and reports only the differences.
        """
        self.machine("gone")
        self.machine("same")
        self.machine("anew")
        self.reflector.start()
        self.changes.clear()
        self.cluster.end_watches(unreachable())
        self.delete("gone")
        self.delete("anew")
        self.machine("anew", 5)
        self.machine("new")
        self.cluster.compact()
        self.clock.advance(2)
        self.assertEqual(
            self.changes,
            [("gone:0", None), ("anew:0", None), (None, "anew:5"), (None, "new:0")],
        )
        self.assertEqual((self.count("list"), self.cluster.watches), (3, 1))

    def test_bookmarks(self) -> None:
        """A bookmark advances the version, so that a quiet watch can resume."""
        self.reflector.start()
        self.successResultOf(
            self.client.create(kinds.NAMESPACES.resource, {"metadata": {"name": "n"}})
        )
        self.cluster.bookmark()
        self.cluster.compact()
        self.cluster.end_watches(unreachable())
        self.clock.advance(1)
        self.assertEqual((self.count("list"), self.cluster.watches), (2, 1))
        self.assertEqual(self.changes, [])

    def test_backs_off(self) -> None:
        """
        While the server is down, pauses grow up to a limit; afterwards the copy is current again.
        """
        self.cluster.problem = unreachable()
        self.reflector.start()
        for _ in range(400):
            self.clock.advance(1)
        self.assertTrue(15 < self.count("list") < 40, self.count("list"))
        self.assertFalse(self.reflector.synced)
        self.cluster.problem = None
        self.machine("a")
        self.clock.advance(LONGEST_PAUSE_SECONDS)
        self.assertTrue(self.reflector.synced)
        self.assertEqual((self.reflector.problem, self.changes), ("", [(None, "a:0")]))

    def test_asked_to_wait(self) -> None:
        """The reflector honours Retry-After."""
        self.cluster.problem = TooManyRequests("full", 20)
        self.reflector.start()
        self.clock.advance(19)
        self.assertEqual(self.count("list"), 1)
        self.clock.advance(1)
        self.assertEqual(self.count("list"), 2)

    def test_forbidden_is_tried_again(self) -> None:
        """The reflector retries even after 403."""
        self.cluster.problem = Forbidden("may not")
        self.reflector.start()
        self.cluster.problem = None
        self.clock.advance(0.5)
        self.assertTrue(self.reflector.synced)

    def test_unauthorized(self) -> None:
        """A server only answers Unauthorized; the problem says what that is about."""
        self.cluster.problem = Unauthorized()
        self.reflector.start()
        self.assertEqual(
            self.reflector.problem,
            "the API server does not accept this program's credentials; replace them",
        )
        self.cluster.problem = Unauthorized("the token of space one has expired")
        self.clock.advance(0.5)
        self.assertEqual(self.reflector.problem, "the token of space one has expired")

    def test_whose(self) -> None:
        """Log messages name the cluster, for readers of several."""
        logged: list[str] = []

        def observe(event: Any) -> None:
            logged.append(formatEvent(event))

        globalLogPublisher.addObserver(observe)
        self.addCleanup(globalLogPublisher.removeObserver, observe)
        self.cluster.problem = Forbidden("may not")
        self.make(label_selector="a=b", of='leaf cluster "one"').start()
        self.assertIn('machines.compute.ironcore.dev (a=b) of leaf cluster "one": may not', logged)

    def test_watches_that_end_at_once(self) -> None:
        """The reflector pauses if a server ends every watch at once."""
        self.reflector.start()
        for _ in range(100):
            self.cluster.end_watches()
            self.clock.advance(0.1)
        self.assertLess(self.count("watch"), 12)

    def test_always_expired(self) -> None:
        """The reflector pauses if a server finds every version too old, even the listed one."""
        self.patch(
            self.client, "watch", lambda *args, **more: fail(Expired("too old resource version"))
        )
        self.reflector.start()
        for _ in range(100):
            self.clock.advance(0.1)
        self.assertLess(self.count("list"), 12)

    def test_listener_fails(self) -> None:
        """A listener's exception is logged; the reflector goes on."""

        def on_change(before: Any, after: Any) -> None:
            raise LookupError("mine")

        reflector = Reflector(self.client, MACHINES, self.clock, on_change=on_change)
        reflector.start()
        self.machine("a")
        self.machine("b")
        self.assertEqual(len(reflector), 2)
        self.assertEqual(len(self.flushLoggedErrors(LookupError)), 2)

    def test_trimming_fails(self) -> None:
        """A failing ``trim`` is logged and retried with pauses."""
        self.machine("vm-1", 1)
        wrong = [True]

        def trim(obj: Any) -> Any:
            if wrong:
                raise RecursionError
            return obj

        reflector = self.make(trim=trim)
        self.addCleanup(reflector.stop)
        reflector.start()
        self.assertEqual(len(self.flushLoggedErrors(RecursionError)), 1)
        self.assertIn("see the log", reflector.problem)
        for _ in range(600):
            self.clock.advance(1)
        self.assertLess(len(self.flushLoggedErrors(RecursionError)), 60)
        wrong.clear()
        self.clock.advance(LONGEST_PAUSE_SECONDS)
        self.assertTrue(reflector.synced)
        self.assertEqual(reflector.problem, "")

    def test_stop_while_watching(self) -> None:
        """Stopping ends the watch and leaves no timer; the copy stays readable."""
        self.reflector.start()
        self.machine("a")
        self.successResultOf(self.reflector.stop())
        self.assertEqual((self.cluster.watches, self.clock.getDelayedCalls()), (0, []))
        self.machine("b")
        self.assertEqual(len(self.reflector), 1)
        self.successResultOf(self.reflector.stop())

    def test_stop_while_pausing(self) -> None:
        """Stopping cancels the timer of a pause."""
        self.cluster.problem = unreachable()
        self.reflector.start()
        self.successResultOf(self.reflector.stop())
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_stop_while_listing(self) -> None:
        """Stopping cancels a pending list."""
        cancelled: list[object] = []
        self.patch(self.client, "list", lambda *args, **more: Deferred(cancelled.append))
        self.reflector.start()
        self.successResultOf(self.reflector.stop())
        self.assertEqual(len(cancelled), 1)

    def test_stop_while_connecting(self) -> None:
        """Stopping is final even if the cancelled request fails with its own error."""

        def connecting(*args: Any, **more: Any) -> Deferred[Any]:
            return Deferred(lambda attempt: attempt.errback(unreachable()))

        self.patch(self.client, "list", connecting)
        self.reflector.start()
        self.successResultOf(self.reflector.stop())
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_waiting_is_cancelled(self) -> None:
        """A caller may cancel ``when_synced`` before the first list."""
        waiting = self.reflector.when_synced()
        waiting.addErrback(lambda failure: None)
        waiting.cancel()
        self.reflector.start()
        self.assertTrue(self.reflector.synced)
