"""The rows of the table of clients that not every machine has."""

from __future__ import annotations

from collections.abc import Sequence

from twisted.trial.unittest import TestCase

from tests import needs
from tests.clients import kubectl, matrix, scripts
from tests.clients.client import Client
from tests.clients.table import read


class _RowCase(TestCase):
    timeout = 300

    async def same_as_told(self, clients: Sequence[Client]) -> None:
        """Check that every column works, as in the documentation."""
        (client,) = clients
        rows, failures = await matrix.find([client])
        self.assertEqual(failures, [], "\n\n".join(failures))
        told = read(matrix.PAGE.read_text(encoding="utf-8"))
        self.assertEqual(told.get(client.name), rows[0].marks, f"write it again: {matrix.COMMAND}")


class NewestKubectlTests(_RowCase):
    """A kubectl that was built from Go."""

    skip = needs.newest_kubectl()

    async def test_row(self) -> None:
        """kubectl's row in the documentation is up to date."""
        await self.same_as_told(await kubectl.newest())


class ChromiumTests(_RowCase):
    """A page in a real browser."""

    skip = needs.chromium()

    async def test_row(self) -> None:
        """The browser's row in the documentation is up to date."""
        await self.same_as_told(scripts.browsers())


class KubeRsTests(_RowCase):
    """The crate ``kube``, in a program that was built with Cargo."""

    skip = needs.kube_rs()

    async def test_row(self) -> None:
        """The row of kube-rs in the documentation is up to date."""
        await self.same_as_told([each for each in scripts.built() if "Rust" in each.name])


class Fabric8Tests(_RowCase):
    """fabric8, in a program that was built with Maven."""

    skip = needs.fabric8()

    async def test_row(self) -> None:
        """fabric8's row in the documentation is up to date."""
        await self.same_as_told([each for each in scripts.built() if "Java " in each.name])
