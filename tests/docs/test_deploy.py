"""
Tests for ``docs/deploy/kubernetes``; the rest of ``docs/deploy`` is ``test_deploy_units``'s.

kube-apiserver itself judges the manifests in ``tests/interop/aggregated.py``.
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
from twisted_exec.api import kinds
from twisted_exec.api.dialects import DIALECTS, IRONCORE, ONMETAL
from twisted_exec.apiserver.aggregated import needs as aggregated
from twisted_exec.auth.bootstrap import bootstrap_objects
from twisted_exec.auth.rules import Rule
from twisted_exec.kube import kubeconfig
from twisted_exec.nodeserver import needs as node_needs
from twisted_exec.runtimes import config
from twisted_exec.tls.pki import create_pki

from . import deploy, deploy_roles
from .deploy import KUBERNETES

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
    "spaces/deployment.yaml",
)
LAST_WORD_SECONDS = 5


def manifests() -> Iterator[tuple[str, Object]]:
    """Each object of every file that is not kustomize's."""
    for path in sorted(KUBERNETES.glob("*/*.yaml")):
        if path.name not in ("kustomization.yaml", "runtime.yaml"):
            for each in deploy.documents(path):
                yield str(path.relative_to(KUBERNETES)), each


def containers() -> Iterator[tuple[Object, Object]]:
    """Each container, after its pod."""
    for name in PODS:
        for pod in deploy.pods(KUBERNETES / name):
            for container in pod["containers"]:
                yield pod, container


def server_of(built: list[Object]) -> list[str]:
    """The command line of the API server in what was built."""
    return next(
        list(each["spec"]["template"]["spec"]["containers"][0]["args"])
        for each in built
        if (each["kind"], each["metadata"]["name"]) == ("Deployment", "exec-apiserver")
    )


class ManifestTests(SynchronousTestCase):
    """What the objects say."""

    def test_kinds(self) -> None:
        """They are of kinds that Kubernetes has."""
        for path, each in manifests():
            self.assertIn((each["apiVersion"], each["kind"]), KNOWN, path)
            self.assertTrue(each["metadata"]["name"], path)

    def test_written(self) -> None:
        """What follows from the code is as the code is now."""
        for path, text in deploy_roles.written().items():
            told = "run: python -m tests.docs.deploy_roles"
            self.assertEqual((KUBERNETES / path).read_text(encoding="utf-8"), text, told)

    def test_groups(self) -> None:
        """Every API group that we serve for ourselves has its APIService, of our one Service."""
        service = deploy.documents(KUBERNETES / "apiserver/service.yaml")[0]
        where = service["metadata"] | {"port": service["spec"]["ports"][0]["port"]}
        everyones = deploy.documents(KUBERNETES / "apiserver/apiservice.yaml")
        for dialect in DIALECTS:
            found = deploy.documents(KUBERNETES / f"{dialect.name}/apiservices.yaml") + everyones
            told = {(each["spec"]["group"], each["spec"]["version"]) for each in found}
            served = {kind.resource for kind in kinds.aggregated((dialect,))}
            ours = {(each.group, each.version) for each in served}
            self.assertEqual(told, ours)
            for each in found:
                spec = each["spec"]
                self.assertEqual(each["metadata"]["name"], f"{spec['version']}.{spec['group']}")
                for key in ("name", "namespace", "port"):
                    self.assertEqual(spec["service"][key], where[key])

    def test_roles(self) -> None:
        """Together they allow what poollets may at a server that is alone, and people, too."""
        for dialect in DIALECTS:
            rules = [
                Rule.from_object(rule)
                for each in deploy_roles.roles_of(dialect) + deploy_roles.roles_of_sessions()
                for rule in each.get("rules", [])
            ]
            groups = {group for group, _ in deploy_roles.groups_of(dialect)}
            for role in bootstrap_objects((dialect,)):
                poollets = role["metadata"]["name"].startswith(dialect.pool_identity_group)
                for told in role.get("rules", []):
                    rule = Rule.from_object(told)
                    if set(rule.api_groups) & groups or poollets:
                        held = any(one.covers(rule) for one in rules)
                        self.assertTrue(held or rule.resources == ("leases",), told)

    def test_bounds(self) -> None:
        """No poollet reads all Secrets or writes all Leases of a host."""
        for dialect in DIALECTS:
            found = deploy_roles.roles_of(dialect)
            bound = {
                each["roleRef"]["name"] for each in found if each["kind"] == "ClusterRoleBinding"
            }
            for each in found:
                if each["kind"] == "ClusterRole" and each["metadata"]["name"] in bound:
                    touched = {one for rule in each["rules"] for one in rule.get("resources", [])}
                    self.assertFalse(touched & {"secrets", "leases"})

    def test_bindings(self) -> None:
        """Every role that is bound is there, or is Kubernetes' own."""
        found = list(manifests())
        roles = {each["metadata"]["name"] for _, each in found if each["kind"].endswith("Role")}
        for path, each in found:
            if each["kind"].endswith("Binding"):
                name = each["roleRef"]["name"]
                own = name in (aggregated.DELEGATOR, aggregated.READER, node_needs.DELEGATOR)
                self.assertTrue(name in roles or own, f"{path}: {name}")


class PodTests(SynchronousTestCase):
    """What the pods run, and how."""

    def test_command_lines(self) -> None:
        """The programs take the very options."""
        seen = set()
        for _, container in containers():
            words = deploy.command_of(container)
            deploy.options_of(words)
            seen.add(words[0])
        programs = ("apiserver", "poollet", "runtime", "broker", "nodeserver", "spacemanager")
        self.assertEqual(seen, {f"exec-{name}" for name in programs})

    def test_restricted(self) -> None:
        """As the Pod Security Standard ``restricted`` wants it, and nothing can be written."""
        for pod, container in containers():
            whole, own = pod["securityContext"], container["securityContext"]
            self.assertTrue(whole["runAsNonRoot"] and whole["runAsUser"])
            self.assertEqual(whole["seccompProfile"], {"type": "RuntimeDefault"})
            self.assertIs(own["allowPrivilegeEscalation"], False)
            self.assertIs(own["readOnlyRootFilesystem"], True)
            self.assertEqual(own["capabilities"], {"drop": ["ALL"]})

    def test_mounts(self) -> None:
        """Every file that a program reads lies in something that is mounted."""
        for pod, container in containers():
            volumes = {each["name"] for each in pod["volumes"]}
            mounts = {each["mountPath"]: each["name"] for each in container["volumeMounts"]}
            self.assertLessEqual(set(mounts.values()), volumes)
            for word in container["args"]:
                for path in re.findall(r"=(/(?:etc|var|run|tmp)/[^?&]+)", word):
                    self.assertTrue(any(path.startswith(f"{one}/") for one in mounts), path)
        for pod in {id(pod): pod for pod, _ in containers()}.values():
            used = {each["name"] for one in pod["containers"] for each in one["volumeMounts"]}
            self.assertEqual(used, {each["name"] for each in pod["volumes"]})

    def test_stopping(self) -> None:
        """A pod has time for what its programs drain."""
        for pod, container in containers():
            words = deploy.command_of(container)
            options = deploy.options_of(words)
            before = options.get("shutdown-delay-seconds", 0)
            needed = before + options.get("drain-seconds", 0) + LAST_WORD_SECONDS
            self.assertGreaterEqual(pod["terminationGracePeriodSeconds"], needed, words[0])

    def test_probes(self) -> None:
        """They ask where the program listens, whether it is well."""
        for _, container in containers():
            ports = {each["name"]: each["containerPort"] for each in container.get("ports", [])}
            probes = [each for name, each in container.items() if name.endswith("Probe")]
            self.assertEqual(bool(ports), bool(probes), container["name"])
            for probe in probes:
                asked = probe["httpGet"]
                health = asked["port"] == "health"
                option = "--health-listen" if health else "--listen"
                self.assertIn(f"{option}=tcp:{ports[asked['port']]}", container["args"])
                self.assertEqual(asked.get("scheme"), None if health else "HTTPS")
                self.assertIn(asked["path"], ("/livez", "/readyz"))

    def test_neighbours(self) -> None:
        """What runs machines listens where the poollet beside it looks for it."""
        for name in PODS[1:-2]:
            for pod in deploy.pods(KUBERNETES / name):
                words = [word for one in pod["containers"] for word in one["args"]]
                told = [word.partition("=")[2] for word in words if "unix:///" in word]
                self.assertEqual((len(told), len(set(told))), (2, 1))

    def test_selectors(self) -> None:
        """Services, budgets and workloads mean the pods that are made."""
        for name in ("apiserver", "consoles", "broker", "nodeserver", "spaces"):
            paths = sorted((KUBERNETES / name).glob("*.yaml"))
            found = [each for path in paths for each in deploy.documents(path)]
            (labels,) = (
                each["spec"]["template"]["metadata"]["labels"]
                for each in found
                if each.get("kind") == "Deployment"
            )
            for each in found:
                selector = each.get("spec", {}).get("selector")
                if selector:
                    selector = selector.get("matchLabels", selector)
                    self.assertLessEqual(selector.items(), labels.items())

    def test_known_by(self) -> None:
        """The poollet's kubeconfigs can be read, and name what is mounted."""
        for name in ("consoles", "broker"):
            path = KUBERNETES / name / "poollet.kubeconfig"
            shown = yaml.safe_load(path.read_text())
            (pod,) = deploy.pods(KUBERNETES / name / "pool.yaml")
            mounts = [each["mountPath"] for each in pod["containers"][0]["volumeMounts"]]
            for entry in (shown["clusters"][0]["cluster"], shown["users"][0]["user"]):
                for key, value in entry.items():
                    if key != "server":
                        self.assertIn(str(Path(value).parent), mounts)
            self.assertEqual(shown["current-context"], shown["contexts"][0]["name"])

    def test_classes(self) -> None:
        """The runtimes take their classes."""
        for name in ("consoles", "hypervisor"):
            self.assertTrue(config.load(str(KUBERNETES / name / "runtime.yaml")))


class KustomizeTests(SynchronousTestCase):
    """kubectl builds what is there."""

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
        done = subprocess.run(
            ["kubectl", "kustomize", str(self.directory / name)],
            capture_output=True,
            text=True,
            timeout=60,
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return list(yaml.safe_load_all(done.stdout))

    def test_pools(self) -> None:
        """Each pool by itself."""
        for name in ("consoles", "broker", "hypervisor"):
            self.assertIn("ConfigMap", {each["kind"] for each in self.build(name)})

    def test_node_server(self) -> None:
        """In the root, and what it may in a leaf."""
        built = self.build("nodeserver")
        self.assertIn("Deployment", {each["kind"] for each in built})
        self.assertIn("ClusterRole", {each["kind"] for each in self.build("leaf")})

    def test_spaces(self) -> None:
        """The manager, what it keeps, and who may; with KubeFlex beside it, what that needs."""
        told = self.directory / "spaces" / "kustomization.yaml"
        built = self.build("spaces")
        found = {each["metadata"]["name"] for each in built}
        definitions = [each for each in built if each["kind"] == "CustomResourceDefinition"]
        self.assertEqual(len(definitions), 3)
        told.write_text(told.read_text() + "components: [../spaces-kubeflex]\n")
        added = {each["metadata"]["name"] for each in self.build("spaces")} - found
        self.assertEqual(added, {"exec-spacemanager:kubeflex"})

    def test_space_leaves(self) -> None:
        """A component has the node server take Spaces, whose Secrets it reads for one provider alone."""
        told = self.directory / "nodeserver" / "kustomization.yaml"
        told.write_text(told.read_text() + "components: [../space-leaves]\n")
        built = self.build("nodeserver")
        (deployment,) = (each for each in built if each["kind"] == "Deployment")
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        self.assertEqual(deploy.options_of(deploy.command_of(container))["spaces"], "default")
        name = "exec-nodeserver:spaces"
        bound = {
            each["kind"]: each["metadata"].get("namespace", "")
            for each in built
            if each["metadata"]["name"] == name
        }
        self.assertEqual(bound, {"ClusterRole": "", "RoleBinding": "spaceprovider-default"})

    def test_node_server_more(self) -> None:
        """Components add what mirroring Pods or showing machines needs, and nothing else has it."""
        for name, component, role in (
            ("nodeserver", "sync-pods", "sync-pods"),
            ("nodeserver", "machine-pods", "machine-pods"),
            ("leaf", "sync-pods-leaf", "sync-pods"),
        ):
            told = self.directory / name / "kustomization.yaml"
            text, before = told.read_text(), self.build(name)
            told.write_text(text + f"components: [../{component}]\n")
            built = self.build(name)
            told.write_text(text)
            had = {each["metadata"]["name"] for each in before}
            added = {each["metadata"]["name"] for each in built} - had
            self.assertEqual(added, {f"exec-nodeserver:{role}"})
            for each in built:
                if each["kind"] == "Deployment":
                    (container,) = each["spec"]["template"]["spec"]["containers"]
                    options = deploy.options_of(deploy.command_of(container))
                    self.assertEqual(bool(options["sync-pods"]), component == "sync-pods")

    def test_example(self) -> None:
        """What is deployed names the image, the dialect and the CA that users have given."""
        built = self.build("example")
        self.assertEqual(deploy.options_of(server_of(built))["dialect"], (IRONCORE,))
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
        """Every Secret and ConfigMap that is mounted is made."""
        made = {(each["kind"], each["metadata"]["name"]) for each in built}
        made.add(("ConfigMap", "kube-root-ca.crt"))
        for each in built:
            if each["kind"] == "Deployment":
                for volume in each["spec"]["template"]["spec"]["volumes"]:
                    if "secret" in volume:
                        self.assertIn(("Secret", volume["secret"]["secretName"]), made)
                    if "configMap" in volume:
                        self.assertIn(("ConfigMap", volume["configMap"]["name"]), made)

    def test_dialects(self) -> None:
        """Several, as components of one deployment."""
        told = self.directory / "example" / "kustomization.yaml"
        text = told.read_text()
        told.write_text(text.replace("- ../ironcore\n", "- ../ironcore\n- ../onmetal\n"))
        words = server_of(self.build("example"))
        self.assertEqual(deploy.options_of(words)["dialect"], (IRONCORE, ONMETAL))

    def test_known(self) -> None:
        """A poollet's kubeconfig is one, where its files are."""
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
        self.assertTrue(kubeconfig.load(str(mounted / "kubeconfig")))
