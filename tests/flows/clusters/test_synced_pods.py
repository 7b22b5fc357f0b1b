"""
Pods that a node server creates in a leaf: two API servers of ours, and the tutorial's node in the
leaf.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any

from twisted.trial.unittest import TestCase

from tests import needs
from tests.audits import AuditList
from tests.chain import NODE_SERVER, reactor
from tests.flows import kubectls
from tests.nodeserver.clusters import LEAF, ROOT, Cluster
from tests.runtimes.support import pause
from tests.tiers import PROGRAMS
from twisted_exec.api.kinds import NODE_PODS
from twisted_exec.api.status import NotFound
from twisted_exec.nodeserver.syncer.service import Syncer

TUTORIAL = Path(__file__).parents[3] / "docs" / "tutorial"
POD = NODE_PODS.resource
CONTAINER = {"name": "main", "image": "none", "command": ["sh", "-c", "echo up; sleep 1000"]}


def tutorial(name: str) -> Any:
    """Load a program of the tutorial."""
    spec = importlib.util.spec_from_file_location(name, TUTORIAL / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class SyncedTests(TestCase):
    """A root and a leaf, a node of the leaf, and a node server that syncs Pods."""

    starts = PROGRAMS
    skip = needs.kubectl()

    async def setUp(self) -> None:
        self.root, self.leaf = Cluster(ROOT), Cluster(LEAF)
        for cluster in (self.leaf, self.root):
            self.addCleanup(cluster.stop)
            await cluster.start()
        await self.start_laptop()
        leaf = {"name": "berlin", "kubeconfig": {"file": self.leaf.kubeconfig(NODE_SERVER)}}
        server = await self.root.serve([leaf], AuditList())
        hop = server.collaborators
        syncer = Syncer(self.root.client(NODE_SERVER), hop.leaves, hop.root_pods, reactor)
        syncer.startService()
        self.addCleanup(syncer.stopService)

    async def start_laptop(self) -> None:
        """Start the tutorial's node, with its files in one directory."""
        directory = self.mktemp()
        os.makedirs(directory)
        os.symlink(self.leaf.kubeconfig("admin"), f"{directory}/admin")
        for name in ("runtime-kubelet.crt", "runtime-kubelet.key", "client-ca.crt"):
            os.symlink(
                os.path.join(os.path.dirname(self.leaf.client_ca), name), f"{directory}/{name}"
            )
        laptop = tutorial("leaf_node").Laptop(reactor, directory, 0)
        self.addCleanup(laptop.stop)
        await laptop.start()

    async def until_it_runs(self) -> None:
        while True:
            pod = await self.root.admin.get(POD, "web", "default")
            if pod.get("status", {}).get("phase") == "Running":
                return
            await pause()

    async def test_life(self) -> None:
        """A Pod is created, runs, serves ``exec`` and ``logs``, and is deleted on both sides."""
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "web"},
            "spec": {
                "nodeName": "berlin",
                "terminationGracePeriodSeconds": 1,
                "containers": [CONTAINER],
            },
        }
        await self.root.admin.create(POD, pod, "default")
        await self.until_it_runs()
        env = {
            "KUBECONFIG": self.root.kubeconfig("admin"),
            "HOME": os.path.abspath(self.mktemp()),
        }
        kubectl = kubectls.found()["kubectl"]
        code, out, told = await kubectls.run(
            kubectl, "exec", "web", "--", "sh", "-c", "echo in; exit 3", env=env
        )
        self.assertEqual((code, out), (3, "in\n"), told)
        out = ""
        while not out:  # a container runs before its command has printed anything
            code, out, told = await kubectls.run(kubectl, "logs", "web", env=env)
            self.assertEqual(code, 0, told)
        self.assertEqual(out, "up\n")
        code, _, told = await kubectls.run(kubectl, "delete", "pod", "web", env=env)
        self.assertEqual(code, 0, told)
        for cluster in (self.root, self.leaf):
            await self.assertFailure(cluster.admin.get(POD, "web", "default"), NotFound)
