"""
Tests for :mod:`twisted_exec.apiserver.controllers.namespaces`.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from twisted.logger import capturedLogs, formatEvent

from tests.apiserver.support import MACHINES, MERGE, NAMESPACES, RBAC, APITestCase, machine
from twisted_exec.api import kinds
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import NotFound, ServiceUnavailable
from twisted_exec.apiserver.controllers.namespaces import NamespaceLifecycle
from twisted_exec.apiserver.serving.registry import KindRegistry
from twisted_exec.apiserver.serving.target import RequestTarget
from twisted_exec.apiserver.serving.verbs import Verbs

INSIDE = MACHINES.replace("default", "lab")


class NamespaceTests(APITestCase):
    """The life of a namespace."""

    def make(self) -> None:
        self.answer("POST", NAMESPACES, {"metadata": {"name": "lab"}}, code=201)

    def gone(self) -> bool:
        found: Deferred[object] = self.storage.get(kinds.NAMESPACES.resource, "", "lab")
        outcome: list[object] = []
        found.addBoth(outcome.append)
        return getattr(outcome[0], "type", None) is NotFound

    def test_made(self) -> None:
        """A new namespace is active and carries its own name as a label."""
        self.make()
        namespace = self.stored(kinds.NAMESPACES, "lab")
        self.assertEqual(namespace["status"], {"phase": "Active"})
        self.assertEqual(namespace["metadata"]["labels"], {"kubernetes.io/metadata.name": "lab"})
        self.refused(422, "POST", NAMESPACES, {"metadata": {"name": "a.b"}})

    def test_permanent(self) -> None:
        """Two namespaces exist from the start and stay."""
        for name in ("default", "kube-system"):
            told = self.refused(403, "DELETE", f"{NAMESPACES}/{name}")
            self.assertIn("this namespace may not be deleted", told)

    def test_empty(self) -> None:
        """An empty namespace goes at once."""
        self.make()
        told = self.answer("DELETE", f"{NAMESPACES}/lab")
        self.assertEqual(told["status"]["phase"], "Terminating")
        self.assertTrue(self.gone())

    def test_content(self) -> None:
        """Its content goes with it, of every kind."""
        self.make()
        self.answer("POST", INSIDE, machine("a"), code=201)
        role = {"metadata": {"name": "r"}, "rules": []}
        self.answer("POST", f"{RBAC}/namespaces/lab/roles", role, code=201)
        self.make_machine("elsewhere")
        self.answer("DELETE", f"{NAMESPACES}/lab")
        self.assertTrue(self.gone())
        self.refused(404, "GET", f"{INSIDE}/a")
        self.answer("GET", f"{MACHINES}/elsewhere")

    def test_held(self) -> None:
        """It waits for finalizers, and nothing new is made in it meanwhile."""
        self.make()
        held = machine("a")
        held["metadata"]["finalizers"] = ["x/y"]
        self.answer("POST", INSIDE, held, code=201)
        self.answer("DELETE", f"{NAMESPACES}/lab")
        self.assertFalse(self.gone())
        told = self.refused(403, "POST", INSIDE, machine("b"))
        self.assertIn("because it is being terminated", told)
        self.assertEqual(
            self.conditions(),
            {
                "NamespaceDeletionContentFailure": ("False", "ContentDeleted"),
                "NamespaceContentRemaining": ("True", "SomeResourcesRemain"),
                "NamespaceFinalizersRemaining": ("True", "SomeFinalizersRemain"),
            },
        )
        self.assertIn(
            "machines.compute.ironcore.dev has 1", self.message("NamespaceContentRemaining")
        )
        self.assertIn("x/y in 1", self.message("NamespaceFinalizersRemaining"))
        version = self.storage.version()
        self.clock.advance(60)
        self.assertEqual(self.storage.version(), version, "nothing has changed")
        free = {"metadata": {"finalizers": None}}
        self.answer("PATCH", f"{INSIDE}/a", free, content_type=MERGE)
        self.assertTrue(self.gone())

    def conditions(self) -> dict[str, tuple[str, str]]:
        found = self.stored(kinds.NAMESPACES, "lab")["status"]["conditions"]
        return {each["type"]: (each["status"], each["reason"]) for each in found}

    def message(self, name: str) -> str:
        found = self.stored(kinds.NAMESPACES, "lab")["status"]["conditions"]
        return next(str(each["message"]) for each in found if each["type"] == name)

    def test_finalizer_cannot_be_taken(self) -> None:
        """No update takes away what keeps a namespace until it is empty."""
        self.make()
        self.answer("PATCH", f"{NAMESPACES}/lab", {"spec": {"finalizers": []}}, content_type=MERGE)
        self.assertEqual(
            self.stored(kinds.NAMESPACES, "lab")["spec"], {"finalizers": ["kubernetes"]}
        )

    def test_taken_up(self) -> None:
        """A deletion that an earlier process began is carried on."""
        lifecycle = next(
            part for part in self.parts.leading.services if isinstance(part, NamespaceLifecycle)
        )
        lifecycle.stopService()
        self.make()
        self.answer("DELETE", f"{NAMESPACES}/lab")
        self.assertFalse(self.gone())
        lifecycle.startService()
        self.assertTrue(self.gone())

    def test_watched_content(self) -> None:
        """The content of a namespace is watched only while the namespace is being deleted."""
        lifecycle = next(
            part for part in self.parts.leading.services if isinstance(part, NamespaceLifecycle)
        )
        self.make()
        held = machine("a")
        held["metadata"]["finalizers"] = ["x/y"]
        self.answer("POST", INSIDE, held, code=201)
        before = self.watches(lifecycle)
        self.answer("DELETE", f"{NAMESPACES}/lab")
        self.assertGreater(self.watches(lifecycle), before + 10)
        free = {"metadata": {"finalizers": None}}
        self.answer("PATCH", f"{INSIDE}/a", free, content_type=MERGE)
        self.assertTrue(self.gone())
        self.assertEqual(self.watches(lifecycle), before)

    def watches(self, lifecycle: NamespaceLifecycle) -> int:
        """Return how many watches of the store the controller has."""
        # The store counts the watches of all controllers.
        return sum(map(len, lifecycle._terminating.values()))

    def test_another_of_the_same_name(self) -> None:
        """Only the observed object is deleted, not a newer one of the same name."""
        self.make()
        self.answer("POST", INSIDE, machine("a"), code=201)
        seen = self.successResultOf(self.storage.list(kinds.MACHINES.resource, "lab"))
        self.answer("DELETE", f"{INSIDE}/a")
        made = self.answer("POST", INSIDE, machine("a"), code=201)
        listing = self.storage.list

        def behind(resource: Resource, namespace: str = "", **more: Any) -> Any:
            if resource == kinds.MACHINES.resource and namespace:
                return succeed(seen)
            return listing(resource, namespace, **more)

        self.patch(self.storage, "list", behind)
        self.answer("DELETE", f"{NAMESPACES}/lab")
        self.assertFalse(self.gone())
        found = self.answer("GET", f"{INSIDE}/a")
        self.assertEqual(found["metadata"]["uid"], made["metadata"]["uid"])
        self.storage.list = listing  # type: ignore[method-assign]
        free = {"metadata": {"labels": {"looked": "at-again"}}}
        self.answer("PATCH", f"{INSIDE}/a", free, content_type=MERGE)
        self.assertTrue(self.gone())

    def test_trouble(self) -> None:
        """A store that refuses is retried later."""
        self.make()
        self.answer("POST", INSIDE, machine("a"), code=201)
        refuse = [True]
        delete = self.storage.delete

        def delete_later(*args: object) -> object:
            if refuse:
                return fail(ServiceUnavailable("not now"))
            return delete(*args)  # type: ignore[arg-type]

        self.patch(self.storage, "delete", delete_later)
        with capturedLogs() as logged:
            self.answer("DELETE", f"{NAMESPACES}/lab")
        self.assertIn("cannot empty namespace lab: not now", map(formatEvent, logged))
        failed = "NamespaceDeletionContentFailure"
        self.assertEqual(self.conditions()[failed], ("True", "ContentDeletionFailed"))
        why = "Failed to delete: machines.compute.ironcore.dev: not now"
        self.assertEqual(self.message(failed), why)
        refuse.clear()
        self.clock.advance(5)
        self.assertTrue(self.gone())

    def test_one_fails(self) -> None:
        """An object that cannot be deleted is told, also after a bug, and holds up no other."""
        self.make()
        for name in ("a", "b"):
            self.answer("POST", INSIDE, machine(name), code=201)
        delete = Verbs.delete

        def failing(verbs: Verbs, user: Any, target: RequestTarget, *more: Any) -> Any:
            if target.name == "a":
                raise ZeroDivisionError
            return delete(verbs, user, target, *more)

        patched = self.patch(Verbs, "delete", failing)
        self.answer("DELETE", f"{NAMESPACES}/lab")
        self.refused(404, "GET", f"{INSIDE}/b")
        self.answer("GET", f"{INSIDE}/a")
        self.assertIn("its log says more", self.message("NamespaceDeletionContentFailure"))
        self.clock.advance(60)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        patched.restore()
        self.clock.advance(120)
        self.assertTrue(self.gone())

    def test_registry(self) -> None:
        """Whatever kinds there will be, those within namespaces are emptied."""
        lifecycle = NamespaceLifecycle(
            self.storage, KindRegistry(kinds.ALL), self.parts.verbs, self.clock
        )
        self.assertIn(kinds.LEASES, lifecycle._kinds)
        self.assertNotIn(kinds.LOCALSUBJECTACCESSREVIEWS, lifecycle._kinds)
