"""
Our poollet under ironcore's API server, as ``docs/howto/ironcore-apiserver.rst`` sets it up.

The poollet has the identity of its pool and the roles that ironcore's manifests grant it; the API
server's user for poollets may only use ``machinepools/proxy``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests import needs
from tests.interop import chains
from tests.interop.hosts import kubectl
from tests.interop.ironcore import PROXY, ForeignCluster, ironcore
from tests.interop.matrix import try_machine
from tests.interop.programs import Programs
from twisted_exec.api.dialects import IRONCORE

PAGES = Path(__file__).parents[2] / "docs/howto"
POOL = "rack-a"


def shipped(name: str) -> str:
    """Return the path of a file of ironcore's manifests, in its Go module."""
    directory = Path(__file__).parent / "ironcore"
    command = ["go", "list", "-m", "-f", "{{.Dir}}", "github.com/ironcore-dev/ironcore"]
    found = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=True)
    return os.path.join(found.stdout.strip(), "config/apiserver/rbac", name)


class IroncorePoolletTests(SynchronousTestCase):
    """A machine and its console, with the permissions of the page and no others."""

    timeout = 600
    skip = needs.ironcore() or (None if shutil.which("go") else "go is not on PATH")

    def test_page(self) -> None:
        """The machine runs, its console has size and exit code, and the pool has its Lease."""
        make = ironcore(needs.interop_programs("ironcore"))
        runtime = Programs("runtime-ironcore-")
        cluster = ForeignCluster(make, needs.kube_apiserver_program() or "", proxy_groups=[])
        self.addCleanup(runtime.stop)
        self.addCleanup(cluster.stop)
        cluster.start()
        chains.prepare(cluster)
        for path in (
            shipped("machinepool_role.yaml"),
            shipped("machinepool_rolebinding.yaml"),
            str(PAGES / "ironcore-apiserver.yaml"),
        ):
            kubectl(cluster.kubeconfig, "apply", "-f", path)
        self.assertIn(f"name: {PROXY}", (PAGES / "ironcore-apiserver.yaml").read_text())
        user = IRONCORE.pool_identity(POOL)
        kubeconfig = cluster.user(user, [IRONCORE.pool_identity_group])
        backend = chains.our_runtime(runtime, make.revision)
        name = chains.our_poollet(cluster, POOL, backend, kubeconfig)
        try_machine(cluster, POOL, backend, tools=False)
        lease = ("get", "lease", POOL, "--namespace", chains.LEASES, "-o", "name")
        cluster.programs.until(
            "the Lease", lambda: kubectl(cluster.kubeconfig, *lease, check=False)
        )
        self.assertNotIn("forbidden", cluster.programs.log(name))
