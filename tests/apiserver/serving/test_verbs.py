"""
Tests for :mod:`twisted_exec.apiserver.serving.verbs`: calls of admission and their effects.
"""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from twisted.internet.defer import Deferred, execute
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from tests.apiserver.support import MACHINES, MERGE, APITestCase, machine
from tests.linear import assert_linear
from twisted_exec.api import kinds
from twisted_exec.api.kinds import Object
from twisted_exec.api.selectors import parse_fields
from twisted_exec.api.status import APIError, Conflict, Forbidden, NotFound
from twisted_exec.apiserver.interfaces import Change, IAdmission, IMutatingAdmission
from twisted_exec.apiserver.restriction.visibility import FixedVisibility
from twisted_exec.apiserver.serving.query import ListOptions, WriteOptions
from twisted_exec.apiserver.serving.target import RequestTarget
from twisted_exec.apiserver.serving.verbs import ObjectPage, Verbs
from twisted_exec.apiserver.standalone import StandaloneControlPlane
from twisted_exec.auth.interfaces import User
from twisted_exec.storage.memory import MemoryStorage
from twisted_exec.storage.write_checks import versioned

META = {"name": "vm", "namespace": "default", "uid": "1"}
Mutation = Callable[[Object], None]


@implementer(IMutatingAdmission)
class Scribe:
    """
    An admission that records its calls, mutates machines, and warns.

    :ivar seen: the stage, operation and new object of each call.
    :ivar mutation: called with a copy of each machine to be changed in place.
    """

    def __init__(self) -> None:
        self.seen: list[tuple[str, Change]] = []
        self.mutation: Mutation = lambda new: None
        self.refusal = ""

    def mutate(self, change: Change) -> Deferred[Object]:
        """As :meth:`IMutatingAdmission.mutate`."""
        self.seen.append(("mutate", change))
        new = copy.deepcopy(change.new)
        assert new is not None
        if change.kind is kinds.MACHINES:
            self.mutation(new)
        return execute(lambda: new)

    def admit(self, change: Change) -> Deferred[None]:
        """As :meth:`IAdmission.admit`."""
        self.seen.append(("admit", change))
        change.warnings.extend(["mind the gap", "mind the gap"])
        return execute(self._decide)

    def _decide(self) -> None:
        if self.refusal:
            raise Forbidden(self.refusal)


class Reviewed(StandaloneControlPlane):
    """A server whose writes a scribe sees."""

    scribe: Scribe

    @property
    def admissions(self) -> Sequence[IAdmission]:
        """As :attr:`ControlPlane.admissions`."""
        return [*super().admissions, self.scribe]


class MutatingTests(APITestCase):
    """Admissions that change what is written."""

    control_plane = Reviewed

    def setUp(self) -> None:
        self.scribe = Reviewed.scribe = Scribe()
        super().setUp()

    def stages(self) -> list[tuple[str, str]]:
        """Recorded calls, in order."""
        return [(stage, change.operation) for stage, change in self.scribe.seen]

    def test_before_the_rules(self) -> None:
        """Mutations are validated, and can supply what the client left out."""
        self.scribe.mutation = lambda new: new["spec"].update(
            {"machineClassRef": {"name": "small"}}
        )
        body = machine("vm")
        del body["spec"]["machineClassRef"]
        made = self.answer("POST", MACHINES, body, code=201)
        self.assertEqual(made["spec"]["machineClassRef"], {"name": "small"})
        self.assertEqual(self.stages(), [("mutate", "create"), ("admit", "create")])
        first, last = (change.new or {} for _, change in self.scribe.seen)
        self.assertEqual(first["spec"]["power"], "On")  # a default
        self.assertEqual(first["metadata"]["namespace"], "default")
        self.assertNotIn("uid", first["metadata"])
        self.assertEqual(last["metadata"]["uid"], made["metadata"]["uid"])

        def spoil(new: Object) -> None:
            new["spec"]["power"] = "Sideways"

        self.scribe.mutation = spoil
        refused = self.answer("POST", MACHINES, machine("bad"), code=422)
        self.assertIn("Sideways", refused["message"])

    def test_updates(self) -> None:
        """Mutating admission runs before PUT, PATCH, apply and status, but not before a delete."""
        made = self.answer("POST", MACHINES, machine("vm"), code=201)
        self.scribe.mutation = lambda new: new["metadata"].update({"labels": {"by": "scribe"}})
        each = f"{MACHINES}/vm"
        put = self.answer("PUT", each, {**made, "spec": {**made["spec"], "power": "Off"}})
        self.assertEqual(put["metadata"]["labels"], {"by": "scribe"})
        patched = self.answer("PATCH", each, {"spec": {"power": "On"}}, content_type=MERGE)
        self.assertEqual(patched["metadata"]["labels"], {"by": "scribe"})
        config = {**machine("vm"), "spec": {"power": "On"}}
        applied = self.answer(
            "PATCH",
            f"{each}?fieldManager=me&force=true",
            config,
            content_type="application/apply-patch+yaml",
        )
        self.assertEqual(applied["metadata"]["labels"], {"by": "scribe"})
        self.scribe.seen.clear()
        self.answer("PATCH", f"{each}/status", {"status": {"state": "Running"}}, content_type=MERGE)
        (_, change), _ = self.scribe.seen
        self.assertEqual((change.operation, change.subresource), ("update", "status"))
        self.scribe.seen.clear()
        self.answer("DELETE", each)
        self.assertEqual(self.stages(), [("admit", "delete")])

    def test_no_namespace(self) -> None:
        """Without a namespace admission does not run."""
        self.answer("POST", MACHINES.replace("default", "nowhere"), machine("vm"), code=404)
        self.assertEqual(self.stages(), [])

    def test_managers(self) -> None:
        """
        The writer manages what the client wrote; mutated fields have, as in Kubernetes, no
        manager.
        """
        self.scribe.mutation = lambda new: new["metadata"].update({"labels": {"by": "scribe"}})
        made = self.answer("POST", f"{MACHINES}?fieldManager=me", machine("vm"), code=201)
        (entry,) = made["metadata"]["managedFields"]
        self.assertEqual((entry["manager"], list(entry["fieldsV1"])), ("me", ["f:spec"]))
        patched = self.answer(
            "PATCH",
            f"{MACHINES}/vm?fieldManager=other",
            {"metadata": {"annotations": {"a": "b"}}},
            content_type=MERGE,
        )
        _, entry = patched["metadata"]["managedFields"]
        told = {"f:metadata": {"f:annotations": {".": {}, "f:a": {}}}}
        self.assertEqual((entry["manager"], entry["fieldsV1"]), ("other", told))

    def test_identity(self) -> None:
        """The name cannot be mutated."""
        self.answer("POST", MACHINES, machine("vm"), code=201)
        self.scribe.mutation = lambda new: new["metadata"].update({"name": "other"})
        self.answer("PATCH", f"{MACHINES}/vm", {"spec": {}}, content_type=MERGE, code=400)

    def test_options(self) -> None:
        """Admission gets the client's options unchanged."""
        self.answer("POST", f"{MACHINES}?dryRun=All&fieldManager=me", machine("vm"), code=201)
        for _, change in self.scribe.seen:
            self.assertTrue(change.dry_run)
            self.assertEqual(change.options, {"dryRun": ["All"], "fieldManager": "me"})
        self.answer("POST", MACHINES, machine("vm"), code=201)
        self.scribe.seen.clear()
        self.answer("DELETE", f"{MACHINES}/vm", {"propagationPolicy": "Background"})
        ((_, change),) = self.scribe.seen
        self.assertEqual(change.options, {"propagationPolicy": "Background"})
        self.assertFalse(change.dry_run)

    def test_warnings(self) -> None:
        """Warnings are sent once, whether the write succeeds or is refused."""
        for code in (201, 403):
            response = self.ask("POST", MACHINES, machine(f"vm-{code}"))
            self.assertEqual(response.code, code)
            self.assertEqual(response.headers["warning"], '299 - "mind the gap"')
            self.scribe.refusal = "no"


class GarbageTests(SynchronousTestCase):
    """Handled errors leave nothing that waits for the garbage collector."""

    def setUp(self) -> None:
        self.storage = MemoryStorage()
        gc.disable()
        self.addCleanup(gc.enable)

    async def fails(self, work: Coroutine[Any, Any, object]) -> None:
        try:
            await work
        except (Conflict, NotFound):
            return
        raise AssertionError("this has to fail")

    def test_missing(self) -> None:
        """Each verb on an object that does not exist."""
        verbs, user = Verbs(self.storage, [], lambda: 0.0), User("jane")
        target, options = RequestTarget(kinds.MACHINES, "default", "vm"), WriteOptions()
        body = machine("vm")
        before = self.errors()
        for work in (
            verbs.get(target),
            verbs.update(user, target, body, options),
            verbs.patch(user, target, dict, options),
            verbs.apply(user, target, body, options, force=False, may_create=False),
            verbs.delete(user, target, options, {}),
        ):
            self.successResultOf(Deferred.fromCoroutine(self.fails(work)))
            self.assertEqual(self.errors(), before)

    def test_changed_meanwhile(self) -> None:
        """A write of an object that has changed."""
        verbs = Verbs(self.storage, [], lambda: 0.0)
        created = self.storage.create(kinds.MACHINES.resource, {**machine("vm"), "metadata": META})
        old = self.successResultOf(created)
        self.successResultOf(self.storage.update(kinds.MACHINES.resource, {**old, "spec": {}}))
        before = self.errors()
        for _ in range(2):
            removal = verbs.remove(User("jane"), kinds.MACHINES, old, WriteOptions())
            self.successResultOf(Deferred.fromCoroutine(self.fails(removal)))
        self.assertEqual(self.errors(), before)

    def errors(self) -> int:
        return sum(isinstance(each, APIError) for each in gc.get_objects())


class PagesTests(SynchronousTestCase):
    """The cost of a page of a list."""

    def setUp(self) -> None:
        self.stores: dict[int, MemoryStorage] = {}

    def filled(self, size: int) -> MemoryStorage:
        storage = self.stores.get(size)
        if storage is None:
            storage = self.stores[size] = MemoryStorage()
            table = kinds.MACHINES.resource.qualified
            objects = [
                (table, versioned({**machine(f"{at:06}"), "metadata": self.metadata(at)}, 1))
                for at in range(20 * size)
            ]
            storage.history.restore(objects, 1, 1)
        return storage

    def metadata(self, number: int) -> Object:
        return {"name": f"{number:06}", "namespace": f"ns-{number % 7}", "uid": str(number)}

    def check(self, pages: Callable[[Verbs, int], None]) -> None:
        """Compare as many pages of a list as there are twentieths of its objects."""

        def work(size: int) -> None:
            pages(Verbs(self.filled(size), [], lambda: 0.0), size)

        for size in (100, 400):
            self.filled(size)
        assert_linear(work, 100)

    def page(self, verbs: Verbs, options: ListOptions, namespace: str = "") -> ObjectPage:
        target = RequestTarget(kinds.MACHINES, namespace)
        return self.successResultOf(Deferred.fromCoroutine(verbs.list(target, options)))

    def test_all_namespaces(self) -> None:
        """A page costs what it returns, wherever it begins."""

        def pages(verbs: Verbs, size: int) -> None:
            for at in range(size):
                start = f"ns-{at % 8}", f"{at * 20:06}"
                self.page(verbs, ListOptions(limit=1, start=start))

        self.check(pages)

    def test_visible(self) -> None:
        """For a user who sees some of the objects, it costs those that it looks at."""
        visibility = FixedVisibility(
            lambda obj: int(obj["metadata"]["uid"]) % 3 == 0, lambda obj: Forbidden("hidden")
        )

        def pages(verbs: Verbs, size: int) -> None:
            for _ in range(size):
                self.page(verbs.through(visibility), ListOptions(limit=5))

        self.check(pages)

    def test_one_name(self) -> None:
        """A selector for one name in a namespace looks at that object only."""

        def pages(verbs: Verbs, size: int) -> None:
            for at in range(size):
                named = ListOptions(fields=parse_fields(f"metadata.name={at:06}"))
                page = self.page(verbs, named, f"ns-{at % 7}")
                self.assertEqual(len(page.items), 1)

        self.check(pages)
        verbs = Verbs(self.filled(100), [], lambda: 0.0)
        for name, namespace, expected in (
            ("000003", "ns-3", 1),
            ("000003", "ns-4", 0),
            ("000003", "", 1),
            ("none", "ns-3", 0),
        ):
            named = ListOptions(fields=parse_fields(f"metadata.name={name}"))
            self.assertEqual(len(self.page(verbs, named, namespace).items), expected)
