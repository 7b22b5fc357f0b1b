"""Tests for :mod:`twisted_exec.cli.fleet.targets`: the client against a server on loopback."""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred, FirstError
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.cli.fleet.support import FleetCase, FleetsCase
from tests.clocks import expire
from tests.spaces.hub import HubTestCase
from twisted_exec.api import spaces
from twisted_exec.api.dialects import DEFAULT
from twisted_exec.api.kinds import MACHINES
from twisted_exec.api.status import APIError, Forbidden
from twisted_exec.cli.console import space
from twisted_exec.cli.console.options import parse_options
from twisted_exec.cli.console.space import Visit
from twisted_exec.cli.fleet import targets
from twisted_exec.cli.fleet.targets import Cluster, FleetTarget, Selection, SelectionError
from twisted_exec.cli.options import config_of
from twisted_exec.journal.journal import Journal
from twisted_exec.kube.kubeconfig.client_config import ClientConfig
from twisted_exec.spaces.interfaces import SpaceName

CONFIG = ClientConfig("http://127.0.0.1:1")
TOO_MANY = (
    "%d machines match, and there is room for %d beside those of the other clusters; narrow the selection "
    "with -l, -n or --space"
)


async def select(options: Any) -> tuple[list[str], dict[str, str]]:
    """Return the labels of the selected machines, and the failures by the name of the cluster."""
    labels: list[str] = []
    failures: dict[str, str] = {}
    selection = Selection(
        options,
        config_of(options),
        reactor,
        lambda found: labels.extend(target.label for target in found),
        failures.__setitem__,
    )
    await selection.run()
    return labels, failures


class SelectTests(FleetCase):
    """Tests for :class:`Selection` in one cluster."""

    async def labels(self, *words: str) -> list[str]:
        return (await select(self.options(*words)))[0]

    async def refusal(self, *words: str) -> str:
        try:
            await self.labels(*words)
        except SelectionError as error:
            return str(error)
        raise AssertionError("machines were selected")

    async def test_selector(self) -> None:
        """Labels select machines in the namespace, in the order of their names."""
        self.fleet.add("default/b", "default/a", "lab/c")
        self.fleet.labels["default/b"] = {"app": "db"}
        self.assertEqual(await self.labels("--all"), ["a", "b"])
        self.assertEqual(await self.labels("-l", "app=web"), ["a"])
        self.assertEqual(await self.labels("-l", "app", "-n", "lab"), ["c"])

    async def test_namespaces(self) -> None:
        """Machines of several namespaces are labelled with the namespace."""
        self.fleet.add("default/a", "lab/a", "lab/b")
        self.assertEqual(await self.labels("--all", "-A"), ["default/a", "lab/a", "lab/b"])
        self.assertEqual(await self.labels("--all", "-n", "lab"), ["a", "b"])

    async def test_too_many(self) -> None:
        """More machines than the limit are refused with the remedy, and not fetched."""
        journal = Journal()
        for number in range(5000):
            key = f"default/vm-{number}"
            self.fleet.journals[key], self.fleet.labels[key] = journal, {}
        self.assertEqual(
            await self.refusal("--all"),
            "more than 500 machines match, and the limit is 500; narrow the selection with -l, -n or --space",
        )
        self.assertEqual(self.fleet.listed, 501)

    async def test_limit(self) -> None:
        """The limit itself is permitted."""
        journal = Journal()
        for number in range(500):
            key = f"default/vm-{number}"
            self.fleet.journals[key], self.fleet.labels[key] = journal, {}
        self.assertEqual(len(await self.labels("--all")), 500)

    async def test_none(self) -> None:
        """A selection without machines is an error that names the selector and the namespace."""
        self.assertEqual(
            await self.refusal("-l", "app=web"),
            'the selector "app=web" matches no machine in namespace "default"; -A selects in all namespaces',
        )
        self.assertEqual(await self.refusal("--all", "-A"), "--all matches no machine")
        self.fleet.missing_namespace = "default"
        self.assertEqual(
            await self.refusal("--all"),
            'namespace "default" does not exist; kubectl get namespaces lists the namespaces',
        )

    async def test_refused(self) -> None:
        """A server that refuses is an error with its reason."""
        self.fleet.list_problem = Forbidden("you may not list machines")
        self.assertEqual(await self.refusal("--all"), "forbidden: you may not list machines")

    async def test_all_rights(self) -> None:
        """A refused list asks for all roles that the command needs."""
        words = 'User "eve" cannot list resource "machines" in API group "compute.ironcore.dev"'
        where = ' in the namespace "default"'
        for further, roles in (
            ((), "roles console-log-reader and view"),
            (("--tiled",), "roles console-observer and view"),
            (("--run", "id"), "roles console-user and view"),
            (("--run", "id", "--force"), "role console-operator"),
        ):
            self.fleet.list_problem = Forbidden(words + where)
            refusal = await self.refusal("--all", *further)
            self.assertIn(f"ask an administrator for the {roles}: kubectl create", refusal)

    async def test_unreachable(self) -> None:
        """So is a server that cannot be reached."""
        self.config = type(self.config)("http://127.0.0.1:1")
        self.assertIn("cannot reach", await self.refusal("--all"))

    async def test_no_machines_at_all(self) -> None:
        """A server without the API of machines is named."""
        self.fleet.dialects = ()
        self.assertIn("has no machines", await self.refusal("--all"))

    async def test_hostile_name(self) -> None:
        """A name with other characters than names have is refused, and shown without them."""
        for name in ("\x1b]0;x\x07", "a | b", "a\nb", "x" * 1000):
            self.fleet.journals.clear()
            self.fleet.add("default/a", f"default/{name}")
            refusal = await self.refusal("--all")
            self.assertIn('has a machine with an invalid name: "default/', refusal)
            self.assertTrue(refusal.isprintable())
            self.assertLess(len(refusal), 200)

    async def test_dialect(self) -> None:
        """Another dialect than that of the server has no machines there."""
        self.fleet.add("default/a")
        self.assertEqual(await self.labels("--all", "--dialect", "ironcore"), ["a"])
        refusal: Any = await self.refusal("--all", "--dialect", "onmetal")
        self.assertIn("has no machines of dialect onmetal", refusal)


class ClustersTests(FleetsCase):
    """Tests for :class:`Selection` in several clusters: each is on its own."""

    async def selected(self) -> tuple[list[str], dict[str, str]]:
        """Return the labels of the machines, and the failures."""
        return await select(self.options("--all"))

    async def test_hostile(self) -> None:
        """A cluster with answers that are none, or with names that are none, fails; the others are there."""
        await self.add_fleet("lab-1", "a", "b")
        for number, wrong in enumerate((1, "abc", [7], [{"name": 1}])):
            fleet = await self.add_fleet(f"bad-{number}", "c")
            fleet.documents["/apis"] = {"groups": wrong}
        await self.add_fleet("bad-4", "\x1b[2Ja")
        labels, failures = await self.selected()
        self.assertEqual(labels, ["lab-1/a", "lab-1/b"])
        self.assertEqual(sorted(failures), [f"bad-{number}" for number in range(5)])
        self.assertIn("/apis: its groups are not a list of names", failures["bad-0"])
        self.assertIn("has a machine with an invalid name", failures["bad-4"])

    async def test_our_error(self) -> None:
        """So does a cluster that provokes an error of ours."""
        await self.add_fleet("lab-1", "a")
        await self.add_fleet("lab-2", "b")
        machines = targets._machines

        async def fail(cluster: Cluster, *more: Any) -> list[FleetTarget]:
            if cluster.name == "lab-2":
                raise TypeError("no")
            return await machines(cluster, *more)

        self.patch(targets, "_machines", fail)
        _, failures = await self.selected()
        self.assertEqual(failures, {"lab-2": "internal error: TypeError: no"})

    async def test_large(self) -> None:
        """A cluster with more machines than the limit fails; the others are there."""
        await self.add_fleet("lab-1", "a")
        await self.add_fleet("large", *(f"vm-{number}" for number in range(600)))
        labels, failures = await self.selected()
        self.assertEqual(labels, ["lab-1/a"])
        self.assertEqual(
            failures,
            {
                "large": "more than 500 machines match, and the limit is 500; narrow the selection with -l, "
                "-n or --space"
            },
        )

    async def test_silent(self) -> None:
        """The machines of a cluster are there, however many others are silent."""
        for number in range(24):
            (await self.add_fleet(f"silent-{number}")).is_silent = True
        await self.add_fleet("lab-1", "a")
        found: Deferred[Sequence[FleetTarget]] = Deferred()
        failures: list[str] = []
        options = self.options("--all", "--request-timeout", "3600")
        selection = Selection(
            options,
            config_of(options),
            reactor,
            found.callback,
            lambda name, why: failures.append(name),
        )
        running = Deferred.fromCoroutine(selection.run())
        self.assertEqual([target.label for target in await found], ["lab-1/a"])
        self.assertEqual((len(selection.waiting), failures), (24, []))
        while not all(fleet.heads for name, fleet in self.fleets.items()):
            await self._settle()
        expire(reactor, 3000)
        await running
        self.assertEqual((selection.waiting, len(failures)), ([], 24))

    async def test_left(self) -> None:
        """When the user leaves, no cluster is asked any more."""
        (await self.add_fleet("silent")).is_silent = True
        await self.add_fleet("lab-1", "a")
        found: Deferred[Sequence[FleetTarget]] = Deferred()
        options = self.options("--all")
        selection = Selection(options, config_of(options), reactor, found.callback, self.fail)
        running = Deferred.fromCoroutine(selection.run())
        await found
        running.cancel()
        with self.assertRaises(FirstError):
            await running


class SharesTests(SynchronousTestCase):
    """The limit for all clusters."""

    def answered(self, *counts: int, late: int = 0) -> tuple[list[int], dict[str, str]]:
        """
        Answer with so many machines of clusters called a, b...; return the numbers that are shown, and the
        problems of clusters that failed.

        :param late: number of clusters that fail after all others.
        """
        shown: list[int] = []
        failed: dict[str, str] = {}
        names = string.ascii_lowercase[: len(counts) + late]
        spaces = [SpaceName(name, "p", "") for name in names]
        visits = {name: Deferred() for name in names}  # type: ignore[var-annotated]

        async def machines(cluster: Cluster, *_: Any) -> list[FleetTarget]:
            count = counts[names.index(cluster.name)]
            return [
                FleetTarget(cluster, DEFAULT, "default", f"vm-{n}", str(n)) for n in range(count)
            ]

        async def all_spaces(*_: Any) -> list[SpaceName]:
            return spaces

        self.patch(targets, "_spaces", all_spaces)
        self.patch(targets, "_machines", machines)
        self.patch(targets, "_CONCURRENT_VISITS", len(names))
        self.patch(space, "visit", lambda mine, options, reactor: visits[options.space])
        options = parse_options(["--all", "--space", "*"])
        selection = Selection(
            options,
            CONFIG,
            Clock(),
            lambda found: shown.append(len(found)),
            failed.__setitem__,
        )
        running = Deferred.fromCoroutine(selection.run())
        for name, _ in zip(names, counts, strict=False):
            visits[name].callback(Visit(CONFIG))
        before = list(shown)
        for name in names[len(counts) :]:
            visits[name].errback(APIError("no"))
        self.successResultOf(running)
        self.before = before
        return shown, failed

    def test_share(self) -> None:
        """A cluster with no more than its share is shown at once, also after larger ones."""
        self.assertEqual(self.answered(400, 250), ([250], {"a": TOO_MANY % (400, 250)}))
        self.assertEqual(self.answered(450, 100, 100), ([100, 100], {"a": TOO_MANY % (450, 300)}))

    def test_rest(self) -> None:
        """What others leave is for larger clusters, as soon as it is certain."""
        self.assertEqual(self.answered(400, 10, 20), ([10, 20, 400], {}))
        self.assertEqual(self.answered(300, 10, late=2), ([10, 300], {"c": "no", "d": "no"}))
        self.assertEqual(self.before, [10])

    def test_smallest_first(self) -> None:
        """Of clusters that are too large together those with fewer machines are shown."""
        self.assertEqual(self.answered(450, 340, 100), ([100, 340], {"a": TOO_MANY % (450, 60)}))

    def test_all(self) -> None:
        """The limit itself is permitted."""
        self.assertEqual(self.answered(250, 250), ([250, 250], {}))
        self.assertEqual(self.answered(499, 1), ([1, 499], {}))


class SpacesTests(HubTestCase):
    """Tests for :class:`Selection` in the clusters of Spaces."""

    async def select(self, *words: str, user: str = "admin") -> tuple[list[str], dict[str, str]]:
        return await select(
            parse_options(["--all", "--kubeconfig", self.kubeconfig(f"user-{user}"), *words])
        )

    async def add_machines(self, *names: str) -> None:
        client = self.space_client("t1")
        for name in names:
            machine = {"metadata": {"name": name}, "spec": {"machineClassRef": {"name": "small"}}}
            await client.create(MACHINES.resource, machine, "default")

    async def test_pattern(self) -> None:
        """A pattern selects in all Spaces of such names; one that is not ready is named."""
        await self.start_space("t1")
        await self.put_space(self.config("t1"), "lab-1")
        await self.put_space(self.config("t1"), "lab-2", Phase=spaces.NOT_READY)
        await self.put_space(self.config("t1"), "lab-3")
        await self.put_space(self.config("t1"), "other")
        await self.add_machines("vm-1", "vm-2")
        labels, failures = await self.select("--space", "lab-*")
        # Both Spaces are of one server here; each is a cluster of its own for the client.
        self.assertEqual(sorted(labels), ["lab-1/vm-1", "lab-1/vm-2", "lab-3/vm-1", "lab-3/vm-2"])
        self.assertEqual(
            failures, {"lab-2": 'space "default/lab-2" cannot be reached: it is NotReady'}
        )

    async def test_one(self) -> None:
        """A name selects in one Space; its name is in no label, because it is the same in all."""
        await self.start_space("t1")
        await self.put_space(self.config("t1"))
        await self.add_machines("vm-1")
        self.assertEqual(await self.select("--space", "one"), (["vm-1"], {}))

    async def test_none(self) -> None:
        """A pattern that no Space matches, and a Space that does not exist, are errors."""
        await self.start_space("t1")
        await self.put_space(self.config("t1"))
        for words, reason in (
            ("two", 'space two: there is no space "two"; kubectl get spaces -A lists all spaces'),
            ("two*", 'no space matches "two*"; kubectl get spaces -A lists all spaces'),
        ):
            try:
                await self.select("--space", words)
            except SelectionError as error:
                self.assertEqual(str(error), reason)
            else:
                raise AssertionError("machines were selected")
