"""
Tests for :mod:`twisted_exec.spacemanager.spaces.plan`, over a hub and providers in memory.
"""

from __future__ import annotations

from tests.spacemanager.spaces.loop_case import ONE, WorldTestCase
from twisted_exec.api import spaces
from twisted_exec.api.spaces import (
    CREDENTIALS_VALID,
    PHYSICAL_SPACE_READY,
    PROVIDERS,
)
from twisted_exec.spacemanager.interfaces import BUILDING, USABLE


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
