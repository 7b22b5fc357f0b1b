"""
Tests for :mod:`twisted_exec.spacemanager.spaces.loop`, over a hub and providers in memory.

``SF n`` is the n-th defect of upstream's Space Framework that is not to be had again.
"""

from __future__ import annotations

import base64
import json
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.trial.unittest import SynchronousTestCase

from tests.spacemanager.live import World, condition, message
from tests.spacemanager.mortal import Life
from twisted_exec.api import spaces
from twisted_exec.api.kinds import CLUSTERPROFILES
from twisted_exec.api.kinds.secrets import SECRETS
from twisted_exec.api.spaces import (
    CREDENTIALS_VALID,
    PHYSICAL_SPACE_READY,
    PROVIDER_REACHABLE,
    PROVIDERS,
    SYNCED,
)
from twisted_exec.api.status import Forbidden, ServiceUnavailable
from twisted_exec.spacemanager.interfaces import BROKEN, BUILDING, GOING, USABLE, Physical
from twisted_exec.spacemanager.spaces.observation import GONE_SECONDS
from twisted_exec.testing.cluster import unreachable
from twisted_exec.testing.space_provider import MemorySpace

ONE = Physical("one")
HOME = "spaceprovider-p"


class WorldTestCase(SynchronousTestCase):
    """A world with one provider, and one manager."""

    def setUp(self) -> None:
        self.world = World()
        self.addCleanup(self.world.stop)
        self.world.desc("p")
        self.manager = self.world.manager()
        self.world.settle(3)
        self.spaces = self.world.spaces_of()

    def ready(self, name: str = "one", **spec: Any) -> None:
        self.world.space(name, "p", **spec)
        self.world.settle(3)
        self.assertEqual(self.world.phase(name), "Ready")

    def secret(self, name: str, namespace: str = HOME) -> Any:
        return self.world.cluster.objects[SECRETS.resource, namespace, name]

    def calls(self, name: str) -> int:
        return sum(1 for call, _ in self.spaces.calls if call == name)


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


class ProviderTests(WorldTestCase):
    """What becomes of Spaces with their provider."""

    def test_unreachable(self) -> None:
        """Unreachable is not vanished: all stays, and it is said why nothing is done."""
        self.ready()
        self.spaces.problem = ServiceUnavailable("it is down; start it")
        self.spaces.tell()
        self.world.settle(120)
        self.assertEqual(self.world.phase("one"), "Ready")
        self.assertEqual(len(self.world.secrets()), 2)
        self.assertNotEqual(self.world.said("one", PROVIDER_REACHABLE)[0], "True")
        self.assertIn("it is down", message(self.world.seen("one"), PROVIDER_REACHABLE))
        self.world.space("two", "p")
        self.world.settle(5)
        self.assertEqual(self.world.phase("two"), "Initializing")
        self.spaces.problem = None
        self.world.settle(60)
        self.assertEqual(self.world.phase("two"), "Ready")
        self.assertEqual(self.world.said("one", PROVIDER_REACHABLE)[0], "True")

    def test_delete_while_unreachable(self) -> None:
        """What cannot be deleted just now is, later."""
        self.ready()
        self.spaces.problem = unreachable()
        self.world.settle(60)
        self.world.delete("one")
        self.world.settle(30)
        self.assertEqual(self.world.names(), ["one"])
        self.spaces.problem = None
        self.world.settle(60)
        self.assertEqual((self.world.names(), self.spaces.spaces), ([], {}))

    def test_refused(self) -> None:
        """A provider that does not let us in has not lost anything."""
        self.ready()
        self.spaces.problem = Forbidden("nobody may list; grant that")
        self.spaces.tell()
        self.world.settle(120)
        self.assertEqual((self.world.phase("one"), len(self.world.secrets())), ("Ready", 2))

    def test_gone_with_managed_left(self) -> None:
        """SF 5: a Space whose provider is gone is kept, and it is said how it ends; both ways work."""
        for name in ("one", "two"):
            self.ready(name)
        self.world.drop(PROVIDERS, "p")
        self.world.settle(3)
        self.assertEqual(self.world.said("one", PROVIDER_REACHABLE), ("False", "NoProvider"))
        for name in ("one", "two"):
            self.world.delete(name)
        self.world.settle(30)
        self.assertEqual(self.world.names(), ["one", "two"])
        told = message(self.world.seen("one"), SYNCED)
        self.assertIn('SpaceProviderDesc "p"', told)
        self.assertIn(spaces.FINALIZER, told)
        self.assertIn("NoProvider", self.world.reasons("one"))
        patch = {"metadata": {"finalizers": []}}
        self.world.client.patch(spaces.SPACES, "one", patch, HOME)
        self.world.settle(3)
        self.assertEqual((self.world.names(), self.calls("delete")), (["two"], 0))
        self.assertEqual(self.world.secrets(), ["external-two", "incluster-two"])
        self.world.desc("p", SpacePrefixForDiscovery="x-")
        self.world.settle(10)
        self.assertEqual((self.world.names(), list(self.spaces.spaces)), ([], [ONE]))

    def test_gone_is_told_once(self) -> None:
        """A provider that is gone is one thing to be mended, so there is one Event of it."""
        self.ready()
        self.world.drop(PROVIDERS, "p")
        self.world.settle(3)
        self.assertEqual(self.world.reasons("one").count("NoProvider"), 1)

    def stopped_with_provider(self, *physical: Physical, seconds: float = 2.0) -> None:
        """Let API servers stop this long after their provider is closed, as local ones do."""
        provider = self.world.made[-1][1]

        def close() -> Deferred[None]:
            closing: Deferred[None] = deferLater(self.world.clock, seconds)
            return closing.addCallback(lambda _: self.world.silent.update(physical))

        provider.close = close  # type: ignore[method-assign]

    def test_gone_and_stopped(self) -> None:
        """
        A Space whose API server stopped on the manager's host together with its provider is NotReady
        within seconds, and Ready as soon as the provider is back.
        """
        self.ready()
        self.stopped_with_provider(ONE)
        self.world.drop(PROVIDERS, "p")
        self.world.settle(4)
        self.assertEqual(self.world.said("one", PHYSICAL_SPACE_READY), ("False", "Unreachable"))
        self.assertIn(
            'SpaceProviderDesc "p"', message(self.world.seen("one"), PHYSICAL_SPACE_READY)
        )
        self.assertEqual(self.world.phase("one"), "NotReady")
        self.world.settle(600)
        self.assertEqual(self.world.reasons("one").count("Unreachable"), 1)
        self.world.silent.clear()
        self.world.desc("p")
        self.world.settle(3)
        self.assertEqual(self.world.phase("one"), "Ready")

    def test_gone_before_the_manager(self) -> None:
        """A new manager finds out at once that such an API server has stopped."""
        self.ready()
        self.manager.stop()
        self.world.drop(PROVIDERS, "p")
        self.world.silent.add(ONE)
        self.world.manager()
        self.world.settle(4)
        self.assertEqual(self.world.phase("one"), "NotReady")

    def test_gone_and_running(self) -> None:
        """A Space that is still served when its provider is gone stays Ready, also for a new manager."""
        self.ready()
        self.world.drop(PROVIDERS, "p")
        self.world.settle(4)
        self.assertEqual(self.world.said("one", PHYSICAL_SPACE_READY), ("True", "Answers"))
        self.assertEqual(self.world.phase("one"), "Ready")

    def test_gone_and_unreachable(self) -> None:
        """On another host the API server may still be reachable for others, so the Space stays Ready."""
        self.spaces.server = lambda physical: f"https://{physical}.example"
        self.ready()
        self.stopped_with_provider(ONE)
        self.world.drop(PROVIDERS, "p")
        self.world.settle(4)
        self.assertEqual(self.world.said("one", PHYSICAL_SPACE_READY), ("Unknown", "Unreachable"))
        self.assertEqual(self.world.phase("one"), "Ready")

    def test_made_anew(self) -> None:
        """SF 6: a provider that is made anew is another one: its adaptor, its Secret, its discovery."""
        self.ready()
        self.world.drop(PROVIDERS, "p")
        self.world.settle(5)
        before = len(self.world.made)
        self.world.desc("p")
        self.world.settle(5)
        self.assertGreater(len(self.world.made), before)
        self.spaces.put(Physical("found"))
        self.world.settle(3)
        self.assertEqual(self.world.said("one", SYNCED), ("True", "Synced"))
        self.assertEqual(self.world.phase("found"), "Ready")

    def test_never_there(self) -> None:
        """A Space of a provider that never was says so, and ends when it is deleted."""
        self.world.space("one", "q")
        self.world.settle(3)
        self.assertEqual(self.world.said("one", SYNCED, "q"), ("False", "NoProvider"))
        self.world.delete("one", "q")
        self.world.settle(3)
        self.assertEqual(self.world.names(), [])

    def test_dead_one_delays_nobody(self) -> None:
        """SF 8: a provider that never answers keeps no other's Spaces waiting."""
        self.world.desc("dead")
        self.world.settle(3)
        self.world.world("dead").stalled = True
        for number in range(40):
            self.world.space(f"s{number}", "dead")
        self.world.settle(1)
        self.world.space("one", "p")
        self.world.pass_time(1)
        self.assertEqual(self.world.phase("one"), "Ready")

    def test_dead_spaces_delay_nobody(self) -> None:
        """Nor do physical spaces that cannot be reached."""
        for number in range(40):
            physical = Physical(f"s{number}")
            self.world.silent.add(physical)
            self.world.space(physical.name, "p")
        self.world.settle(5)
        self.assertEqual(self.world.said("s1", PHYSICAL_SPACE_READY), ("Unknown", "Unreachable"))
        self.world.space("one", "p")
        self.world.pass_time(1)
        self.assertEqual(self.world.phase("one"), "Ready")


class CredentialTests(WorldTestCase):
    """Whether what is in the Secrets is good, and what is done when it is not."""

    def test_unreachable(self) -> None:
        """What was Ready stays so while it cannot be reached from here; it is said."""
        self.ready()
        self.world.silent.add(ONE)
        self.world.settle(700)
        self.assertEqual(self.world.phase("one"), "Ready")
        self.assertEqual(self.world.said("one", PHYSICAL_SPACE_READY), ("Unknown", "Unreachable"))
        self.world.silent.clear()
        self.world.settle(130)
        self.assertEqual(self.world.said("one", PHYSICAL_SPACE_READY), ("True", "Answers"))

    def test_away_and_back(self) -> None:
        """
        What a provider says can be used again is Ready when it was probed again, and not by what it
        was before.
        """
        self.ready()
        self.spaces.spaces[ONE].state = BUILDING
        self.spaces.tell(ONE)
        self.world.settle(5)
        self.assertEqual(self.world.said("one", PHYSICAL_SPACE_READY)[0], "False")
        self.world.silent.add(ONE)
        self.spaces.spaces[ONE].state = USABLE
        self.spaces.tell(ONE)
        self.world.settle(30)
        self.assertEqual(self.world.said("one", PHYSICAL_SPACE_READY), ("Unknown", "Unreachable"))
        self.world.silent.clear()
        self.world.settle(130)
        self.assertEqual(self.world.phase("one"), "Ready")

    def test_never_reached(self) -> None:
        """What nobody could reach was never Ready."""
        self.world.silent.add(ONE)
        self.world.space("one", "p")
        self.world.settle(30)
        self.assertEqual(self.world.phase("one"), "Initializing")

    def test_rotated_by_the_provider(self) -> None:
        """SF 14: new credentials come into the same Secret, and it stays the same object."""
        self.ready()
        uid, before = (
            self.secret("external-one")["metadata"]["uid"],
            self.world.token("external-one"),
        )
        self.spaces.spaces[ONE].generation += 1
        self.spaces.tell(ONE)
        self.world.settle(3)
        self.assertNotEqual(self.world.token("external-one"), before)
        self.assertEqual(self.secret("external-one")["metadata"]["uid"], uid)
        self.assertEqual(self.world.phase("one"), "Ready")

    def test_asked(self) -> None:
        """The annotation has new ones made, once for each value."""
        self.ready()
        for value in ("1", "1", "2"):
            self.world.annotate("one", **{spaces.ROTATE: value})
            self.world.settle(3)
        self.assertEqual(self.calls("rotate"), 2)
        self.assertEqual(self.world.token("external-one")[-2:], "-3")
        self.assertIn("Rotated", self.world.reasons("one"))

    def test_cannot(self) -> None:
        """Who asks a provider that cannot is told so, once."""
        self.world.rotates = False
        self.world.drop(PROVIDERS, "p")
        self.world.settle(3)
        self.world.desc("p")
        self.world.settle(3)
        self.ready()
        self.world.annotate("one", **{spaces.ROTATE: "1"})
        self.world.settle(700)
        self.assertEqual(self.world.reasons("one").count("CannotRotate"), 1)

    def test_revoked(self) -> None:
        """What is refused is asked for again, and made anew where it is the same."""
        self.ready()
        self.world.revoked.add(self.world.token("external-one"))
        self.world.settle(700)
        self.assertEqual(self.calls("rotate"), 1)
        self.assertEqual(self.world.phase("one"), "Ready")
        self.assertIn("Rotated", self.world.reasons("one"))

    def test_revoked_for_good(self) -> None:
        """Where there are no others, it is said, and what to do; nobody is asked too often."""
        self.ready()
        self.world.revoked |= {f"token-{self.spaces.spaces[ONE].uid}-{n}" for n in range(50)}
        self.world.settle(3000)
        self.assertEqual(self.world.said("one", CREDENTIALS_VALID), ("False", "Refused"))
        self.assertEqual(self.world.phase("one"), "NotReady")
        self.assertLess(self.calls("rotate"), 8)

    def test_end_soon(self) -> None:
        """Those that end are renewed before they do, by themselves."""
        self.world.lasting(self.spaces, 3600.0)
        self.ready()
        self.assertIn("credentialsExpireTime", self.world.seen("one")["status"])
        self.world.pass_time(2700, 5.0)
        self.assertEqual(self.calls("rotate"), 0)
        self.world.pass_time(400, 5.0)
        self.assertEqual(self.calls("rotate"), 1)
        self.assertEqual(self.world.phase("one"), "Ready")


class DiscoveryTests(WorldTestCase):
    """What providers have besides."""

    def test_found(self) -> None:
        """SF 1: it has an object, and Secrets, at once."""
        self.spaces.put(ONE)
        self.world.pass_time(2)
        self.assertEqual(self.world.phase("one"), "Ready")
        self.assertEqual(self.world.seen("one")["spec"]["accessscopetype"], "Both")
        self.assertEqual(self.world.seen("one")["metadata"].get("finalizers", []), [])
        self.assertEqual(self.world.secrets(), ["external-one", "incluster-one"])

    def test_each_its_own(self) -> None:
        """SF 12: what is written of one is never another's."""
        for name in ("a", "b", "c"):
            told = ("InCluster",) if name == "b" else spaces.VIEWPOINTS
            self.spaces.put(Physical(name), MemorySpace(viewpoints=told))
        self.world.settle(3)
        for name in ("a", "b", "c"):
            uid = self.spaces.spaces[Physical(name)].uid
            status = self.world.seen(name)["status"]
            self.assertEqual(self.world.token(f"incluster-{name}"), f"token-{uid}-1")
            self.assertEqual("externalSecretRef" in status, name != "b")

    def test_same_name(self) -> None:
        """SF 9: two of one name in two places are two Spaces."""
        for parent in ("", "root:a", "root:b"):
            self.spaces.put(Physical("one", parent))
        self.world.settle(3)
        self.assertEqual(self.world.names(), ["one", "root-a.one", "root-b.one"])
        uids = {self.world.seen(name)["status"]["physicalUID"] for name in self.world.names()}
        self.assertEqual(len(uids), 3)

    def test_odd_name(self) -> None:
        """What cannot be the name of an object gets another, the same each time."""
        odd = Physical("Odd_Space")
        self.spaces.put(odd)
        self.world.settle(3)
        (name,) = self.world.names()
        self.assertEqual(self.world.phase(name), "Ready")
        self.spaces.drop(odd)
        self.world.settle(60)
        self.assertEqual(self.world.names(), [])
        self.spaces.put(odd)
        self.world.settle(3)
        self.assertEqual(self.world.names(), [name])

    def test_name_not_free(self) -> None:
        """Where somebody has the name, it gets a longer one."""
        self.world.space("root.one", "p")
        self.spaces.put(Physical("one", "root"))
        self.world.settle(5)
        self.assertEqual(len(self.world.names()), 2)
        (other,) = set(self.world.names()) - {"root.one"}
        self.assertEqual(self.world.phase(other), "Ready")

    def test_gone(self) -> None:
        """It goes with what it stands for, once that is sure."""
        self.spaces.put(ONE)
        self.world.settle(3)
        self.spaces.drop(ONE)
        self.world.pass_time(0.5)
        self.assertEqual(self.world.names(), ["one"])
        self.world.settle(40)
        self.assertEqual((self.world.names(), self.world.secrets()), ([], []))

    def test_object_deleted(self) -> None:
        """Who deletes the picture of something that is there sees it again, without a restart."""
        self.spaces.put(ONE)
        self.world.settle(3)
        uid = self.world.seen("one")["metadata"]["uid"]
        self.world.delete("one")
        self.world.settle(3)
        self.assertNotEqual(self.world.seen("one")["metadata"]["uid"], uid)
        self.assertEqual(self.world.phase("one"), "Ready")
        (owner,) = self.secret("external-one")["metadata"]["ownerReferences"]
        self.assertEqual(owner["uid"], self.world.seen("one")["metadata"]["uid"])

    def test_prefix(self) -> None:
        """Who passes no more goes, as far as we made it; managed ones and users' own stay."""
        self.ready("mine")
        self.spaces.put(Physical("ks-1"))
        self.spaces.put(Physical("other"))
        self.spaces.put(Physical("theirs"))
        told = {"SpaceProviderDescName": "p", "Type": "unmanaged"}
        self.world.put(spaces.SPACES, "theirs", HOME, spec=told)
        self.world.settle(5)
        self.assertEqual(self.world.names(), ["ks-1", "mine", "other", "theirs"])
        self.world.desc("p", SpacePrefixForDiscovery="ks-")
        self.world.settle(5)
        self.assertEqual(self.world.names(), ["ks-1", "mine", "theirs"])
        self.assertEqual(len(self.spaces.spaces), 4)
        self.world.desc("p", SpacePrefixForDiscovery="*")
        self.world.settle(5)
        self.assertEqual(len(self.world.names()), 4)

    def test_deleted_managed_is_not_found_again(self) -> None:
        """What is being deleted, or just was, is not taken for a discovery."""
        self.spaces.held = True
        self.world.space("one", "p")
        self.world.settle(1)
        self.spaces.release()
        self.world.settle(2)
        self.spaces.held = True
        self.world.delete("one")
        self.world.settle(5)
        self.spaces.release()
        self.world.settle(40)
        self.assertEqual((self.world.names(), self.world.secrets()), ([], []))

    def test_vanished_while_away(self) -> None:
        """What went while no manager ran is noticed by the next one."""
        self.spaces.put(ONE)
        self.world.settle(3)
        self.manager.stop()
        self.world.settle(1)
        self.spaces.drop(ONE)
        self.world.manager()
        self.world.settle(60)
        self.assertEqual(self.world.names(), [])

    def test_by_hand(self) -> None:
        """An unmanaged Space that a user made is the user's to delete."""
        told = {"SpaceProviderDescName": "p", "Type": "unmanaged"}
        self.spaces.put(ONE)
        self.world.put(spaces.SPACES, "one", HOME, spec=told)
        self.world.settle(3)
        self.assertEqual(self.world.phase("one"), "Ready")
        self.spaces.drop(ONE)
        self.world.settle(60)
        self.assertEqual(self.world.said("one", PHYSICAL_SPACE_READY), ("False", "Vanished"))
        self.assertEqual((self.world.names(), self.world.secrets()), (["one"], []))
        shown = message(self.world.seen("one"), CREDENTIALS_VALID)  # by tables: it is the first
        self.assertIn("make it, or delete this Space", shown)


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


class PublishedTests(WorldTestCase):
    """ClusterProfiles."""

    def profile(self, name: str = "one") -> Any:
        return self.world.cluster.objects[CLUSTERPROFILES.resource, HOME, name]

    def test_ready(self) -> None:
        """A Space that is Ready is published, without credentials."""
        self.ready()
        profile = self.profile()
        self.assertEqual(profile["spec"]["clusterManager"]["name"], spaces.MANAGER)
        status = profile["status"]
        self.assertEqual(condition(profile, "ControlPlaneHealthy"), ("True", "Answers"))
        self.assertEqual(status["version"], {"kubernetes": "v1.36.2"})
        (way,) = status["accessProviders"]
        self.assertEqual(way["cluster"]["server"], "https://127.0.0.1:1/one")
        (extension,) = way["cluster"]["extensions"]
        where = {"name": "external-one", "namespace": HOME, "key": "kubeconfig"}
        self.assertEqual(extension["extension"], where)

    def test_goes(self) -> None:
        """It goes with its Space."""
        self.ready()
        self.world.delete("one")
        self.world.settle(5)
        self.assertNotIn((CLUSTERPROFILES.resource, HOME, "one"), self.world.cluster.objects)

    def test_foreign(self) -> None:
        """One that is not ours is left alone, and it is said."""
        spec = {"clusterManager": {"name": "another"}}
        self.world.put(CLUSTERPROFILES.resource, "one", HOME, spec=spec)
        self.ready()
        self.assertEqual(self.profile()["spec"], spec)
        self.assertIn("NotPublished", self.world.reasons("one"))
        self.world.delete("one")
        self.world.settle(5)
        self.assertEqual(self.profile()["spec"], spec)

    def test_taken_away_and_put_back(self) -> None:
        """Where the hub had not got the API for a while, all is published anew before long."""
        self.ready()
        cluster = self.world.cluster
        kind = cluster.kinds.pop(CLUSTERPROFILES.resource)
        key = next(each for each in cluster.objects if each[0] == CLUSTERPROFILES.resource)
        cluster.remove(key)
        self.world.settle(5)
        cluster.end_watches(unreachable())
        cluster.kinds[CLUSTERPROFILES.resource] = kind
        self.world.settle(15)
        self.assertEqual(condition(self.profile(), "ControlPlaneHealthy"), ("True", "Answers"))

    def test_not_served(self) -> None:
        """Where the hub has not got the API, nothing is missed."""
        world = World(
            tuple(kind for kind in World().cluster.kinds.values() if kind != CLUSTERPROFILES)
        )
        self.addCleanup(world.stop)
        world.desc("p")
        world.manager()
        world.settle(3)
        world.space("one", "p")
        world.settle(3)
        self.assertEqual(world.phase("one"), "Ready")
        asked = [
            each for each in world.cluster.requests if each[1] == CLUSTERPROFILES.resource.plural
        ]
        self.assertEqual(len(asked), 1)
