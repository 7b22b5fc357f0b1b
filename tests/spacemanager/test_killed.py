"""
A manager that is killed at any of its steps: whoever comes next makes of it what was wanted, and
nothing is left over.

Each scenario is run again and again with a manager that dies before, or behind, its first step, its
second, and so on, until one lives to the end.  A step is a write to the hub, of providers and of
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
    Something that is wanted while a manager is killed.

    :ivar world: where.
    """

    def __init__(self) -> None:
        self.world = World()
        self.world.desc("p")

    def prepare(self) -> None:
        """What there is, made by a manager that lives."""

    def ask(self) -> None:
        """What users want, or what happens, while the one that dies runs."""

    def check(self, test: Any) -> None:
        """How it is to be in the end."""


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
    """Something that happens to a Space that is there."""

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
    """It is deleted while it is being made, by whoever is killed anywhere between."""

    prepare = Scenario.prepare

    def ask(self) -> None:
        self.world.space("one", "p")
        self.world.settle(0.5)
        self.world.delete("one")


class SlowDelete(Delete):
    """The provider takes its time."""

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
    """Somebody else deletes it at the provider."""

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
    """A user deletes the object of something that is there."""

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
    """Its object is deleted, and what it stands for lives."""

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
    """What it stood for is there no more."""

    def ask(self) -> None:
        self.world.tokens.clear()
        self.world.delete("one")


class KilledTests(SynchronousTestCase):
    """Each scenario, killed at each step."""

    def run_all(self, make: Callable[[], Scenario], least: int) -> None:
        """
        :param least: how many steps there are at least, so that this tries what it says.
        """
        for steps in range(MOST_STEPS):
            ends = [self.run_once(make, Life(steps, had=had)) for had in (False, True)]
            if not any(ends):
                self.assertGreaterEqual(steps, least)
                return
        self.fail(f"more than {MOST_STEPS} steps")

    def run_once(self, make: Callable[[], Scenario], life: Life) -> bool:
        """:return: whether it was killed."""
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
        """Each Secret of ours is of a Space that is there."""
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
        """SF 4, SF 5: what is wanted is made, once, by whoever is there."""
        self.run_all(Create, 6)

    def test_delete(self) -> None:
        """What is deleted goes, and takes what was made for it along."""
        self.run_all(Delete, 4)

    def test_create_and_delete(self) -> None:
        """What is deleted before it was there leaves nothing."""
        self.run_all(CreateAndDelete, 6)

    def test_slow_delete(self) -> None:
        """It is waited for the provider, whoever waits."""
        self.run_all(SlowDelete, 4)

    def test_rotate(self) -> None:
        """New credentials that were asked for are had, in the same Secrets."""
        self.run_all(Rotate, 4)

    def test_vanish(self) -> None:
        """What vanished is made anew, and its credentials are the new one's."""
        self.run_all(Vanish, 6)

    def test_discover(self) -> None:
        """SF 1: what is discovered has its object and its Secrets."""
        self.run_all(Discover, 4)

    def test_lose(self) -> None:
        """What is gone takes its object and its Secrets along."""
        self.run_all(Lose, 3)

    def test_lose_prefix(self) -> None:
        """What discovery takes no more loses its object, and nothing else."""
        self.run_all(LosePrefix, 3)

    def test_comes_back(self) -> None:
        """A picture that was deleted is drawn again."""
        self.run_all(ComesBack, 3)

    def test_import_anew(self) -> None:
        """What was imported and lives is there again."""
        self.run_all(ImportAnew, 4)

    def test_import_forgotten(self) -> None:
        """What is forgotten stays so; Secrets of users are theirs."""
        self.run_all(ImportForgotten, 1)

    def test_import_gone(self) -> None:
        """What lives no more is not made anew."""
        self.run_all(ImportGone, 1)
