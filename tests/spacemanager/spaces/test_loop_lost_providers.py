"""
Spaces whose provider is out of reach, refuses the manager, or is gone.
"""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater

from tests.spacemanager.live import message
from tests.spacemanager.spaces.loop_case import HOME, ONE, WorldTestCase
from twisted_exec.api import spaces
from twisted_exec.api.spaces import (
    PHYSICAL_SPACE_READY,
    PROVIDER_REACHABLE,
    PROVIDERS,
    SYNCED,
)
from twisted_exec.api.status import Forbidden, ServiceUnavailable
from twisted_exec.spacemanager.interfaces import Physical
from twisted_exec.testing.cluster import unreachable


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
