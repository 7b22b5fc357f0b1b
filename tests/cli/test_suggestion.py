"""
Tests for :mod:`twisted_exec.cli.suggestion`, by ``kubectl console`` against a real server.
"""

from __future__ import annotations

from typing import Any

from twisted.internet import reactor

from tests.apiserver.chain import ChainTestCase
from tests.cli.typed import typed
from twisted_exec.api import kinds
from twisted_exec.api.status import APIError
from twisted_exec.cli.console.machine import MachineConsole
from twisted_exec.cli.console.options import parse_options
from twisted_exec.cli.console.streams import StandardStreams
from twisted_exec.cli.options import config_of
from twisted_exec.wire.stream_options import CONSOLE

_NOBODY: Any = None
"""The user of a session that is refused."""


class SuggestionTests(ChainTestCase):
    """The name of a machine that does not exist."""

    async def line(self, name: str, *words: str, user: str = "admin") -> str:
        """Return the message of ``kubectl console``."""
        path = self.kubeconfig(f"user-{user}")
        options = parse_options([name, "--kubeconfig", path, *words])
        console = MachineConsole(options, config_of(options), StandardStreams())
        with self.assertRaises(APIError) as caught:
            await console.attempt(_NOBODY, reactor, CONSOLE)
        return console.explain(caught.exception)

    async def allow(self, *verbs_and_resources: tuple[str, str]) -> None:
        """Give jane these rights in the namespace ``default``."""
        rules = [
            {"apiGroups": ["compute.ironcore.dev"], "resources": [resource], "verbs": [verb]}
            for verb, resource in verbs_and_resources
        ]
        role = {"metadata": {"name": "jane"}, "rules": rules}
        await self.admin.create(kinds.ROLES.resource, role, "default")
        binding = {
            "metadata": {"name": "jane"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "jane"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}],
        }
        await self.admin.create(kinds.ROLEBINDINGS.resource, binding, "default")

    async def test_similar(self) -> None:
        """A similar name of the namespace is suggested, in the case of all names."""
        await self.make_machine("web-1")
        self.assertIn("; did you mean web-1?", await self.line("WEB-1"))
        line = await self.line("wbe-1")
        self.assertEqual(
            line, 'machine "wbe-1" not found in namespace "default"; did you mean web-1?'
        )

    async def test_several(self) -> None:
        """Up to three names are suggested: those that begin with what was typed, or else similar names."""
        for name in ("web-1", "web-2", "db-1", "webcam"):
            await self.make_machine(name)
        for typed_name, names in (
            ("web", "web-1, web-2 or webcam"),
            ("w", "web-1, web-2 or webcam"),
            ("web-", "web-1 or web-2"),
            ("web-3", "web-2 or web-1"),
            ("wbe-1", "web-1"),
            ("db", "db-1"),
        ):
            line = await self.line(typed_name)
            self.assertTrue(line.endswith(f"; did you mean {names}?"), line)
        await self.make_machine("web-4")
        line = await self.line("web")
        self.assertTrue(line.endswith("; did you mean web-1, web-2 or web-4?"), line)

    async def test_equals(self) -> None:
        """Of names that are equally near, none is picked: up to three are suggested."""
        for name in ("web-long", "web-01"):
            await self.make_machine(name)
        line = await self.line("web-5")
        self.assertTrue(line.endswith("; did you mean web-01?"), line)
        for name in ("web-02", "web-03", "web-04"):
            await self.make_machine(name)
        line = await self.line("web-5")
        self.assertTrue(line.endswith("; did you mean web-02, web-03 or web-04?"), line)

    async def test_other_commands(self) -> None:
        """Logs and screens have the same hints."""
        await self.make_machine("web-1")
        for command, more in (
            ("logs", " If the machine was deleted, add --deleted"),
            ("screen", ""),
        ):
            path = self.kubeconfig("user-admin")
            _, _, told = await typed(self, command, "wbe-1", "--kubeconfig", path)
            hint = "did you mean web-1?"
            line = f'machine "wbe-1" not found in namespace "default"; {hint}{more}'
            self.assertEqual(told, f"twisted-exec {command}: {line}\n")

    async def test_other_namespace(self) -> None:
        """The namespace that has the machine is named."""
        await self.make_machine("web-1")
        await self.admin.create(kinds.NAMESPACES.resource, {"metadata": {"name": "lab"}})
        place = 'the machine is in namespace "default": use -n default'
        self.assertEqual(
            await self.line("web-1", "-n", "lab"),
            f'machine "web-1" not found in namespace "lab"; {place}',
        )
        self.assertEqual(
            await self.line("web-1", "-n", "lba"),
            f'machine "web-1" not found in namespace "lba"; this namespace does not exist; {place}',
        )

    async def test_missing_namespace(self) -> None:
        """A namespace that does not exist is the reason, if the user may read namespaces."""
        refusal = 'machine "web-2" not found in namespace "lab"'
        hint = "this namespace does not exist; kubectl get namespaces lists the namespaces"
        self.assertEqual(await self.line("web-2", "-n", "lab"), f"{refusal}; {hint}")
        jane = {"kind": "User", "name": "jane", "apiGroup": "rbac.authorization.k8s.io"}
        everywhere = {
            "metadata": {"name": "jane"},
            "roleRef": {**jane, "kind": "ClusterRole", "name": "console-user"},
            "subjects": [jane],
        }
        await self.admin.create(kinds.CLUSTERROLEBINDINGS.resource, everywhere)
        self.assertEqual(await self.line("web-2", "-n", "lab", user="jane"), refusal)

    async def test_pools(self) -> None:
        """A machine whose pool does not exist could be in the pools that are named."""
        await self.make_machine("web-1")
        self.assertTrue((await self.line("web-1")).endswith("says what to do"))
        for number in range(12):
            pool = {"metadata": {"name": f"pool-{number:02}"}}
            await self.admin.create(kinds.MACHINEPOOLS.resource, pool)
        line = await self.line("web-1")
        self.assertIn("; existing machinepools: pool-00, pool-01, ", line)
        self.assertTrue(line.endswith(", pool-09, ..."), line)
        await self.allow(("create", "machines/exec"))
        self.assertNotIn("existing", await self.line("web-1", user="jane"))

    async def test_list(self) -> None:
        """Without a similar name the hint is the command that lists the machines of the namespace."""
        await self.make_machine("web-1")
        line = await self.line("nix")
        remedy = "kubectl get machines -n default lists the machines there"
        self.assertEqual(line, f'machine "nix" not found in namespace "default"; {remedy}')

    async def test_nothing(self) -> None:
        """Without a similar machine, or without the right to list, there is only the refusal."""
        refusal = 'machine "wbe-1" not found in namespace "default"'
        self.assertEqual(await self.line("wbe-1"), refusal)
        await self.make_machine("web-1")
        await self.allow(("create", "machines/exec"))
        self.assertEqual(await self.line("wbe-1", user="jane"), refusal)
