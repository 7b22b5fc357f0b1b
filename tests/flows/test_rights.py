"""
Rights at a console by role and by client, through three programs.

The result is the table ``docs/reference/rights-table.inc``; ``WRITE_DOCS=1`` in the environment
writes it anew.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

from twisted.internet import reactor
from twisted.trial.unittest import TestCase

from twisted_exec.api import kinds
from twisted_exec.api.status import APIError
from twisted_exec.kube.consoles.exec import open_console
from twisted_exec.kube.kubeconfig.loader import load
from twisted_exec.streaming.remotecommand.client import ConsoleClient
from twisted_exec.streaming.remotecommand.negotiation import OVER_SPDY
from twisted_exec.testing.attachment import RecordingUser
from twisted_exec.wire.channel import V5
from twisted_exec.wire.stream_options import CONSOLE

from . import kubectls
from .deployment import Deployment, pause

TABLE = Path(__file__).parents[2] / "docs" / "reference" / "rights-table.inc"
BINDINGS = kinds.ROLEBINDINGS.resource
ROLES = ("no role", "view", "console-observer", "edit", "admin")
TYPED = b"echo $((6*7))\n"
REFUSED, OBSERVES, DRIVES, TAKES_OVER = "refused", "observes", "drives", "takes over"
_OBSERVER = b"you may only observe this console"
_TAKEN = b"you have taken over this console"

Attempt = Callable[[str, bool], Awaitable[bytes | None]]
"""
Opens the console with a kubeconfig, with or without force, and types; returns what the user reads,
and ``None`` if the console was refused.
"""


class RightsTests(TestCase):
    """Verbs, roles and clients."""

    timeout = 240

    async def start(self, verbs: str) -> None:
        """Start programs whose verbs are compatible or strict."""
        self.deployment = deployment = Deployment(self.mktemp())
        self.addCleanup(deployment.stop)
        await deployment.start_api(f"--console-verbs={verbs}")
        await deployment.start_runtime()
        await deployment.start_poollet(f"--console-verbs={verbs}")
        await deployment.create_class("shell", "64Mi")
        await deployment.create_machine("sh", "shell")

    async def bind(self, role: str) -> str:
        """Return the kubeconfig of a new user with a role."""
        user = role.replace(" ", "-")
        if role != "no role":
            await self.deployment.client.create(
                BINDINGS,
                {
                    "apiVersion": "rbac.authorization.k8s.io/v1",
                    "kind": "RoleBinding",
                    "metadata": {"name": user},
                    "roleRef": {"kind": "ClusterRole", "name": role},
                    "subjects": [{"kind": "User", "name": user}],
                },
                "default",
            )
        return self.deployment.kubeconfig(user)

    async def opened(
        self, kubeconfig: str, protocol: str, force: bool = False
    ) -> tuple[ConsoleClient, RecordingUser]:
        config, user = load(kubeconfig), RecordingUser()
        options = replace(CONSOLE, force=force)
        client = await open_console(
            config, config.namespace, "sh", user, reactor, protocols=(protocol,), options=options
        )
        return client, user

    def ours(self, protocol: str) -> Attempt:
        """Return an attempt with our client."""

        async def attempt(kubeconfig: str, force: bool) -> bytes | None:
            try:
                client, user = await self.opened(kubeconfig, protocol, force)
            except APIError as error:
                self.assertEqual(error.code, 403, error.message)
                return None
            client.write(TYPED)
            while not any(each in user.received for each in (b"\n42", _OBSERVER, _TAKEN)):
                await pause()
            client.leave()
            return bytes(user.received)

        return attempt

    def kubectl(self, program: str, *command: str) -> Attempt:
        """Return an attempt with kubectl."""

        async def attempt(kubeconfig: str, force: bool) -> bytes | None:
            argv = [*command, "sh", "--", "console", *(["--force"] if force else [])]
            env = {**os.environ, "KUBECONFIG": kubeconfig}
            _, _, output = await kubectls.run(program, *argv, env=env, stdin=TYPED)
            return None if "Forbidden" in output else output.encode()

        return attempt

    async def outcome(self, attempt: Attempt, kubeconfig: str) -> str:
        """Return the highest right that a user has in practice."""
        shown = await attempt(kubeconfig, False)
        if shown is None:
            return REFUSED
        if _OBSERVER in shown:
            self.assertNotIn(b"\n42", shown)
            self.assertIsNone(await attempt(kubeconfig, True))
            return OBSERVES
        self.assertIn(b"\n42", shown)
        holder, user = await self.opened(self.deployment.admin, V5)
        holder.write(b"\n")
        try:
            forced = await attempt(kubeconfig, True)
            if forced is None:
                self.assertNotIn(b"has taken over", user.received)
                return DRIVES
            self.assertIn(_TAKEN, forced)
            return TAKES_OVER
        finally:
            holder.leave()
            while not user.detached_with:
                await pause()

    async def measured(self, verbs: str) -> dict[str, str]:
        """Return the right that each role gives with every client."""
        await self.start(verbs)
        clients: dict[str, Attempt] = {
            "our client, WebSocket": self.ours(V5),
            "our client, SPDY": self.ours(OVER_SPDY),
        }
        for name in kubectls.some():
            clients[name] = self.kubectl(kubectls.found()[name], "exec", "-i")
        outcomes: dict[str, str] = {}
        for role in ROLES:
            kubeconfig = await self.bind(role)
            each = {name: await self.outcome(run, kubeconfig) for name, run in clients.items()}
            self.assertEqual(len(set(each.values())), 1, (role, each))
            (outcomes[role],) = set(each.values())
        return outcomes

    async def test_matrix(self) -> None:
        """Every client gives a user the same right."""
        compatible, strict = [await self.measured(verbs) for verbs in ("compatible", "strict")]
        text = table(compatible, strict)
        if os.environ.get("WRITE_DOCS"):
            TABLE.write_text(text, encoding="utf-8")
        self.assertEqual(TABLE.read_text(encoding="utf-8"), text)


def table(compatible: dict[str, str], strict: dict[str, str]) -> str:
    """Return the table of the documentation."""
    lines = [".. list-table::", "   :header-rows: 1", "", "   * - Role"]
    lines += ["     - ``--console-verbs=compatible``", "     - ``--console-verbs=strict``"]
    for role, outcome in compatible.items():
        shown = role if role == "no role" else f"``{role}``"
        lines += [f"   * - {shown}", f"     - {outcome}", f"     - {strict[role]}"]
    return "\n".join([*lines, ""])
