"""
Tests for :mod:`twisted_exec.spacemanager.spaces.loop`, over a hub and providers in memory.
"""

from __future__ import annotations

from tests.spacemanager.live import message
from tests.spacemanager.spaces.loop_case import HOME, ONE, WorldTestCase
from twisted_exec.api import spaces
from twisted_exec.api.spaces import (
    CREDENTIALS_VALID,
    PHYSICAL_SPACE_READY,
)
from twisted_exec.spacemanager.interfaces import Physical
from twisted_exec.testing.space_provider import MemorySpace


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
