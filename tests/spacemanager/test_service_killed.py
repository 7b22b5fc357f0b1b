"""
A manager that is killed at any of its steps: the next manager completes the work and leaves
nothing over.

Each scenario runs repeatedly with a manager that dies before, or after, its first step, its second,
and so on, until a manager survives to the end.  A step is a write to the hub, of providers and of
Spaces, or a call that changes what a provider has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.spacemanager.live import World
from tests.spacemanager.mortal import Life
from twisted_exec.api import spaces
from twisted_exec.api.kinds.secrets import SECRETS
from twisted_exec.spacemanager.interfaces import Physical

ONE = Physical("one")
MOST_STEPS = 60


class Scenario:
    """
    A change that happens while a manager is killed.

    :ivar world: the hub, its providers and its managers.
    """

    def __init__(self) -> None:
        self.world = World()
        self.world.desc("p")

    def prepare(self) -> None:
        """Set up the state from before, with a manager that survives."""

    def ask(self) -> None:
        """Make the change while the manager that will be killed runs."""

    def check(self, test: Any) -> None:
        """Check the final state."""


class Create(Scenario):
    def ask(self) -> None:
        self.world.space("one", "p")

    def check(self, test: Any) -> None:
        world = self.world
        test.assertEqual(world.phase("one"), "Ready")
        (made,) = world.spaces_of().spaces.values()
        test.assertEqual(made.owner, world.seen("one")["metadata"]["uid"])
        test.assertEqual(world.seen("one")["status"]["physicalUID"], made.uid)
        test.assertEqual(world.token("external-one"), f"token-{made.uid}-{made.generation}")
        test.assertEqual(world.secrets(), ["external-one", "incluster-one"])


class Ready(Create):
    """A change to a Space that is already Ready."""

    def prepare(self) -> None:
        self.world.space("one", "p")
        self.world.settle(3)


class Delete(Ready):
    def ask(self) -> None:
        self.world.delete("one")

    def check(self, test: Any) -> None:
        test.assertEqual(self.world.names(), [])
        test.assertEqual(self.world.spaces_of().spaces, {})
        test.assertEqual(self.world.secrets(), [])


class CreateAndDelete(Delete):
    """A Space is deleted while the manager that will be killed is creating it."""

    prepare = Scenario.prepare

    def ask(self) -> None:
        self.world.space("one", "p")
        self.world.settle(0.5)
        self.world.delete("one")


class SlowDelete(Delete):
    """The provider takes a while to delete."""

    def ask(self) -> None:
        self.world.spaces_of().held = True
        self.world.delete("one")
        self.world.settle(3)
        self.world.spaces_of().release()


class Rotate(Ready):
    def ask(self) -> None:
        self.world.annotate("one", **{spaces.ROTATE: "1"})

    def check(self, test: Any) -> None:
        super().check(test)
        test.assertGreater(self.world.spaces_of().spaces[ONE].generation, 1)
        test.assertEqual(self.world.seen("one")["status"]["rotated"], "1")


class Vanish(Ready):
    """A physical space is deleted at the provider, outside the manager."""

    def prepare(self) -> None:
        super().prepare()
        self.before = self.world.spaces_of().spaces[ONE].uid

    def ask(self) -> None:
        self.world.spaces_of().drop(ONE)

    def check(self, test: Any) -> None:
        super().check(test)
        test.assertNotEqual(self.world.spaces_of().spaces[ONE].uid, self.before)


class Discover(Scenario):
    def ask(self) -> None:
        self.world.spaces_of().put(ONE)

    def check(self, test: Any) -> None:
        test.assertEqual(self.world.names(), ["one"])
        test.assertEqual(self.world.phase("one"), "Ready")
        test.assertEqual(self.world.secrets(), ["external-one", "incluster-one"])


class Lose(Discover):
    def prepare(self) -> None:
        self.world.spaces_of().put(ONE)
        self.world.settle(3)

    def ask(self) -> None:
        self.world.spaces_of().drop(ONE)

    def check(self, test: Any) -> None:
        test.assertEqual(self.world.names(), [])
        test.assertEqual(self.world.secrets(), [])


class LosePrefix(Lose):
    def ask(self) -> None:
        self.world.desc("p", SpacePrefixForDiscovery="other-")

    def check(self, test: Any) -> None:
        super().check(test)
        test.assertIn(ONE, self.world.spaces_of().spaces)


class ComesBack(Discover):
    """A user deletes the Space object of a physical space that still exists."""

    prepare = Lose.prepare

    def ask(self) -> None:
        self.world.delete("one")


class Import(Scenario):
    def prepare(self) -> None:
        world = self.world
        world.tokens.add("given")
        world.secret("theirs", "spaceprovider-p", kubeconfig=world.given("given"))
        world.put(
            spaces.SPACES,
            "one",
            "spaceprovider-p",
            spec={"Type": "imported", "externalSecretRef": {"name": "theirs"}},
        )
        world.settle(3)

    def check(self, test: Any) -> None:
        test.assertEqual(self.world.names(), ["one"])
        test.assertEqual(self.world.phase("one"), "Ready")
        test.assertEqual(self.world.secrets(), ["theirs"])


class ImportAnew(Import):
    """The object of an imported Space is deleted while its API server still answers."""

    def prepare(self) -> None:
        super().prepare()
        self.before = self.world.seen("one")["metadata"]["uid"]

    def ask(self) -> None:
        self.world.delete("one")

    def check(self, test: Any) -> None:
        super().check(test)
        test.assertNotEqual(self.world.seen("one")["metadata"]["uid"], self.before)


class ImportForgotten(Import):
    def ask(self) -> None:
        self.world.annotate("one", **{spaces.FORGET: "true"})
        self.world.delete("one")

    def check(self, test: Any) -> None:
        test.assertEqual((self.world.names(), self.world.secrets()), ([], ["theirs"]))


class ImportGone(ImportForgotten):
    """The imported API server rejects the credentials from now on."""

    def ask(self) -> None:
        self.world.tokens.clear()
        self.world.delete("one")


class KilledTests(SynchronousTestCase):
    """Each scenario, killed at each step."""

    def run_all(self, make: Callable[[], Scenario], least: int) -> None:
        """
        :param least: the least number of steps, which proves that the scenario was really cut.
        """
        for steps in range(MOST_STEPS):
            ends = [self.run_once(make, Life(steps, had=had)) for had in (False, True)]
            if not any(ends):
                self.assertGreaterEqual(steps, least)
                return
        self.fail(f"more than {MOST_STEPS} steps")

    def run_once(self, make: Callable[[], Scenario], life: Life) -> bool:
        """:return: whether the manager was killed."""
        scenario = make()
        world = scenario.world
        first = world.manager()
        world.settle(3)
        scenario.prepare()
        first.stop()
        world.settle(1)
        world.manager(life)
        world.settle(1)
        scenario.ask()
        world.settle(12)
        last = life.last or "none"
        world.manager()
        world.settle(40)
        try:
            scenario.check(self)
            self.check_nothing_left(world)
        except self.failureException as failed:
            raise self.failureException(f"killed at {last!r}: {failed}") from failed
        world.stop()
        return life.is_over

    def check_nothing_left(self, world: World) -> None:
        """Check that every Secret of the manager has an existing Space as its owner."""
        uids = {
            each["metadata"]["uid"]
            for (resource, _, _), each in world.cluster.objects.items()
            if resource == spaces.SPACES
        }
        for (resource, _, name), each in world.cluster.objects.items():
            if resource == SECRETS.resource and name != "theirs":
                (owner,) = each["metadata"]["ownerReferences"]
                self.assertIn(owner["uid"], uids, name)

    def test_create(self) -> None:
        """SF 4, SF 5: a new Space becomes Ready with exactly one physical space."""
        self.run_all(Create, 6)

    def test_delete(self) -> None:
        """Deleting a Space also deletes its physical space and its Secrets."""
        self.run_all(Delete, 4)

    def test_create_and_delete(self) -> None:
        """A Space deleted during its creation leaves nothing behind."""
        self.run_all(CreateAndDelete, 6)

    def test_slow_delete(self) -> None:
        """The next manager also waits for a slow provider before the Space goes."""
        self.run_all(SlowDelete, 4)

    def test_rotate(self) -> None:
        """A requested rotation writes new credentials to the same Secrets."""
        self.run_all(Rotate, 4)

    def test_vanish(self) -> None:
        """A vanished physical space is recreated, and the Secrets hold its new credentials."""
        self.run_all(Vanish, 6)

    def test_discover(self) -> None:
        """SF 1: a discovered physical space gets a Space object and its Secrets."""
        self.run_all(Discover, 4)

    def test_lose(self) -> None:
        """A discovered physical space that disappears loses its Space object and its Secrets."""
        self.run_all(Lose, 3)

    def test_lose_prefix(self) -> None:
        """A new discovery prefix removes the objects it excludes, but no physical space."""
        self.run_all(LosePrefix, 3)

    def test_comes_back(self) -> None:
        """A deleted Space object is recreated while its discovered physical space exists."""
        self.run_all(ComesBack, 3)

    def test_import_anew(self) -> None:
        """A deleted imported Space is recreated while its API server answers."""
        self.run_all(ImportAnew, 4)

    def test_import_forgotten(self) -> None:
        """A forgotten imported Space is not recreated; the user's Secret stays."""
        self.run_all(ImportForgotten, 1)

    def test_import_gone(self) -> None:
        """A deleted imported Space is not recreated once its credentials are rejected."""
        self.run_all(ImportGone, 1)
