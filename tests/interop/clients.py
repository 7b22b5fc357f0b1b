"""The rows of the table of clients, and every verb of every kubectl."""

from __future__ import annotations

from collections.abc import Sequence

from twisted.trial.unittest import TestCase

from tests import needs
from tests.apiserver.support import machine
from tests.apiserver.test_service_kubectl import CLASS, KubectlCase
from tests.clients import kubectl, matrix, scripts
from tests.clients.client import Client
from tests.clients.table import read
from tests.flows import kubectls
from tests.flows.kubectl.test_verbs import VerbCase
from twisted_exec.api import kinds


class _RowCase(TestCase):
    timeout = 300

    async def same_as_told(self, clients: Sequence[Client]) -> None:
        """Check that every column works, as in the documentation."""
        self.assertTrue(clients)
        rows, failures = await matrix.find(clients)
        self.assertEqual(failures, [], "\n\n".join(failures))
        told = read(matrix.PAGE.read_text(encoding="utf-8"))
        found = {row.client: row.marks for row in rows}
        expected = {name: told.get(name) for name in found}
        self.assertEqual(expected, found, f"write it again: {matrix.COMMAND}")


class KubectlsTests(_RowCase):
    """The kubectls of this machine."""

    timeout = 1200
    skip = needs.kubectl()

    async def test_rows(self) -> None:
        """The rows of all versions in the documentation are up to date."""
        told = read(matrix.PAGE.read_text(encoding="utf-8"))
        # The page may lack a version of this machine.
        await self.same_as_told([each for each in await kubectl.found() if each.name in told])


class LibrariesTests(_RowCase):
    """The libraries of Python and JavaScript, and a WebSocket as a page opens it."""

    timeout = 1200
    skip = needs.javascript()

    async def test_rows(self) -> None:
        """The rows in the documentation are up to date."""
        await self.same_as_told(scripts.found())


class VerbTests(VerbCase):
    """The verbs of kubectl."""

    async def test_every_kubectl(self) -> None:
        """Each row of ``verbs.yaml`` has its expected output and exit code with every version at once."""
        await self.check_table(list(kubectls.found().values()))


class NewestKubectlTests(_RowCase):
    """A kubectl that was built from Go."""

    skip = needs.newest_kubectl()

    async def test_row(self) -> None:
        """kubectl's row in the documentation is up to date."""
        await self.same_as_told(await kubectl.newest())


class OldestKubectlRowTests(_RowCase):
    """Debian's kubectl."""

    skip = needs.oldest_kubectl()

    async def test_row(self) -> None:
        """The row of kubectl 1.20 in the documentation is up to date."""
        await self.same_as_told(await kubectl.oldest())


class OldestKubectlTests(KubectlCase):
    """kubectl 1.20."""

    skip = needs.oldest_kubectl()

    async def test_oldest(self) -> None:
        """kubectl 1.20 explains, compares and validates with OpenAPI version 2 only."""
        await self.admin.create(kinds.MACHINECLASSES.resource, CLASS)
        self.kubectl = needs.oldest_kubectl_program() or ""
        explained = await self.run_kubectl("explain", "machine.spec")
        self.assertIn("spec is the desired state of the machine.", explained)
        on, off = machine("vm"), machine("vm", power="Off")
        dry = await self.run_kubectl("create", "--dry-run=server", "-f", "-", stdin=on)
        self.assertIn("created (server dry run)", dry)
        await self.run_kubectl("apply", "-f", "-", stdin=on)
        compared = await self.run_kubectl("diff", "-f", "-", stdin=off, code=1)
        self.assertIn('+  power: "Off"', compared)
        mistake = machine("vm", pwoer="On")
        refused = await self.run_kubectl("apply", "-f", "-", stdin=mistake, code=1)
        self.assertIn('ValidationError(Machine.spec): unknown field "pwoer"', refused)


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
