"""
Tests for :mod:`twisted_exec.spacemanager.spaces.loop`, over a hub and providers in memory.

``SF n`` is the n-th defect of upstream's Space Framework that is not to be had again.
"""

from __future__ import annotations

import base64
import json
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.spacemanager.live import World, condition, message
from tests.spacemanager.mortal import Life
from tests.spacemanager.spaces.loop_case import HOME, ONE, WorldTestCase
from twisted_exec.api import spaces
from twisted_exec.api.kinds.secrets import SECRETS
from twisted_exec.api.spaces import (
    CREDENTIALS_VALID,
    PHYSICAL_SPACE_READY,
    PROVIDER_REACHABLE,
    SYNCED,
)
from twisted_exec.api.status import Conflict
from twisted_exec.spacemanager.interfaces import BROKEN, BUILDING, GOING, Physical
from twisted_exec.spacemanager.spaces import worker
from twisted_exec.spacemanager.spaces.observation import GONE_SECONDS, SpaceObservation
from twisted_exec.spacemanager.spaces.plan import SpacePlan
from twisted_exec.testing.space_provider import MemorySpace


class ManagedTests(WorldTestCase):
    """Spaces that we make."""

    def test_ready(self) -> None:
        """It is Ready once it was made, was given Secrets, and was probed."""
        self.ready()
        status = self.world.seen("one")["status"]
        self.assertEqual(status["externalSecretRef"], {"name": "external-one", "namespace": HOME})
        self.assertEqual(
            [each["viewpoint"] for each in status["endpoints"]], list(spaces.VIEWPOINTS)
        )
        self.assertEqual(status["observedGeneration"], 1)
        for type in (CREDENTIALS_VALID, PHYSICAL_SPACE_READY, PROVIDER_REACHABLE, SYNCED):
            self.assertEqual(self.world.said("one", type)[0], "True", type)
        self.assertEqual(self.world.reasons("one"), ["Ready"])

    def test_one_fails(self) -> None:
        """A Space that cannot be processed has an Event, and holds up no other; it is retried."""
        plan = worker.plan

        def failing(observation: SpaceObservation) -> SpacePlan:
            if observation.space["metadata"]["name"] == "broken":
                raise ZeroDivisionError
            return plan(observation)

        failed = self.patch(worker, "plan", failing)
        self.world.space("broken", "p")
        self.world.space("one", "p")
        self.world.settle(30)
        self.assertEqual(self.world.phase("one"), "Ready")
        self.assertEqual(self.world.reasons("broken"), ["ReconcileFailed"])
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        failed.restore()
        self.world.settle(90)
        self.assertEqual(self.world.phase("broken"), "Ready")

    def test_at_once(self) -> None:
        """A Space that appears is Ready within a second."""
        self.world.space("one", "p")
        self.world.pass_time(1.0)
        self.assertEqual(self.world.phase("one"), "Ready")

    def test_secrets(self) -> None:
        """Encoded once; one user, one cluster; labels, and the Space as the owner."""
        self.ready()
        secret = self.secret("external-one")
        labels = {
            spaces.SPACE_LABEL: "one",
            spaces.PROVIDER_LABEL: "p",
            spaces.MANAGED_BY: spaces.MANAGER,
        }
        self.assertEqual(secret["metadata"]["labels"], labels)
        (owner,) = secret["metadata"]["ownerReferences"]
        self.assertEqual(owner["uid"], self.world.seen("one")["metadata"]["uid"])
        self.assertEqual(secret["type"], "Opaque")
        config = json.loads(base64.b64decode(secret["data"]["kubeconfig"]))
        self.assertEqual([len(config[part]) for part in ("users", "clusters", "contexts")], [1] * 3)

    def test_one_user(self) -> None:
        """SF 2: of what a provider tells only the user that is meant is handed on."""
        told = self.spaces.kubeconfig

        def everybody(physical: Physical, space: MemorySpace) -> bytes:
            config = json.loads(told(physical, space))
            config["users"].append({"name": "shard-admin", "user": {"token": "everything"}})
            return json.dumps(config).encode()

        self.spaces.kubeconfig = everybody  # type: ignore[method-assign]
        self.ready()
        for name in self.world.secrets():
            self.assertNotIn("everything", json.dumps(self.world.kubeconfig(name)))

    def test_scope(self) -> None:
        """Secrets are for the viewpoints that were asked for, also when that changes."""
        self.ready(accessscopetype="External")
        self.assertEqual(self.world.secrets(), ["external-one"])
        self.world.space("one", "p", accessscopetype="InCluster")
        self.world.settle(3)
        self.assertEqual(self.world.secrets(), ["incluster-one"])
        self.assertNotIn("externalSecretRef", self.world.seen("one")["status"])

    def test_no_such_viewpoint(self) -> None:
        """A provider that has not got the viewpoint that was asked for is said not to."""
        self.spaces.held = True
        self.world.space("one", "p", accessscopetype="External")
        self.world.settle(1)
        self.spaces.spaces[ONE].viewpoints = ("InCluster",)
        self.spaces.release()
        self.world.settle(3)
        self.assertEqual(self.world.said("one", SYNCED), ("False", "NoSuchViewpoint"))

    def test_half(self) -> None:
        """One viewpoint of two is enough, and the other one comes when there is one."""
        self.spaces.held = True
        self.world.space("one", "p")
        self.world.settle(1)
        self.spaces.spaces[ONE].viewpoints = ("InCluster",)
        self.spaces.release()
        self.world.settle(3)
        self.assertEqual(
            (self.world.phase("one"), self.world.secrets()), ("Ready", ["incluster-one"])
        )
        self.spaces.spaces[ONE].viewpoints = spaces.VIEWPOINTS
        self.spaces.tell(ONE)
        self.world.settle(3)
        self.assertEqual(self.world.secrets(), ["external-one", "incluster-one"])

    def test_phase_does_not_decide(self) -> None:
        """SF 4: a Space that says Initializing, or Ready, and was never made, is made."""
        for name, phase in (("a", "Initializing"), ("b", "Ready"), ("c", "NotReady")):
            self.world.space(name, "p")
            space = {**self.world.seen(name), "status": {"Phase": phase}}
            self.world.client.update(spaces.SPACES, space, HOME, subresource="status")
        self.world.settle(3)
        self.assertEqual(sorted(each.name for each in self.spaces.spaces), ["a", "b", "c"])

    def test_refused(self) -> None:
        """SF 5: what a provider does not make is said, and tried again when that is worth it."""
        self.world.space("one", "p", parameters={"colour": "red"})
        self.world.settle(3)
        self.assertEqual(self.world.said("one", PHYSICAL_SPACE_READY), ("False", "CreateFailed"))
        self.assertEqual(self.world.said("one", SYNCED), ("False", "CreateFailed"))
        self.assertIn("there is no parameter colour", message(self.world.seen("one"), SYNCED))
        self.assertIn("CreateFailed", self.world.reasons("one"))
        self.assertEqual(self.world.phase("one"), "Initializing")
        self.world.settle(600)
        self.assertLess(self.calls("create"), 25)

    def test_conflict_at_the_provider(self) -> None:
        """A provider that waits for an earlier space of that name is asked less and less often."""

        def refuse(physical: Any, space: Any = None) -> Any:
            raise Conflict("space one is being deleted")

        put, self.spaces.put = self.spaces.put, refuse  # type: ignore[method-assign]
        self.world.space("one", "p")
        self.world.settle(600)
        self.assertLess(self.calls("create"), 25)
        self.assertEqual(self.world.said("one", SYNCED), ("False", "CreateFailed"))
        self.spaces.put = put  # type: ignore[method-assign]
        self.world.settle(300)
        self.assertEqual(self.world.phase("one"), "Ready")

    def test_mended(self) -> None:
        """A user who has mended what failed does not wait for the pause."""
        self.world.space("one", "p", parameters={"colour": "red"})
        self.world.settle(300)
        self.world.space("one", "p", parameters={"size": "1"})
        self.world.settle(2)
        self.assertEqual(self.world.phase("one"), "Ready")

    def test_delete_never_made(self) -> None:
        """SF 5: what never existed ends when it is deleted."""
        self.world.space("one", "p", parameters={"colour": "red"})
        self.world.settle(3)
        self.world.delete("one")
        self.world.settle(3)
        self.assertEqual(self.world.names(), [])

    def test_name_taken(self) -> None:
        """A foreign physical space of that name is left alone, and what to do is said."""
        self.world.desc("p", SpacePrefixForDiscovery="nothing-")
        self.spaces.put(ONE)
        self.world.space("one", "p")
        self.world.settle(5)
        self.assertEqual(self.world.said("one", PHYSICAL_SPACE_READY), ("False", "NameTaken"))
        self.assertIn(spaces.PHYSICAL_NAME, message(self.world.seen("one"), SYNCED))
        self.assertEqual((self.world.secrets(), self.world.phase("one")), ([], "NotReady"))
        self.world.delete("one")
        self.world.settle(5)
        self.assertEqual(self.world.names(), [])
        self.assertIn(ONE, self.spaces.spaces)
        self.assertEqual(self.calls("delete"), 0)

    def test_name_not_free_yet(self) -> None:
        """A foreign physical space that is being deleted is waited for: then the name is free."""
        self.world.desc("p", SpacePrefixForDiscovery="nothing-")
        self.spaces.spaces[ONE] = MemorySpace(owner="another", state=GOING)
        self.world.space("one", "p")
        self.world.settle(5)
        self.assertEqual(self.world.said("one", SYNCED), ("False", "NameTaken"))
        told = message(self.world.seen("one"), SYNCED)
        self.assertIn("is being deleted", told)
        self.assertNotIn("delete this Space", told)
        del self.spaces.spaces[ONE]
        self.world.settle(GONE_SECONDS + 5)
        self.assertEqual(self.world.phase("one"), "Ready")

    def test_taken_over(self) -> None:
        """What was ours and is another's by now is not deleted either."""
        self.ready()
        self.world.desc("p", SpacePrefixForDiscovery="nothing-")
        self.spaces.spaces[ONE] = MemorySpace(owner="another")
        self.spaces.tell(ONE)
        self.world.settle(5)
        self.assertEqual(self.world.said("one", SYNCED), ("False", "NameTaken"))
        self.assertEqual(self.world.secrets(), [])
        self.world.delete("one")
        self.world.settle(5)
        self.assertEqual((self.world.names(), list(self.spaces.spaces)), ([], [ONE]))

    def test_building(self) -> None:
        """It is Initializing for as long as its provider works on it."""
        self.spaces.held = True
        self.world.space("one", "p")
        self.world.settle(5)
        self.assertEqual(self.world.phase("one"), "Initializing")
        self.assertEqual(self.world.said("one", PHYSICAL_SPACE_READY), ("False", "Building"))
        self.assertEqual(self.world.secrets(), [])
        self.spaces.release()
        self.world.settle(2)
        self.assertEqual(self.world.phase("one"), "Ready")

    def test_slow_without_hints(self) -> None:
        """Whose provider tells nothing by itself is asked, ever less often."""
        self.spaces.held = True
        self.world.space("one", "p")
        self.world.settle(100)
        asked = self.calls("get")
        self.assertLess(asked, 20)
        self.spaces.spaces[ONE].state = "Usable"  # and nobody tells
        self.world.settle(35)
        self.assertEqual(self.world.phase("one"), "Ready")

    def test_broken(self) -> None:
        """What is broken is said to be, and mended."""
        self.ready()
        self.spaces.held = True
        self.spaces.put(ONE, MemorySpace(self.world.seen("one")["metadata"]["uid"], BROKEN))
        self.world.settle(2)
        self.assertEqual(self.spaces.spaces[ONE].state, BUILDING)
        self.assertEqual(self.world.phase("one"), "NotReady")
        self.spaces.release()
        self.world.settle(2)
        self.assertEqual(self.world.phase("one"), "Ready")

    def test_vanished(self) -> None:
        """What its provider has no more is made anew, once that is sure; what there was leads nowhere."""
        self.ready()
        before = self.world.seen("one")["status"]["physicalUID"]
        self.spaces.held = True
        self.spaces.drop(ONE)
        self.world.settle(1)
        self.assertEqual(len(self.world.secrets()), 2)
        self.world.settle(10)
        self.assertEqual(self.world.secrets(), [])
        self.assertIn("Vanished", self.world.reasons("one"))
        self.spaces.release()
        self.world.settle(3)
        self.assertEqual(self.world.phase("one"), "Ready")
        self.assertNotEqual(self.world.seen("one")["status"]["physicalUID"], before)

    def test_returns(self) -> None:
        """What was missing for a moment is the same as before."""
        self.ready()
        kept = self.spaces.spaces.pop(ONE)
        self.spaces.tell(ONE)
        self.world.settle(0.5)
        self.spaces.put(ONE, kept)
        self.world.settle(10)
        self.assertEqual((self.world.phase("one"), self.calls("create")), ("Ready", 1))

    def test_annotation_changed(self) -> None:
        """Who changes the physical name later moves nothing, and nothing is left behind."""
        self.ready()
        self.world.annotate("one", **{spaces.PHYSICAL_NAME: "two"})
        self.world.settle(5)
        self.assertEqual(list(self.spaces.spaces), [ONE])
        self.world.delete("one")
        self.world.settle(5)
        self.assertEqual((self.world.names(), self.spaces.spaces), ([], {}))

    def test_finalizers(self) -> None:
        """SF 11: upstream's finalizer goes, ours comes, and others' stay, each once."""
        self.world.space("one", "p")
        patch = {"metadata": {"finalizers": [spaces.OLD_FINALIZER, "x.example/y"]}}
        self.world.client.patch(spaces.SPACES, "one", patch, HOME)
        self.world.settle(3)
        told = self.world.seen("one")["metadata"]["finalizers"]
        self.assertEqual(told, ["x.example/y", spaces.FINALIZER])

    def test_finalizer_comes_back(self) -> None:
        """Whoever takes it off a Space that lives finds it there again."""
        self.ready()
        self.world.client.patch(spaces.SPACES, "one", {"metadata": {"finalizers": []}}, HOME)
        self.world.settle(2)
        self.assertEqual(self.world.seen("one")["metadata"]["finalizers"], [spaces.FINALIZER])

    def test_conflict(self) -> None:
        """SF 7: who changes the Space between two of our steps costs another look, and no more."""
        changes = []
        change = self.world.cluster.put

        def put(key: Any, obj: Any) -> Any:
            stored = change(key, obj)
            if key[0] == spaces.SPACES and len(changes) < 6:
                changes.append(key)
                other = {**obj, "metadata": {**obj["metadata"], "labels": {"n": str(len(changes))}}}
                change(key, other)
            return stored

        self.world.cluster.put = put  # type: ignore[method-assign]
        self.ready()
        self.assertEqual((len(changes), len(self.spaces.spaces)), (6, 1))
        self.assertIn("labels", self.world.seen("one")["metadata"])

    def test_wrong_namespace(self) -> None:
        """Spaces live with their provider; elsewhere nothing is done, and it is said where."""
        told = {"SpaceProviderDescName": "p"}
        self.world.put(spaces.SPACES, "one", "elsewhere", spec=told)
        self.world.settle(3)
        space = self.world.cluster.objects[spaces.SPACES, "elsewhere", "one"]
        self.assertEqual(condition(space, SYNCED), ("False", "WrongNamespace"))
        self.assertIn(HOME, message(space, SYNCED))
        self.assertEqual((self.spaces.spaces, space["metadata"].get("finalizers", [])), ({}, []))

    def test_secret_taken(self) -> None:
        """A Secret of that name that is not ours is never touched."""
        self.world.secret("external-one", HOME, kubeconfig=b"mine")
        self.world.space("one", "p")
        self.world.settle(3)
        self.assertEqual(self.world.said("one", SYNCED), ("False", "SecretTaken"))
        self.assertIn("external-one", message(self.world.seen("one"), SYNCED))
        self.assertEqual(self.secret("external-one")["data"]["kubeconfig"], "bWluZQ==")
        self.world.delete("one")
        self.world.settle(3)
        self.assertEqual(self.world.secrets(), ["external-one"])

    def test_secret_deleted(self) -> None:
        """SF 14: one of ours that is deleted, or changed, is there again as it was."""
        self.ready()
        before = self.secret("external-one")["data"]
        self.world.drop(SECRETS.resource, "external-one", HOME)
        self.world.settle(2)
        self.assertEqual(self.secret("external-one")["data"], before)
        self.world.client.patch(
            SECRETS.resource, "external-one", {"data": {"kubeconfig": "bWluZQ=="}}, HOME
        )
        self.world.settle(2)
        self.assertEqual(self.secret("external-one")["data"], before)

    def test_unusable(self) -> None:
        """A kubeconfig that runs programs is none, whoever tells it."""
        self.spaces.kubeconfig = lambda physical, space: json.dumps(  # type: ignore[method-assign]
            {
                "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
                "users": [{"name": "u", "user": {"exec": {"command": "evil"}}}],
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                "current-context": "x",
            }
        ).encode()
        self.world.space("one", "p")
        self.world.settle(3)
        self.assertEqual(self.world.said("one", CREDENTIALS_VALID), ("False", "Unusable"))
        self.assertEqual(self.world.secrets(), [])

    def test_nothing_to_do(self) -> None:
        """What is as it is to be costs no write."""
        self.ready()
        self.world.settle(30)
        before = len(self.world.cluster.requests)
        self.world.settle(1500)
        writes = [
            request
            for request in self.world.cluster.requests[before:]
            if request[0] not in ("get", "list", "watch")
        ]
        self.assertEqual(writes, [])

    def test_no_secrets_told(self) -> None:
        """Tokens are in Secrets and nowhere else."""
        self.ready()
        for (resource, _, _), each in self.world.cluster.objects.items():
            if resource != SECRETS.resource:
                self.assertNotIn("token-", json.dumps(each))


class TwoManagersTests(SynchronousTestCase):
    """Nothing depends on there being one manager at a time."""

    def test_everything_twice(self) -> None:
        """Two that act at once make nothing twice, and delete nothing that is not ours."""
        world = World()
        self.addCleanup(world.stop)
        world.desc("p")
        for _ in range(2):
            world.manager(Life())
        world.settle(3)
        for number in range(5):
            world.space(f"m{number}", "p")
            world.spaces_of().put(Physical(f"found-{number}"))
        world.settle(30)
        self.assertEqual(len(world.names()), 10)
        self.assertEqual({world.phase(name) for name in world.names()}, {"Ready"})
        self.assertEqual(len(world.secrets()), 20)
        owners = {space.owner for space in world.spaces_of().spaces.values()}
        self.assertEqual(len(owners), 6)
        for number in range(5):
            world.delete(f"m{number}")
        world.settle(60)
        self.assertEqual(sorted(world.names()), [f"found-{number}" for number in range(5)])
        self.assertEqual((len(world.spaces_of().spaces), len(world.secrets())), (5, 10))
