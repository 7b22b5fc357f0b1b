"""
The Helm chart in ``docs/deploy/helm`` beside the kustomizations in ``docs/deploy/kubernetes``, without a cluster.

``deployed`` installs the chart in a real kube-apiserver.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import yaml
from twisted.trial.unittest import SynchronousTestCase

from tests import needs
from tests.interop.aggregated_cluster import CHART, HELM, KUBERNETES, NAMESPACE
from twisted_exec.tls.pki.directory import create_pki

Object = dict[str, Any]

KUSTOMIZATIONS = {
    "apiserver": (("ironcore",), {"apiserver": {"enabled": True}}),
    "consoles": ((), {"pools": yaml.safe_load((HELM / "example.yaml").read_text())["pools"]}),
    "broker": (
        (),
        {"pools": {"far": {"broker": {"namespace": "machines", "sourceClusterName": "near"}}}},
    ),
    "hypervisor": ((), {"hypervisor": {"enabled": True}}),
    "nodeserver": (
        ("sync-pods", "machine-pods", "space-leaves"),
        {
            "nodeserver": {
                "enabled": True,
                "syncPods": True,
                "machinePods": True,
                "spaceLeaves": True,
            }
        },
    ),
    "sshd": ((), {"sshd": {"enabled": True}}),
    "spaces": (("spaces-kubeflex",), {"spacemanager": {"enabled": True, "kubeflex": True}}),
}
"""Each directory with its components, and the values that make the same."""
ALL_DIALECTS = ("ironcore", "onmetal", "spheric")
REFUSED = (
    ("apiserver.replicas=0", "apiserver.replicas"),
    ("apiserver.replicas=two", "apiserver.replicas"),
    ("apiserver.replica=3", "apiserver"),
    ("apiservers.replicas=3", ""),
    ("apiserver.dialects={}", "apiserver.dialects.0"),
    ("apiserver.dialects={ironcor}", "apiserver.dialects.0"),
    ("apiserver.dialects={spheric,spheric-machines}", "apiserver.dialects"),
    ("apiserver.etcd.endpoints={http://etcd:2379}", "apiserver.etcd.endpoints.0"),
    ("apiserver.etcd.endpoints={https://etcd:2379?ca=x}", "apiserver.etcd.endpoints.0"),
    ("apiserver.etcd.prefix=consoles", "apiserver.etcd.prefix"),
    ("apiserver.caBundle=ca.crt", "apiserver.caBundle"),
    ("apiserver.caBundle=-----BEGIN PRIVATE KEY-----", "apiserver.caBundle"),
    ("apiserver.caInjectedFrom=certificate", "apiserver.caInjectedFrom"),
    ("apiserver.secrets.serving=Exec_Serving", "apiserver.secrets.serving"),
    ("apiserver.shutdownDelaySeconds=-1", "apiserver.shutdownDelaySeconds"),
    ("apiserver.extraArgs={--listen=tcp:80}", "apiserver.extraArgs.0"),
    ("apiserver.extraArgs={max-sessions=5}", "apiserver.extraArgs.0"),
    ("apiserver.resources.requests.memory=lots", "apiserver.resources.requests.memory"),
    ("image=", "image"),
    ("image=twisted exec", "image"),
    ("imagePullPolicy=Sometimes", "imagePullPolicy"),
    ("pools.Rack_1.runtime.classes[0].name=a", "pools"),
    ("pools.exec-apiserver.runtime.classes[0].name=a", "pools.exec-apiserver"),
    ("pools.rack.extraArgs={}", "pools.rack"),
    ("pools.rack.runtime.classes={}", "pools.rack.runtime.classes.0"),
    ("pools.rack.runtime.classes[0].name=a", "pools.rack.runtime.classes.0"),
    ("pools.rack.broker.namespace=machines", "pools.rack.broker"),
    ("hypervisor.supplementalGroups={kvm}", "hypervisor.supplementalGroups.0"),
    ("nodeserver.serviceType=ExternalName", "nodeserver.serviceType"),
    ("nodeserver.address=a b", "nodeserver.address"),
    ("nodeserver.syncPods=perhaps", "nodeserver.syncPods"),
    ("spacemanager.providers={kind}", "spacemanager.providers.0"),
)
"""Values as for ``--set``, and the path that Helm names when it refuses them."""


TEMPLATE = (
    *("template", "consoles", str(CHART)),
    *(f"--namespace={NAMESPACE}", "--kube-version=1.27.0"),
)
"""Renders the chart for the oldest Kubernetes that it accepts."""


def helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Helm."""
    return subprocess.run(
        [needs.helm_program(), *arguments], capture_output=True, text=True, timeout=60
    )


class ChartTests(SynchronousTestCase):
    """The chart."""

    skip = needs.helm()
    maxDiff = None

    def render(self, values: Object, *arguments: str) -> dict[tuple[str, str, str], Object]:
        """Return the objects of the chart."""
        path = Path(self.mktemp())
        path.write_text(yaml.safe_dump(values))
        done = helm(*TEMPLATE, f"--values={path}", *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return self.by_name(yaml.safe_load_all(done.stdout))

    def build(self, name: str, components: tuple[str, ...]) -> dict[tuple[str, str, str], Object]:
        """Return the objects of a kustomization with components, without the hash in the names of ConfigMaps."""
        directory = Path(self.mktemp())
        shutil.copytree(KUBERNETES, directory)
        kustomization = directory / name / "kustomization.yaml"
        added = yaml.safe_dump({"components": [f"../{each}" for each in components]})
        kustomization.write_text(kustomization.read_text() + added)
        done = subprocess.run(
            ["kubectl", "kustomize", str(directory / name)],
            capture_output=True,
            text=True,
            timeout=60,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        text = re.sub(r"(name: (?:consoles|far|hypervisor))-[a-z0-9]{10}\n", r"\1\n", done.stdout)
        return self.by_name(yaml.safe_load_all(text))

    def by_name(self, objects: Any) -> dict[tuple[str, str, str], Object]:
        """Return objects by kind, namespace and name, without what only one of the two has."""
        found: dict[tuple[str, str, str], Object] = {}
        for each in filter(None, objects):
            metadata = each["metadata"]
            self._drop(metadata, "helm.sh/resource-policy")
            if each["kind"] in ("Deployment", "DaemonSet"):
                # As the hash in the name of a ConfigMap: the runtime starts again when its classes change.
                self._drop(each["spec"]["template"]["metadata"], "checksum/config")
            if each["kind"] == "ConfigMap":
                each["data"] = {key: yaml.safe_load(text) for key, text in each["data"].items()}
            key = (each["kind"], metadata.get("namespace", ""), metadata["name"])
            self.assertNotIn(key, found)
            found[key] = each
        return found

    def _drop(self, metadata: Object, annotation: str) -> None:
        annotations = metadata.get("annotations", {})
        annotations.pop(annotation, None)
        if not annotations:
            metadata.pop("annotations", None)

    def assert_same(self, ours: dict[tuple[str, str, str], Object], theirs: Any) -> None:
        """Check that the chart makes the objects of a kustomization, besides the release's namespace."""
        # "helm install" needs it before, for your Secrets.
        theirs.pop(("Namespace", "", NAMESPACE), None)
        self.assertEqual(sorted(ours), sorted(theirs))
        for key, each in theirs.items():
            self.assertEqual(ours[key], each)

    def test_lint(self) -> None:
        """``helm lint --strict`` finds nothing, with the values of the chart and of the example."""
        for arguments in ((), (f"--values={HELM / 'example.yaml'}",)):
            done = helm("lint", "--strict", str(CHART), *arguments)
            self.assertEqual(done.returncode, 0, done.stdout)
            self.assertIn("0 chart(s) failed", done.stdout)

    def test_same(self) -> None:
        """Each part of the chart makes the objects of its kustomization: kinds, rights, arguments, probes."""
        for name, (components, values) in KUSTOMIZATIONS.items():
            values = {"apiserver": {"enabled": False}, **values}
            self.assert_same(self.render(values), self.build(name, components))

    def test_dialects(self) -> None:
        """Each dialect has its APIServices and roles, alone and with others."""
        for dialects in (*((each,) for each in ("spheric-machines", *ALL_DIALECTS)), ALL_DIALECTS):
            values = {"apiserver": {"dialects": list(dialects)}}
            self.assert_same(self.render(values), self.build("apiserver", dialects))

    def test_example(self) -> None:
        """The example's values make the objects of the example, with your image and CA."""
        pki = create_pki(self.mktemp())
        values = yaml.safe_load((HELM / "example.yaml").read_text())
        objects = self.render(values, f"--set-file=apiserver.caBundle={pki.serving_ca}")
        images = {
            container["image"]
            for each in objects.values()
            if each["kind"] == "Deployment"
            for container in each["spec"]["template"]["spec"]["containers"]
        }
        self.assertEqual(images, {"registry.example.com/lab/twisted-exec:v1"})
        bundles = {
            each["spec"].get("caBundle")
            for each in objects.values()
            if each["kind"] == "APIService"
        }
        self.assertEqual(len(bundles), 1)
        self.assertNotIn(None, bundles)

    def test_namespace(self) -> None:
        """No object is in the kustomizations' namespaces if the release and the values name others."""
        values: Object = {name: dict(value) for name, value in _EVERYTHING.items()}
        for name in ("hypervisor", "nodeserver", "sshd", "spacemanager"):
            values[name]["namespace"] = f"lab-{name}"
        objects = self.render(values, "--namespace=lab")
        taken = {
            "twisted-exec-nodes",
            "exec-nodeserver",
            "exec-sshd",
            "exec-spacemanager",
            NAMESPACE,
        }
        used = {namespace for _, namespace, _ in objects}
        self.assertEqual(used & taken, set())
        text = yaml.safe_dump_all(objects.values())
        self.assertEqual(re.findall(r"namespace: (?:twisted-exec|exec-\w+)", text), [])
        self.assertIn("InternalDNS=far.lab.svc", text)

    def test_one_replica(self) -> None:
        """A single replica has no budget, which would keep its node from being drained."""
        objects = self.render({"apiserver": {"replicas": 1}})
        self.assertNotIn("PodDisruptionBudget", {kind for kind, _, _ in objects})

    def test_refused(self) -> None:
        """Values that make no sense are refused, and Helm names their path."""
        for value, path in REFUSED:
            done = helm(*TEMPLATE, f"--set={value}")
            self.assertNotEqual(done.returncode, 0, value)
            pointer = "".join(f"/{name}" for name in path.split(".") if name)
            self.assertIn(f"- at '{pointer}'", done.stderr, value)

    def test_accepted(self) -> None:
        """Usual values are accepted."""
        for value in (
            "image=registry.example.com:5000/lab/twisted-exec:v1",
            f"image=registry.example.com/twisted-exec@sha256:{'0' * 64}",
            "apiserver.etcd.endpoints={https://a:2379,https://[fd00::1]:2379}",
            "apiserver.etcd.prefix=/lab/consoles",
            "apiserver.caInjectedFrom=twisted-exec/exec-apiserver",
            "apiserver.extraArgs={--max-sessions=5,--no-scheduler}",
            "apiserver.resources.limits.cpu=1.5",
            "apiserver.tolerations[0].operator=Exists",
            "imagePullSecrets={registry}",
            "nodeserver.address=10.0.0.1",
        ):
            done = helm(*TEMPLATE, f"--set={value}")
            self.assertEqual(done.returncode, 0, f"{value}: {done.stderr}")


_EVERYTHING: Object = {
    key: value for _, values in KUSTOMIZATIONS.values() for key, value in values.items()
}
