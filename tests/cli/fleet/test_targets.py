"""Tests for :mod:`twisted_exec.cli.fleet.targets`: the client against a server on loopback."""

from __future__ import annotations

from typing import Any

from twisted.internet import reactor

from tests.cli.fleet.support import FleetCase
from twisted_exec.api.status import Forbidden
from twisted_exec.cli.cluster_options import config_of
from twisted_exec.cli.fleet.targets import Selection, SelectionError, select
from twisted_exec.journal.journal import Journal


class SelectTests(FleetCase):
    """Tests for :func:`select` in one cluster."""

    async def select(self, *words: str) -> Selection:
        options = self.options(*words)
        return await select(options, config_of(options), reactor)

    async def labels(self, *words: str) -> list[str]:
        return [target.label for target in (await self.select(*words)).targets]

    async def refusal(self, *words: str) -> str:
        try:
            await self.select(*words)
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
            "the selector 'app=web' matches no machine in namespace \"default\"; -A selects in all namespaces",
        )
        self.assertEqual(await self.refusal("--all", "-A"), "--all matches no machine")

    async def test_refused(self) -> None:
        """A server that refuses is an error with its reason."""
        self.fleet.list_problem = Forbidden("you may not list machines")
        self.assertEqual(await self.refusal("--all"), "forbidden: you may not list machines")

    async def test_unreachable(self) -> None:
        """So is a server that cannot be reached."""
        self.config = type(self.config)("http://127.0.0.1:1")
        self.assertIn("cannot reach", await self.refusal("--all"))

    async def test_no_machines_at_all(self) -> None:
        """A server without the API of machines is named."""
        self.fleet.dialects = ()
        self.assertIn("has no machines", await self.refusal("--all"))

    async def test_dialect(self) -> None:
        """Another dialect than that of the server has no machines there."""
        self.fleet.add("default/a")
        self.assertEqual(await self.labels("--all", "--dialect", "ironcore"), ["a"])
        refusal: Any = await self.refusal("--all", "--dialect", "onmetal")
        self.assertIn("has no machines of dialect onmetal", refusal)
