"""
Rights from the manifests, behind a real kube-apiserver: its own controller aggregates our roles
into ``view``, ``edit`` and ``admin``, and users with these roles try them.

And events in a deployment: another replica, a deleted namespace, and objects that kube-apiserver
would refuse.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests import needs
from tests.interop import chains
from tests.interop.aggregated_cluster import NAMESPACE, AggregatedCluster
from tests.interop.hosts import kubectl
from tests.interop.programs import free_port

POOL, MACHINE = "local", "vm"
PODS = (
    ("deployment", "exec-apiserver", NAMESPACE),
    ("deployment", "consoles", NAMESPACE),
    ("deployment", "far", NAMESPACE),
    ("daemonset", "hypervisor", "twisted-exec-nodes"),
)


def machine(namespace: str) -> dict[str, Any]:
    spec = {"machineClassRef": {"name": chains.CLASS}, "machinePoolRef": {"name": POOL}}
    return {
        "apiVersion": "compute.ironcore.dev/v1alpha1",
        "kind": "Machine",
        "metadata": {"name": MACHINE, "namespace": namespace},
        "spec": spec,
    }


class DeployedTests(SynchronousTestCase):
    """One cluster for each, with a shell."""

    timeout = 600
    skip = needs.aggregated()

    def setUp(self) -> None:
        self.cluster = cluster = AggregatedCluster("deployed")
        self.addCleanup(cluster.stop)
        cluster.start()
        chains.prepare(cluster)
        runtime = chains.our_runtime(cluster.programs, cluster.make.revision)
        chains.our_poollet(cluster, POOL, runtime)

    def kubectl(self, *arguments: str, check: bool = True) -> str:
        return kubectl(self.cluster.kubeconfig, *arguments, check=check)

    def run_machine(self, namespace: str) -> None:
        """Make it, and wait until it runs."""
        self.cluster.apply(machine(namespace))
        state = ("get", "machine", MACHINE, "-n", namespace, "-o", "jsonpath={.status.state}")
        self.cluster.programs.until(
            "the machine runs", lambda: self.kubectl(*state, check=False) == "Running"
        )

    def user(self, role: str) -> str:
        """Return the kubeconfig of a user with a built-in role in the default namespace."""
        name = f"{role}or"
        self.kubectl(
            *("create", "rolebinding", name, f"--clusterrole={role}", f"--user={name}"),
            "--namespace=default",
        )
        return self.cluster.user(name, [])

    def console(self, kubeconfig: str, typed: str) -> subprocess.CompletedProcess[str]:
        main = "from twisted_exec.cli.console.program import main; raise SystemExit(main())"
        return subprocess.run(
            [sys.executable, "-c", main, f"--kubeconfig={kubeconfig}", MACHINE],
            input=typed,
            capture_output=True,
            text=True,
            timeout=60,
        )

    def test_roles(self) -> None:
        """``edit`` opens consoles and reads logs, ``view`` only reads machines, others nothing."""
        self.run_machine("default")
        edit, view = self.user("edit"), self.user("view")
        nobody = self.cluster.user("nobody", [])
        can = ("auth", "can-i", "create", "machines", "--subresource=exec", "-n", "default")
        self.cluster.programs.until(
            "the roles are made of ours", lambda: kubectl(edit, *can, check=False).strip() == "yes"
        )
        done = self.console(edit, "echo $((6*7))z; exit 3\n")
        self.assertEqual((done.returncode, "42z" in done.stdout), (3, True), done.stderr)
        log = f"/apis/compute.ironcore.dev/v1alpha1/namespaces/default/machines/{MACHINE}/log"
        self.assertIn("42z", kubectl(edit, "get", "--raw", log))
        self.assertIn(MACHINE, kubectl(view, "get", "machines"))
        for kubeconfig in (view, nobody):
            refused = self.console(kubeconfig, "echo $((6*7))z\n")
            self.assertNotIn("42z", refused.stdout)
            self.assertIn("forbidden", refused.stderr.lower())
            self.assertEqual(kubectl(kubeconfig, "get", "--raw", log, check=False), "")
        self.assertEqual(kubectl(nobody, "get", "machines", check=False), "")

    def test_namespace(self) -> None:
        """A deleted namespace takes its machines along; an unknown namespace is refused."""
        self.kubectl("create", "namespace", "lab")
        self.run_machine("lab")
        self.kubectl("delete", "namespace", "lab", "--timeout=120s")
        self.assertEqual(self.kubectl("get", "machines", "-A", "-o", "name"), "")
        with self.assertRaises(AssertionError) as caught:
            self.cluster.apply(machine("lab"))
        self.assertIn('namespaces "lab" not found', str(caught.exception))

    def test_replica(self) -> None:
        """A second replica serves the same objects and consoles while the first is down."""
        self.run_machine("default")
        programs, first = self.cluster.programs, self.cluster.own_program
        port = free_port()
        self.cluster.start_own("second", port)
        programs.until("the second is ready", lambda: "listens at" in programs.log("second"))
        programs.end(first)
        self.cluster.point(port)
        programs.until("it serves", lambda: MACHINE in self.kubectl("get", "machines", check=False))
        done = self.console(self.cluster.kubeconfig, "echo $((6*7))z; exit 3\n")
        self.assertEqual((done.returncode, "42z" in done.stdout), (3, True), done.stderr)

    def test_admitted(self) -> None:
        """kube-apiserver lets in the pods that the manifests make, in the namespaces they have."""
        for name in ("broker", "hypervisor"):
            path = self.cluster.programs.directory / "deploy" / name
            self.kubectl("apply", "--validate=strict", "-k", str(path))
        for kind, name, namespace in PODS:
            template = self.cluster.get(kind, name, namespace)["spec"]["template"]
            metadata = {"name": f"try-{name}", "namespace": namespace}
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}
            self.cluster.apply({**pod, "spec": template["spec"]})

    def test_rights(self) -> None:
        """kube-apiserver refuses no request of the API server for missing rights."""
        self.run_machine("default")
        log = self.cluster.programs.log(self.cluster.own_program)
        self.assertNotIn("forbidden", log)
