"""
Tests for :mod:`twisted_exec.spacemanager.spaces.publishing`, over a hub and providers in memory.
"""

from __future__ import annotations

from typing import Any

from tests.spacemanager.live import World, condition
from tests.spacemanager.spaces.loop_case import HOME, WorldTestCase
from twisted_exec.api import spaces
from twisted_exec.api.kinds import CLUSTERPROFILES
from twisted_exec.spacemanager.spaces.publishing import profile_of
from twisted_exec.testing.cluster import unreachable


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

    def test_of_an_earlier_space(self) -> None:
        """The profile of an earlier Space of that name goes; there is none until this one is Ready."""
        self.spaces.held = True
        self.world.space("one", "p")
        self.world.settle(3)
        key = (CLUSTERPROFILES.resource, HOME, "one")
        earlier = self.world.seen("one")
        earlier = {**earlier, "metadata": {**earlier["metadata"], "uid": "earlier"}}
        profile = profile_of(earlier, "v1.36.2", None, 0.0)
        self.world.done(self.world.client.create(CLUSTERPROFILES.resource, profile, HOME))
        self.world.settle(3)
        self.assertNotIn(key, self.world.cluster.objects)
        self.spaces.release()
        self.world.settle(5)
        self.assertIn(key, self.world.cluster.objects)

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
