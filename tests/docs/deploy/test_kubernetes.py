"""
Tests for ``docs/deploy/kubernetes``; ``test_units`` covers the rest of ``docs/deploy``.

``tests/interop/aggregated.py`` applies the manifests to a real kube-apiserver.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from twisted.trial.unittest import SynchronousTestCase

from tests import needs
from tests.docs import deploy_roles
from tests.tiers import PROGRAMS
from twisted_exec.api import kinds
from twisted_exec.api.dialects import DIALECTS, IRONCORE, ONMETAL
from twisted_exec.auth.default_roles import bootstrap_objects
from twisted_exec.auth.rules import Rule
from twisted_exec.journal import store as journals
from twisted_exec.kube.kubeconfig import loader
from twisted_exec.runtimes import config
from twisted_exec.runtimes.recordings import service as recordings
from twisted_exec.tls.pki.directory import create_pki

from . import files
from .files import KUBERNETES

Object = dict[str, Any]

_RBAC = "rbac.authorization.k8s.io/v1"
KNOWN = {
    ("v1", "Namespace"),
    ("v1", "Service"),
    ("v1", "ServiceAccount"),
    ("apps/v1", "Deployment"),
    ("apps/v1", "DaemonSet"),
    ("policy/v1", "PodDisruptionBudget"),
    ("apiregistration.k8s.io/v1", "APIService"),
    *((_RBAC, kind) for kind in ("Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")),
}
PODS = (
    "apiserver/deployment.yaml",
    "consoles/pool.yaml",
    "broker/pool.yaml",
    "hypervisor/pool.yaml",
    "nodeserver/deployment.yaml",
    "sshd/deployment.yaml",
    "spaces/deployment.yaml",
)
LAST_WORD_SECONDS = 5
DISK_SECONDS = recordings.STOP_SECONDS + journals.STOP_SECONDS
"""A runtime waits so long for its disk after its sessions have ended."""


def manifests() -> Iterator[tuple[str, Object]]:
    """Yield each object with its file, without kustomize's own files."""
    for path in sorted(KUBERNETES.glob("*/*.yaml")):
        if path.name not in ("kustomization.yaml", "runtime.yaml"):
            for each in files.documents(path):
                yield str(path.relative_to(KUBERNETES)), each


def containers() -> Iterator[tuple[Object, Object]]:
    """Yield each container with its pod."""
    for name in PODS:
        for pod in files.pods(KUBERNETES / name):
            for container in pod["containers"]:
                yield pod, container


def server_of(built: list[Object]) -> list[str]:
    """Return the command line of the API server in a build."""
    return next(
        list(each["spec"]["template"]["spec"]["containers"][0]["args"])
        for each in built
        if (each["kind"], each["metadata"]["name"]) == ("Deployment", "exec-apiserver")
    )


class ManifestTests(SynchronousTestCase):
    """The manifests."""

    def test_kinds(self) -> None:
        """All objects are of kinds that Kubernetes has."""
        for path, each in manifests():
            self.assertIn((each["apiVersion"], each["kind"]), KNOWN, path)
            self.assertTrue(each["metadata"]["name"], path)

    def test_written(self) -> None:
        """Generated files are up to date."""
        for path, text in deploy_roles.written().items():
            hint = "run: python -m tests.docs.deploy_roles"
            self.assertEqual((KUBERNETES / path).read_text(encoding="utf-8"), text, hint)

    def test_groups(self) -> None:
        """Every API group of ours has an APIService that refers to our Service."""
        service = files.documents(KUBERNETES / "apiserver/service.yaml")[0]
        where = service["metadata"] | {"port": service["spec"]["ports"][0]["port"]}
        shared = files.documents(KUBERNETES / "apiserver/apiservice.yaml")
        for dialect in DIALECTS:
            services = files.documents(KUBERNETES / f"{dialect.name}/apiservices.yaml") + shared
            registered = {(each["spec"]["group"], each["spec"]["version"]) for each in services}
            served = {kind.resource for kind in kinds.aggregated((dialect,))}
            ours = {(each.group, each.version) for each in served}
            self.assertEqual(registered, ours)
            for each in services:
                spec = each["spec"]
                self.assertEqual(each["metadata"]["name"], f"{spec['version']}.{spec['group']}")
                for key in ("name", "namespace", "port"):
                    self.assertEqual(spec["service"][key], where[key])

    def test_roles(self) -> None:
        """The roles grant people and poollets everything that a standalone server grants."""
        for dialect in DIALECTS:
            rules = [
                Rule.from_object(rule)
                for each in deploy_roles.roles_of(dialect) + deploy_roles.roles_of_sessions()
                for rule in each.get("rules", [])
            ]
            groups = {group for group, _ in deploy_roles.groups_of(dialect)}
            for role in bootstrap_objects((dialect,)):
                poollets = role["metadata"]["name"].startswith(dialect.pool_identity_group)
                for rule_object in role.get("rules", []):
                    rule = Rule.from_object(rule_object)
                    if set(rule.api_groups) & groups or poollets:
                        granted = any(each.covers(rule) for each in rules)
                        self.assertTrue(granted or rule.resources == ("leases",), rule_object)

    def test_bounds(self) -> None:
        """No role lets a poollet read all Secrets or write all Leases of the host cluster."""
        for dialect in DIALECTS:
            objects = deploy_roles.roles_of(dialect)
            bound = {
                each["roleRef"]["name"] for each in objects if each["kind"] == "ClusterRoleBinding"
            }
            for each in objects:
                if each["kind"] == "ClusterRole" and each["metadata"]["name"] in bound:
                    touched = {
                        resource for rule in each["rules"] for resource in rule.get("resources", [])
                    }
                    self.assertFalse(touched & {"secrets", "leases"})

    def test_bindings(self) -> None:
        """Every bound role exists, or is Kubernetes' own."""
        objects = list(manifests())
        roles = {each["metadata"]["name"] for _, each in objects if each["kind"].endswith("Role")}
        for path, each in objects:
            if each["kind"].endswith("Binding"):
                name = each["roleRef"]["name"]
                own = name in (deploy_roles.DELEGATOR, deploy_roles.CONFIGURATION_READER)
                self.assertTrue(name in roles or own, f"{path}: {name}")


class PodTests(SynchronousTestCase):
    """The pods of the manifests."""

    def test_command_lines(self) -> None:
        """The programs accept the command lines."""
        programs_run = set()
        for _, container in containers():
            words = files.command_of(container)
            files.options_of(words)
            programs_run.add(words[0])
        programs = (
            "apiserver",
            "poollet",
            "runtime",
            "broker",
            "nodeserver",
            "sshd",
            "spacemanager",
        )
        self.assertEqual(programs_run, {f"exec-{name}" for name in programs})

    def test_restricted(self) -> None:
        """Pods meet the Pod Security Standard ``restricted``, with a read-only file system."""
        for pod, container in containers():
            whole, own = pod["securityContext"], container["securityContext"]
            self.assertTrue(whole["runAsNonRoot"] and whole["runAsUser"])
            self.assertEqual(whole["seccompProfile"], {"type": "RuntimeDefault"})
            self.assertIs(own["allowPrivilegeEscalation"], False)
            self.assertIs(own["readOnlyRootFilesystem"], True)
            self.assertEqual(own["capabilities"], {"drop": ["ALL"]})

    def test_mounts(self) -> None:
        """Every file of a command line is in a mounted volume, and every volume is used."""
        for pod, container in containers():
            volumes = {each["name"] for each in pod["volumes"]}
            mounts = {each["mountPath"]: each["name"] for each in container["volumeMounts"]}
            self.assertLessEqual(set(mounts.values()), volumes)
            for word in container["args"]:
                for path in re.findall(r"=(/(?:etc|var|run|tmp)/[^?&]+)", word):
                    self.assertTrue(any(path.startswith(f"{mount}/") for mount in mounts), path)
        for pod in {id(pod): pod for pod, _ in containers()}.values():
            used = {mount["name"] for each in pod["containers"] for mount in each["volumeMounts"]}
            self.assertEqual(used, {each["name"] for each in pod["volumes"]})

    def test_stopping(self) -> None:
        """Kubernetes waits longer than the programs drain."""
        for pod, container in containers():
            words = files.command_of(container)
            options = files.options_of(words)
            before = options.get("shutdown-delay-seconds", 0)
            needed = before + options.get("drain-seconds", 0) + LAST_WORD_SECONDS
            if words[0] == "exec-runtime":
                needed += DISK_SECONDS
            self.assertGreaterEqual(pod.get("terminationGracePeriodSeconds", 30), needed, words[0])

    def test_probes(self) -> None:
        """Probes use the port where the program listens, and its health paths."""
        for _, container in containers():
            ports = {each["name"]: each["containerPort"] for each in container.get("ports", [])}
            probes = [each for name, each in container.items() if name.endswith("Probe")]
            self.assertEqual(bool(ports), bool(probes), container["name"])
            for probe in probes:
                request = probe["httpGet"]
                health = request["port"] == "health"
                option = "--health-listen" if health else "--listen"
                self.assertIn(f"{option}=tcp:{ports[request['port']]}", container["args"])
                self.assertEqual(request.get("scheme"), None if health else "HTTPS")
                self.assertIn(request["path"], ("/livez", "/readyz"))

    def test_neighbours(self) -> None:
        """Runtime or broker and the poollet next to it use the same socket."""
        for name in PODS[1:-3]:
            for pod in files.pods(KUBERNETES / name):
                words = [word for each in pod["containers"] for word in each["args"]]
                sockets = [word.partition("=")[2] for word in words if "unix:///" in word]
                self.assertEqual((len(sockets), len(set(sockets))), (2, 1))

    def test_selectors(self) -> None:
        """Services, budgets and workloads select the pods of the deployment."""
        for name in ("apiserver", "consoles", "broker", "nodeserver", "sshd", "spaces"):
            paths = sorted((KUBERNETES / name).glob("*.yaml"))
            objects = [each for path in paths for each in files.documents(path)]
            (labels,) = (
                each["spec"]["template"]["metadata"]["labels"]
                for each in objects
                if each.get("kind") == "Deployment"
            )
            for each in objects:
                selector = each.get("spec", {}).get("selector")
                if selector:
                    selector = selector.get("matchLabels", selector)
                    self.assertLessEqual(selector.items(), labels.items())

    def test_known_by(self) -> None:
        """The poollet's kubeconfigs name files in mounted volumes."""
        for name in ("consoles", "broker"):
            path = KUBERNETES / name / "poollet.kubeconfig"
            kubeconfig_object = yaml.safe_load(path.read_text())
            (pod,) = files.pods(KUBERNETES / name / "pool.yaml")
            mounts = [each["mountPath"] for each in pod["containers"][0]["volumeMounts"]]
            for entry in (
                kubeconfig_object["clusters"][0]["cluster"],
                kubeconfig_object["users"][0]["user"],
            ):
                for key, value in entry.items():
                    if key != "server":
                        self.assertIn(str(Path(value).parent), mounts)
            self.assertEqual(
                kubeconfig_object["current-context"], kubeconfig_object["contexts"][0]["name"]
            )

    def test_classes(self) -> None:
        """The runtimes accept their class files."""
        for name in ("consoles", "hypervisor"):
            self.assertTrue(config.load(str(KUBERNETES / name / "runtime.yaml")))


class KustomizeTests(SynchronousTestCase):
    """``kubectl kustomize`` builds the directories."""

    starts = PROGRAMS
    skip = needs.kubectl()

    def setUp(self) -> None:
        self.directory = Path(self.mktemp())
        shutil.copytree(KUBERNETES, self.directory)
        overlay = self.directory / "example"
        pki = create_pki(str(overlay / "pki"))
        serving, _ = pki.issue_apiserver(["exec-apiserver.twisted-exec.svc"])
        _, client = pki.issue_poollet("consoles", ["consoles.twisted-exec.svc"])
        for path, source in (
            ("etcd/ca.crt", pki.serving_ca),
            ("etcd/client.crt", serving.certificate),
            ("etcd/client.key", serving.key),
            ("host/consoles-client.crt", client.certificate),
            ("host/consoles-client.key", client.key),
        ):
            (overlay / path).parent.mkdir(exist_ok=True)
            shutil.copy(source, overlay / path)
        self.pki = pki

    def build(self, name: str) -> list[Object]:
        process = subprocess.run(
            ["kubectl", "kustomize", str(self.directory / name)],
            capture_output=True,
            text=True,
            timeout=600,
        )
        self.assertEqual((process.returncode, process.stderr), (0, ""))
        return list(yaml.safe_load_all(process.stdout))

    def test_pools(self) -> None:
        """Each pool can be built alone."""
        for name in ("consoles", "broker", "hypervisor"):
            self.assertIn("ConfigMap", {each["kind"] for each in self.build(name)})

    def test_node_server(self) -> None:
        """The node server in the root, and its permissions in a leaf, can be built."""
        built = self.build("nodeserver")
        self.assertIn("Deployment", {each["kind"] for each in built})
        self.assertIn("ClusterRole", {each["kind"] for each in self.build("leaf")})

    def test_spaces(self) -> None:
        """The Space Manager has its definitions; the component for KubeFlex adds one role."""
        kustomization = self.directory / "spaces" / "kustomization.yaml"
        built = self.build("spaces")
        names = {each["metadata"]["name"] for each in built}
        definitions = [each for each in built if each["kind"] == "CustomResourceDefinition"]
        self.assertEqual(len(definitions), 3)
        kustomization.write_text(kustomization.read_text() + "components: [../spaces-kubeflex]\n")
        added = {each["metadata"]["name"] for each in self.build("spaces")} - names
        self.assertEqual(added, {"exec-spacemanager:kubeflex"})

    def test_space_leaves(self) -> None:
        """The component for Spaces grants the node server the Secrets of one provider only."""
        kustomization = self.directory / "nodeserver" / "kustomization.yaml"
        kustomization.write_text(kustomization.read_text() + "components: [../space-leaves]\n")
        built = self.build("nodeserver")
        (deployment,) = (each for each in built if each["kind"] == "Deployment")
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        self.assertEqual(files.options_of(files.command_of(container))["spaces"], "default")
        name = "exec-nodeserver:spaces"
        bound = {
            each["kind"]: each["metadata"].get("namespace", "")
            for each in built
            if each["metadata"]["name"] == name
        }
        self.assertEqual(bound, {"ClusterRole": "", "RoleBinding": "spaceprovider-default"})

    def test_node_server_more(self) -> None:
        """Each optional component adds only its own role and option."""
        for name, component, role in (
            ("nodeserver", "sync-pods", "sync-pods"),
            ("nodeserver", "machine-pods", "machine-pods"),
            ("leaf", "sync-pods-leaf", "sync-pods"),
        ):
            kustomization = self.directory / name / "kustomization.yaml"
            text, before = kustomization.read_text(), self.build(name)
            kustomization.write_text(text + f"components: [../{component}]\n")
            built = self.build(name)
            kustomization.write_text(text)
            names = {each["metadata"]["name"] for each in before}
            added = {each["metadata"]["name"] for each in built} - names
            self.assertEqual(added, {f"exec-nodeserver:{role}"})
            for each in built:
                if each["kind"] == "Deployment":
                    (container,) = each["spec"]["template"]["spec"]["containers"]
                    options = files.options_of(files.command_of(container))
                    self.assertEqual(bool(options["sync-pods"]), component == "sync-pods")

    def test_example(self) -> None:
        """The example deploys the image, the dialect and the CA of its overlay."""
        built = self.build("example")
        self.assertEqual(files.options_of(server_of(built))["dialect"], (IRONCORE,))
        images = {
            container["image"]
            for each in built
            if each["kind"] == "Deployment"
            for container in each["spec"]["template"]["spec"]["containers"]
        }
        self.assertEqual(len(images), 1)
        self.assertTrue(images.pop().endswith("/twisted-exec:v1"))
        services = [each for each in built if each["kind"] == "APIService"]
        (secret,) = (each for each in built if each["metadata"]["name"] == "exec-apiserver-serving")
        self.assertEqual(len(services), 5)
        for each in services:
            bundle = "".join(each["spec"]["caBundle"].split())
            self.assertEqual(bundle, "".join(secret["data"]["ca.crt"].split()))
        self.check_references(built)

    def check_references(self, built: list[Object]) -> None:
        """Check that every mounted Secret and ConfigMap exists."""
        existing = {(each["kind"], each["metadata"]["name"]) for each in built}
        existing.add(("ConfigMap", "kube-root-ca.crt"))
        for each in built:
            if each["kind"] == "Deployment":
                for volume in each["spec"]["template"]["spec"]["volumes"]:
                    if "secret" in volume:
                        self.assertIn(("Secret", volume["secret"]["secretName"]), existing)
                    if "configMap" in volume:
                        self.assertIn(("ConfigMap", volume["configMap"]["name"]), existing)

    def test_dialects(self) -> None:
        """One deployment may have several dialects."""
        kustomization = self.directory / "example" / "kustomization.yaml"
        text = kustomization.read_text()
        kustomization.write_text(text.replace("- ../ironcore\n", "- ../ironcore\n- ../onmetal\n"))
        words = server_of(self.build("example"))
        self.assertEqual(files.options_of(words)["dialect"], (IRONCORE, ONMETAL))

    def test_known(self) -> None:
        """The poollet's kubeconfig is valid once its files are mounted."""
        mounted = self.directory / "mounted"
        mounted.mkdir()
        text = (KUBERNETES / "consoles" / "poollet.kubeconfig").read_text()
        pair = self.pki.pair("poollet-consoles-client")
        for place, path in (
            ("host/ca.crt", self.pki.serving_ca),
            ("client/tls.crt", pair.certificate),
            ("client/tls.key", pair.key),
        ):
            text = text.replace(f"/etc/exec-poollet/{place}", str(Path(path).absolute()))
        (mounted / "kubeconfig").write_text(text)
        self.assertTrue(loader.load(str(mounted / "kubeconfig")))
