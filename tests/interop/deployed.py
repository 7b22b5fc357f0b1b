"""
Rights from the manifests and from the Helm chart, behind a real kube-apiserver: its own controller aggregates our roles
into ``view``, ``edit`` and ``admin``, and users with these roles try them.

And events in a deployment: another replica, a deleted namespace, and objects that kube-apiserver
would refuse.  And answers of ours that kube-apiserver forwards or merges with its own.
"""

from __future__ import annotations

import gzip
import json
import ssl
import subprocess
import sys
import urllib.request
from email.message import Message
from typing import Any

import yaml
from twisted.trial.unittest import SynchronousTestCase

from tests import needs
from tests.interop import chains
from tests.interop.aggregated_cluster import (
    NAME,
    NAMESPACE,
    AggregatedCluster,
    ChartCluster,
    TakenOverCluster,
)
from tests.interop.hosts import kubectl
from tests.interop.programs import free_port

GROUP = "/apis/compute.ironcore.dev/v1alpha1"
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
    cluster_type: type[AggregatedCluster] = AggregatedCluster

    def setUp(self) -> None:
        self.cluster = cluster = self.cluster_type("deployed")
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
        main = "from twisted_exec.cli.console.main import main; raise SystemExit(main())"
        return subprocess.run(
            [sys.executable, "-c", main, f"--kubeconfig={kubeconfig}", MACHINE],
            input=typed,
            capture_output=True,
            text=True,
            timeout=60,
        )

    def ask(self, path: str, headers: dict[str, str]) -> tuple[Message, bytes]:
        """Return headers and body of kube-apiserver's answer to an administrator."""
        context = ssl.create_default_context(cafile=self.cluster.pki.serving_ca)
        admin = self.cluster.client("admin", [])
        context.load_cert_chain(admin.certificate, admin.key)
        request = urllib.request.Request(self.cluster.url + path, headers=headers)
        with urllib.request.urlopen(request, context=context, timeout=60) as response:
            return response.headers, response.read()

    def ask_json(self, path: str) -> Any:
        """Return the document in kube-apiserver's answer."""
        return json.loads(self.ask(path, {"Accept": "application/json"})[1])

    def test_roles(self) -> None:
        """``edit`` opens consoles and reads logs; roles for consoles only open, readers only read; others nothing."""
        self.run_machine("default")
        edit, view, reader = (self.user(role) for role in ("edit", "view", "console-log-reader"))
        nobody, typist = self.cluster.user("nobody", []), self.user("console-user")
        operator = self.user("console-operator")
        can = ("auth", "can-i", "create", "machines", "--subresource=exec", "-n", "default")
        self.cluster.programs.until(
            "the roles are made of ours", lambda: kubectl(edit, *can, check=False).strip() == "yes"
        )
        for kubeconfig in (edit, typist, operator):
            done = self.console(kubeconfig, "echo $((6*7))z; exit 3\n")
            self.assertEqual((done.returncode, "42z" in done.stdout), (3, True), done.stderr)
        log = f"/apis/compute.ironcore.dev/v1alpha1/namespaces/default/machines/{MACHINE}/log"
        self.assertIn("42z", kubectl(edit, "get", "--raw", log))
        self.assertIn("42z", kubectl(reader, "get", "--raw", log))
        for kubeconfig in (view, operator):
            self.assertIn(MACHINE, kubectl(kubeconfig, "get", "machines"))
        for kubeconfig in (view, nobody):
            refused = self.console(kubeconfig, "echo $((6*7))z\n")
            self.assertNotIn("42z", refused.stdout)
            self.assertIn("forbidden", refused.stderr.lower())
            self.assertEqual(kubectl(kubeconfig, "get", "--raw", log, check=False), "")
        for kubeconfig in (typist, operator):
            self.assertEqual(kubectl(kubeconfig, "get", "--raw", log, check=False), "")
        self.assertIn("forbidden", self.console(reader, "echo $((6*7))z\n").stderr.lower())
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
        self.cluster.deploy_pools()
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

    def test_forwarded(self) -> None:
        """Compressed lists, YAML, and discovery paths with a trailing slash pass unchanged."""
        noted = {"annotations": {"note": "x" * 4000}}
        room = {"cpu": "1", "memory": "1Gi"}
        one = {"apiVersion": GROUP.removeprefix("/apis/"), "kind": "MachineClass"}
        self.cluster.apply(
            *(
                {**one, "metadata": {"name": f"class-{number}", **noted}, "capabilities": room}
                for number in range(40)
            )
        )
        path = f"{GROUP}/machineclasses"
        expected = self.ask_json(path)["items"]
        self.assertEqual(len(expected), 41)
        headers, body = self.ask(path, {"Accept-Encoding": "gzip"})
        self.assertEqual(headers["Content-Encoding"], "gzip")
        self.assertEqual(json.loads(gzip.decompress(body))["items"], expected)
        headers, body = self.ask(path, {"Accept": "application/yaml"})
        self.assertEqual(headers["Content-Type"], "application/yaml")
        self.assertEqual(yaml.safe_load(body)["items"], expected)
        for path in (GROUP, GROUP.rpartition("/")[0]):
            self.assertEqual(self.ask_json(f"{path}/"), self.ask_json(path))

    def test_openapi(self) -> None:
        """kube-apiserver merges our OpenAPI version 2 into its own, and lists our version 3."""
        machines = f"{GROUP}/namespaces/{{namespace}}/machines"
        self.cluster.programs.until(
            "version 2 has machines", lambda: machines in self.ask_json("/openapi/v2")["paths"]
        )
        kind = {"group": "compute.ironcore.dev", "version": "v1alpha1", "kind": "Machine"}
        found = [
            schema["properties"]
            for schema in self.ask_json("/openapi/v2")["definitions"].values()
            if schema.get("x-kubernetes-group-version-kind") == [kind]
        ]
        self.assertEqual(
            [sorted({"spec", "status"} & set(each)) for each in found], [["spec", "status"]]
        )
        third = self.ask_json("/openapi/v3")["paths"][GROUP.removeprefix("/")]
        self.assertIn(machines, self.ask_json(third["serverRelativeURL"])["paths"])

    def test_oldest_kubectl(self) -> None:
        """kubectl 1.20 explains and validates machines with the host's OpenAPI version 2."""
        kubectl_1_20 = needs.oldest_kubectl_program() or ""

        def run(*arguments: str, told: str = "") -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                [kubectl_1_20, f"--kubeconfig={self.cluster.kubeconfig}", *arguments],
                input=told,
                capture_output=True,
                text=True,
                timeout=120,
            )

        self.cluster.programs.until(
            "it explains machines",
            lambda: "desired state of the machine" in run("explain", "machine.spec").stdout,
        )
        mistaken = machine("default")
        mistaken["spec"]["pwoer"] = "On"
        refused = run("apply", "-f", "-", told=json.dumps(mistaken))
        self.assertIn('unknown field "pwoer"', refused.stderr)
        applied = run("apply", "-f", "-", told=json.dumps(machine("default")))
        self.assertIn("machine.compute.ironcore.dev/vm created", applied.stdout)

    test_oldest_kubectl.skip = needs.oldest_kubectl()  # type: ignore[attr-defined]


class ChartTests(DeployedTests):
    """The same, deployed by the Helm chart."""

    skip = needs.aggregated() or needs.helm()
    cluster_type = ChartCluster
    cluster: ChartCluster

    def generations(self) -> dict[str, int]:
        """Return the generation of each object of ours that has one, and 0 of the others."""
        kinds = "deployments,services,apiservices,poddisruptionbudgets,secrets,configmaps"
        listed = json.loads(self.kubectl("get", kinds, "--namespace", NAMESPACE, "-o", "json"))
        return {
            f"{each['kind']}/{each['metadata']['name']}": each["metadata"].get("generation", 0)
            for each in listed["items"]
            if each["metadata"].get("annotations", {}).get("meta.helm.sh/release-name")
            or each["kind"] == "Secret"
        }

    def test_upgrade(self) -> None:
        """
        An upgrade changes the Deployments of what is new, in place, and nothing else; a console stays open.
        """
        self.run_machine("default")
        main = "from twisted_exec.cli.console.main import main; raise SystemExit(main())"
        console = subprocess.Popen(
            [sys.executable, "-c", main, f"--kubeconfig={self.cluster.kubeconfig}", MACHINE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.addCleanup(console.wait)
        self.addCleanup(console.kill)
        assert console.stdin is not None and console.stdout is not None
        self.addCleanup(console.stdout.close)
        console.stdin.write("echo $((6*7))z\n")
        console.stdin.flush()
        while "42z" not in console.stdout.readline():
            self.assertIsNone(console.poll())
        secrets = self.kubectl("get", "secrets", "-n", NAMESPACE, "-l", "!owner", "-o", "yaml")
        before = self.generations()
        self.cluster.helm("upgrade")
        again = self.generations()
        self.assertEqual({name: again[name] for name in before}, before)
        self.cluster.helm("upgrade", "--set=image=registry.example.com/lab/twisted-exec:v2")
        after = self.generations()
        changed = {name for name in before if after[name] != before[name]}
        self.assertEqual(changed, {"Deployment/exec-apiserver", "Deployment/consoles"})
        self.assertEqual(
            self.kubectl("get", "secrets", "-n", NAMESPACE, "-l", "!owner", "-o", "yaml"), secrets
        )
        printed, _ = console.communicate("echo $((7*7))z; exit 3\n", timeout=60)
        self.assertEqual((console.returncode, "49z" in printed), (3, True), printed)

    def replicas(self) -> dict[str, tuple[str, bool]]:
        """Return the image of each pod of the API server, and whether it is ready."""
        label = f"app.kubernetes.io/name={NAME}"
        listed = json.loads(self.kubectl("get", "pods", "-n", NAMESPACE, "-l", label, "-o", "json"))
        return {
            each["metadata"]["name"]: (
                each["spec"]["containers"][0]["image"],
                any(
                    (condition["type"], condition["status"]) == ("Ready", "True")
                    for condition in each["status"].get("conditions", [])
                ),
            )
            for each in listed["items"]
        }

    def make_ready(self, name: str) -> None:
        """Report a pod as ready, as its kubelet would."""
        pod = self.cluster.get("pod", name, NAMESPACE)
        pod["status"] = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/{name}/status"
        kubectl(self.cluster.kubeconfig, "replace", "--raw", path, "-f", "-", input=json.dumps(pod))

    def test_rolling(self) -> None:
        """An upgrade keeps as many replicas ready as there were, also if the new ones are never ready."""
        self.cluster.programs.run(
            "deployments",
            needs.kube_controller_manager_program() or "",
            f"--kubeconfig={self.cluster.kubeconfig}",
            "--controllers=deployment-controller,replicaset-controller",
            "--leader-elect=false",
            "--secure-port=0",
        )
        least = 0

        def rolled(image: str) -> bool:
            found = self.replicas()
            self.assertGreaterEqual(sum(ready for _, ready in found.values()), least, found)
            for name, (_, ready) in found.items():
                if not ready:
                    self.make_ready(name)
                    break
            return list(found.values()) == [(image, True)] * 2

        image = "registry.example.com/lab/twisted-exec:v{}".format
        until = self.cluster.programs.until
        until("two replicas are ready", lambda: rolled(image(1)))
        least = 2
        self.cluster.helm("upgrade", f"--set=image={image(2)}")
        until("both are new", lambda: rolled(image(2)))
        self.cluster.helm("upgrade", f"--set=image={image(3)}")
        until("a newer one is created", lambda: len(self.replicas()) == 3)
        self.assertEqual(
            sorted(self.replicas().values()),
            [(image(2), True), (image(2), True), (image(3), False)],
        )
        self.cluster.helm("upgrade", f"--set=image={image(2)}")
        until("it is gone", lambda: list(self.replicas().values()) == [(image(2), True)] * 2)

    def test_everything(self) -> None:
        """kube-apiserver accepts every object that the chart can make."""
        self.kubectl("create", "namespace", "spaceprovider-default")
        self.cluster.helm(
            "upgrade",
            "--set=hypervisor.enabled=true,nodeserver.enabled=true,spacemanager.enabled=true",
            "--set=nodeserver.syncPods=true,nodeserver.machinePods=true,nodeserver.spaceLeaves=true",
            "--set=spacemanager.kubeflex=true,apiserver.dialects={ironcore,onmetal,spheric}",
        )
        for name in ("exec-nodeserver", "exec-spacemanager"):
            self.assertTrue(self.cluster.get("deployment", name, name))
        self.assertEqual(self.kubectl("get", "spaces", "-A", "-o", "name"), "")


class TakenOverTests(SynchronousTestCase):
    """A deployment by the manifests that becomes a release."""

    timeout = 600
    skip = needs.aggregated() or needs.helm()

    def test_taken_over(self) -> None:
        """The release keeps every object, and the pods of the API server."""
        cluster = TakenOverCluster("taken-over")
        self.addCleanup(cluster.stop)
        cluster.start()
        services = {name: cluster.get("apiservice", name) for name in cluster.services()}
        server = cluster.get("deployment", NAME, NAMESPACE)
        with self.assertRaisesRegex(AssertionError, "cannot be imported into the current release"):
            cluster.helm("install")
        cluster.helm("install", "--take-ownership")
        kept = cluster.get("deployment", NAME, NAMESPACE)
        self.assertEqual(kept["metadata"]["uid"], server["metadata"]["uid"])
        self.assertEqual(kept["spec"], server["spec"])
        for name, each in services.items():
            now = cluster.get("apiservice", name)
            self.assertEqual(now["metadata"]["uid"], each["metadata"]["uid"])
            self.assertEqual(now["spec"], each["spec"])
