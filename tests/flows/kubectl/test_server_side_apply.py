"""
Server-side apply with real kubectls, old and new, on machines that a poollet runs.

The expected output is that of the same kubectls with kube-apiserver 1.33.1.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from twisted.trial.unittest import TestCase

from tests import needs
from tests.flows import kubectls, shared
from tests.tiers import PROGRAMS
from twisted_exec.api import kinds

MACHINES = kinds.MACHINES.resource
SERVER_SIDE = ("apply", "--server-side", "-f", "-")
CLIENT_SIDE = ("apply", "-f", "-")


def machine(name: str, labels: dict[str, str], power: str = "Off") -> bytes:
    body = {
        "apiVersion": MACHINES.api_version,
        "kind": MACHINES.kind,
        "metadata": {"name": name, "labels": labels},
        "spec": {"machineClassRef": {"name": "shell"}, "power": power},
    }
    return json.dumps(body).encode()


class ApplyTests(TestCase):
    """Typical uses of ``kubectl apply --server-side``."""

    starts = PROGRAMS
    skip = needs.kubectl()

    async def setUp(self) -> None:
        self.deployment = await shared.deployment(self)
        kubeconfig = str(Path(self.deployment.admin).resolve())
        self.env = {"KUBECONFIG": kubeconfig, "HOME": str(Path(self.mktemp()))}

    async def run_kubectl(
        self, *words: str, stdin: bytes = b"", code: int = 0, env: Any = None
    ) -> str:
        """Run kubectl, check its exit code, and return all of its output."""
        ended, _, told = await kubectls.run(
            self.kubectl, *words, env=self.env | (env or {}), stdin=stdin
        )
        self.assertEqual(ended, code, (self.kubectl, words, told))
        return told

    async def each(self, story: Any) -> None:
        """Run a story once per kubectl, each with its own machine."""
        found = kubectls.found()
        for number, name in enumerate(kubectls.some()):
            self.kubectl = found[name]
            await story(f"vm-{number}")

    async def managers(self, name: str) -> list[str]:
        """Return ``MANAGER/OPERATION`` of kubectl's entries, without those of the status."""
        entries = "{range .metadata.managedFields[*]}{.manager}/{.operation}/{.subresource} {end}"
        told = await self.run_kubectl("get", "machine", name, "-o", f"jsonpath={entries}")
        # The scheduler and the poollet may add entries at any time.
        mine = [each for each in told.split() if each.startswith("kubectl")]
        return sorted(each.rstrip("/") for each in mine if not each.endswith("/status"))

    async def labels(self, name: str) -> Any:
        path = "jsonpath={.metadata.labels}"
        return json.loads(await self.run_kubectl("get", "machine", name, "-o", path))

    async def test_conflict(self) -> None:
        """A conflict names the field and its other manager; only force takes the field over."""

        async def story(name: str) -> None:
            for _ in range(2):
                told = await self.run_kubectl(*SERVER_SIDE, stdin=machine(name, {"a": "x"}))
                self.assertEqual(told, f"machine.compute.ironcore.dev/{name} serverside-applied\n")
            patch = ("--type=merge", "-p", '{"metadata":{"labels":{"a":"z"}}}')
            await self.run_kubectl("patch", "machine", name, *patch)
            told = await self.run_kubectl(*SERVER_SIDE, stdin=machine(name, {"a": "x"}), code=1)
            self.assertIn(
                'error: Apply failed with 1 conflict: conflict with "kubectl-patch" using '
                "compute.ironcore.dev/v1alpha1: .metadata.labels.a\n",
                told,
            )
            self.assertIn("--force-conflicts", told)
            forced = (*SERVER_SIDE, "--force-conflicts")
            await self.run_kubectl(*forced, stdin=machine(name, {"a": "x"}))
            self.assertEqual(await self.labels(name), {"a": "x"})
            self.assertEqual(await self.managers(name), ["kubectl/Apply"])

        await self.each(story)

    async def test_shared(self) -> None:
        """A field of two managers is removed when neither applies it any more."""

        async def story(name: str) -> None:
            other = (*SERVER_SIDE, "--field-manager=other")
            await self.run_kubectl(*SERVER_SIDE, stdin=machine(name, {"a": "x", "b": "x"}))
            await self.run_kubectl(*other, stdin=machine(name, {"b": "x"}))
            await self.run_kubectl(*SERVER_SIDE, stdin=machine(name, {}))
            self.assertEqual(await self.labels(name), {"b": "x"})
            told = await self.run_kubectl(*SERVER_SIDE, stdin=machine(name, {"b": "y"}), code=1)
            self.assertIn('conflict with "other": .metadata.labels.b', told)
            await self.run_kubectl(*other, stdin=machine(name, {"c": "x"}))
            self.assertEqual(await self.labels(name), {"c": "x"})

        await self.each(story)

    async def test_shown(self) -> None:
        """
        ``--show-managed-fields`` shows the entries; the poollet's entry covers only the status.
        """

        async def story(name: str) -> None:
            pooled = json.loads(machine(name, {"a": "x"}, "On"))
            pooled["spec"]["machinePoolRef"] = {"name": "pool-a"}
            await self.run_kubectl(*SERVER_SIDE, stdin=json.dumps(pooled).encode())
            await self.deployment.machine_in_state(name, "Running")
            yaml = ("get", "machine", name, "-o", "yaml")
            self.assertNotIn("managedFields", await self.run_kubectl(*yaml))
            told = await self.run_kubectl(*yaml, "--show-managed-fields")
            self.assertIn(
                "      f:spec:\n        f:machineClassRef: {}\n        f:machinePoolRef: {}\n", told
            )
            self.assertIn("    subresource: status\n", told)
            shown = ("get", "machine", name, "-o", "json", "--show-managed-fields")
            entries = json.loads(await self.run_kubectl(*shown))["metadata"]["managedFields"]
            [status] = [entry for entry in entries if entry.get("subresource") == "status"]
            self.assertEqual((status["manager"], status["operation"]), ("exec-poollet", "Update"))
            self.assertEqual(list(status["fieldsV1"]), ["f:status"])
            self.assertIn("f:state", status["fieldsV1"]["f:status"])
            # The poollet's status does not conflict with the next apply.
            await self.run_kubectl(*SERVER_SIDE, stdin=json.dumps(pooled).encode())

        await self.each(story)

    async def test_diff(self) -> None:
        """
        ``diff --server-side`` shows the changes and removals of an apply, without making them.
        """

        async def story(name: str) -> None:
            await self.run_kubectl(*SERVER_SIDE, stdin=machine(name, {"a": "x"}))
            diff = ("diff", "--server-side", "-f", "-")
            told = await self.run_kubectl(*diff, stdin=machine(name, {"b": "x"}), code=1)
            self.assertIn("-    a: x\n+    b: x\n", told)
            self.assertEqual(await self.run_kubectl(*diff, stdin=machine(name, {"a": "x"})), "")
            self.assertEqual(await self.labels(name), {"a": "x"})

        await self.each(story)

    async def test_from_client_side(self) -> None:
        """Server-side apply changes and removes client-side applied fields without a conflict."""

        async def story(name: str) -> None:
            await self.run_kubectl(*CLIENT_SIDE, stdin=machine(name, {"a": "x", "b": "x"}))
            self.assertEqual(await self.managers(name), ["kubectl-client-side-apply/Update"])
            await self.run_kubectl(*SERVER_SIDE, stdin=machine(name, {"a": "w"}))
            self.assertEqual(await self.labels(name), {"a": "w"})
            self.assertNotIn("kubectl-client-side-apply/Update", await self.managers(name))
            # And back: kubectl's last-applied annotation covers the server-side apply.
            await self.run_kubectl(*CLIENT_SIDE, stdin=machine(name, {"c": "x"}))
            self.assertEqual(await self.labels(name), {"c": "x"})

        await self.each(story)

    async def test_from_server_side(self) -> None:
        """A client-side apply takes over the server-side applied fields that it changes."""

        async def story(name: str) -> None:
            await self.run_kubectl(*SERVER_SIDE, stdin=machine(name, {"a": "x"}))
            told = await self.run_kubectl(*CLIENT_SIDE, stdin=machine(name, {"a": "w"}))
            self.assertIn("configured", told)
            self.assertEqual(
                await self.managers(name), ["kubectl-client-side-apply/Update", "kubectl/Apply"]
            )
            told = await self.run_kubectl(*SERVER_SIDE, stdin=machine(name, {"a": "v"}))
            self.assertEqual(await self.labels(name), {"a": "v"})

        await self.each(story)

    async def test_edit(self) -> None:
        """``kubectl edit`` takes over the fields that it changes."""

        async def story(name: str) -> None:
            applied = machine(name, {"a": "before"})
            await self.run_kubectl(*SERVER_SIDE, stdin=applied)
            editor = {"EDITOR": "sed -i s/before/after/"}
            await self.run_kubectl("edit", "machine", name, env=editor)
            self.assertEqual(await self.labels(name), {"a": "after"})
            told = await self.run_kubectl(*SERVER_SIDE, stdin=applied, code=1)
            self.assertIn('conflict with "kubectl-edit" using', told)

        await self.each(story)

    async def test_refused(self) -> None:
        """An unknown field is refused by its path, and no object is created."""

        async def story(name: str) -> None:
            wrong = json.loads(machine(name, {}))
            wrong["spec"]["pwoer"] = "On"
            told = await self.run_kubectl(*SERVER_SIDE, stdin=json.dumps(wrong).encode(), code=1)
            self.assertIn(
                f"Error from server (BadRequest): failed to create typed patch object "
                f"(default/{name}; compute.ironcore.dev/v1alpha1, Kind=Machine): "
                ".spec.pwoer: field not declared in schema",
                told,
            )
            self.assertIn("NotFound", await self.run_kubectl("get", "machine", name, code=1))

        await self.each(story)
