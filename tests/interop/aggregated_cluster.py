"""
Our API server behind a real kube-apiserver, deployed by the manifests or the Helm chart of the documentation.

``kubectl apply -k`` makes what is in ``docs/deploy/kubernetes/example``, or ``helm install`` makes the same from
``docs/deploy/helm/example.yaml``, and kube-apiserver judges it.  There is no kubelet: what one would do with the Deployment is done here.  Its Secrets are read
back and laid into files, its arguments are those that the Deployment has, and the program's
kubeconfig holds a token of its ServiceAccount; so it may do what the manifests allow, and nothing
else.
"""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from tests import needs
from tests.interop.chains import ours
from tests.interop.hosts import HostCluster, kubectl
from tests.interop.ironcore import Make, ironcore
from tests.interop.programs import free_port
from twisted_exec.tls.pki.authority import Authority
from twisted_exec.tls.pki.directory import Pair

KUBERNETES = Path(__file__).parents[2] / "docs" / "deploy" / "kubernetes"
HELM = KUBERNETES.parent / "helm"
CHART = HELM / "twisted-exec"
NAMESPACE = "twisted-exec"
NAME = "exec-apiserver"
FRONT = "front-proxy-client"


class AggregatedCluster(HostCluster):
    """
    etcd, kube-apiserver, and ``exec-apiserver --aggregated`` behind it.

    :param options: of ours, besides those of the manifests.
    :ivar own_port: the port of our server, for direct requests.
    :cvar own_program: what it is called in ``programs``.
    """

    ours = True
    own_program = "apiserver"

    def __init__(self, name: str = "aggregated", *options: str) -> None:
        super().__init__(needs.kube_apiserver_program() or "", name)
        self.make: Make = ironcore("")
        self.own_port, self.options = free_port(), options

    @property
    def own_url(self) -> str:
        return f"https://127.0.0.1:{self.own_port}"

    def start(self) -> None:
        """Returns when every APIService is available."""
        service = f"{NAME}.{NAMESPACE}.svc"
        serving, _ = self.pki.issue_apiserver(["localhost", "127.0.0.1", service], replace=True)
        self.pki.issue_poollet("consoles", [f"consoles.{NAMESPACE}.svc"], replace=True)
        front_ca = Authority.create("front proxy CA")
        self.front_ca = self.programs.write("front-ca.crt", front_ca.certificate_pem.decode())
        self.front = self.pki.pair("front-proxy")
        front_ca.issue_client(FRONT).write(self.front.certificate, self.front.key)
        self.start_store()
        self.start_kube(
            serving, self.front, self.front_ca, FRONT, "--requestheader-uid-headers=X-Remote-Uid"
        )
        self.deploy()
        self.start_own()
        self.wait()
        self.start_controllers(needs.kube_controller_manager_program() or "")

    def deploy(self) -> None:
        """Apply the example, but that the Service is this host."""
        root = self.programs.directory / "deploy"
        shutil.copytree(KUBERNETES, root)
        overlay = root / "example"
        shutil.copytree(self.pki.directory, overlay / "pki")
        (overlay / "etcd").mkdir()
        for name in ("ca.crt", "client.crt", "client.key"):
            # Connections to etcd are without TLS here.
            shutil.copy(self.pki.serving_ca, overlay / "etcd" / name)
        (overlay / "host").mkdir()
        client = self.pki.pair("poollet-consoles-client")
        shutil.copy(client.certificate, overlay / "host" / "consoles-client.crt")
        shutil.copy(client.key, overlay / "host" / "consoles-client.key")
        path = overlay / "kustomization.yaml"
        told = yaml.safe_load(path.read_text())
        told["patches"] = [
            _patch("Service", NAME, "/spec", {"type": "ExternalName", "externalName": "localhost"}),
            _patch("APIService", ".*", "/spec/service/port", self.own_port),
        ]
        path.write_text(yaml.safe_dump(told))
        kubectl(self.kubeconfig, "apply", "--validate=strict", "-k", str(overlay))

    def deploy_pools(self) -> None:
        """Deploy the other pools, ``far`` and ``hypervisor``."""
        for name in ("broker", "hypervisor"):
            path = self.programs.directory / "deploy" / name
            kubectl(self.kubeconfig, "apply", "--validate=strict", "-k", str(path))

    def start_own(self, name: str = "", port: int = 0) -> None:
        """
        Start our API server, as the Deployment says.

        :param name: of another replica, which has a port of its own.
        """
        pod = self.get("deployment", NAME, NAMESPACE)["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        mounted = self._mount(pod, container)
        words = [self._meant(word, mounted, port or self.own_port) for word in container["args"]]
        program = name or self.own_program
        self.programs.run(
            program,
            *ours(words[0]),
            *words[1:],
            f"--kubeconfig={self.account(pod['serviceAccountName'])}",
            f"--audit-log={program}.audit",
            *self.options,
        )

    def _mount(self, pod: dict[str, Any], container: dict[str, Any]) -> dict[str, str]:
        """The Secrets of a pod as files; :return: the directory of each path in the container."""
        secrets = {one["name"]: one["secret"] for one in pod["volumes"] if "secret" in one}
        found = {}
        for mount in container["volumeMounts"]:
            if mount["name"] in secrets:
                name = secrets[mount["name"]]["secretName"]
                directory = self.programs.directory / f"secret-{name}"
                directory.mkdir(exist_ok=True)
                for key, value in self.get("secret", name, NAMESPACE)["data"].items():
                    (directory / key).write_bytes(base64.b64decode(value))
                found[mount["mountPath"]] = str(directory)
        return found

    def _meant(self, word: str, mounted: dict[str, str], port: int) -> str:
        if word.startswith("--listen="):
            return f"--listen=tcp:{port}:interface=127.0.0.1"
        if word.startswith("--storage="):
            return f"--storage=etcd:{self.store}"
        option = word.partition("=")[0]
        if option in ("--drain-seconds", "--shutdown-delay-seconds"):
            return f"{option}=0"
        for path, directory in mounted.items():
            word = word.replace(f"={path}/", f"={directory}/")
        return word

    def account(self, name: str) -> str:
        """The path of a kubeconfig with a token of a ServiceAccount."""
        token = kubectl(
            self.kubeconfig, "create", "token", name, f"--namespace={NAMESPACE}", "--duration=4h"
        )
        cluster = {"server": self.url, "certificate-authority": self.pki.serving_ca}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "host", "cluster": cluster}],
            "users": [{"name": name, "user": {"token": token.strip()}}],
            "contexts": [{"name": "host", "context": {"cluster": "host", "user": name}}],
            "current-context": "host",
        }
        return self.programs.write(f"account-{name}.kubeconfig", json.dumps(document))

    def wait(self) -> None:
        """Until kube-apiserver passes requests on to ours."""
        for service in self.services():
            self.programs.until(
                f"{service} is available",
                lambda service=service: self._available(service),
            )

    def point(self, port: int) -> None:
        """Have kube-apiserver pass requests on to another of ours, as a Service would."""
        told = json.dumps({"spec": {"service": {"port": port}}})
        for service in self.services():
            kubectl(self.kubeconfig, "patch", "apiservice", service, "--type=merge", "-p", told)

    def services(self) -> list[str]:
        """The names of our APIServices."""
        listed = json.loads(kubectl(self.kubeconfig, "get", "apiservices", "-o", "json"))
        return [
            each["metadata"]["name"]
            for each in listed["items"]
            if (each["spec"].get("service") or {}).get("name") == NAME
        ]

    def _available(self, service: str) -> bool:
        path = 'jsonpath={.status.conditions[?(@.type=="Available")].status}'
        return kubectl(self.kubeconfig, "get", "apiservice", service, "-o", path) == "True"

    def get(self, kind: str, name: str, namespace: str = "") -> dict[str, Any]:
        """An object as kube-apiserver has it."""
        told = [f"--namespace={namespace}"] if namespace else []
        found: dict[str, Any] = json.loads(
            kubectl(self.kubeconfig, "get", kind, name, *told, "-o", "json")
        )
        return found

    def may(self, user: str, *rules: dict[str, list[str]], groups: tuple[str, ...] = ()) -> Pair:
        """A user who may do this everywhere, and nothing besides; :return: their certificate."""
        rbac = "rbac.authorization.k8s.io"
        self.apply(
            {
                "apiVersion": f"{rbac}/v1",
                "kind": "ClusterRole",
                "metadata": {"name": user},
                "rules": list(rules),
            },
            {
                "apiVersion": f"{rbac}/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": user},
                "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": user},
                "subjects": [{"apiGroup": rbac, "kind": "User", "name": user}],
            },
        )
        return self.client(user, list(groups))


_RENDERED = """
import sys, yaml
objects = [each for each in yaml.safe_load_all(sys.stdin) if each]
for each in objects:
    if each["kind"] == "APIService":
        each["spec"]["service"]["port"] = {port}
    if (each["kind"], each["metadata"]["name"]) == ("Service", {name!r}):
        each["spec"] = {{"type": "ExternalName", "externalName": "localhost"}}
yaml.safe_dump_all(objects, sys.stdout)
"""


class ChartCluster(AggregatedCluster):
    """The same, deployed by the Helm chart."""

    def helm(self, command: str, *arguments: str) -> str:
        """
        Install or upgrade the release with the values of the example, and return what Helm prints.

        :raises AssertionError: Helm fails.
        """
        renderer = _RENDERED.format(port=self.own_port, name=NAME)
        done = subprocess.run(
            [
                *(needs.helm_program(), command, "consoles", str(CHART)),
                *(f"--kubeconfig={self.kubeconfig}", f"--namespace={NAMESPACE}"),
                *(f"--values={HELM / 'example.yaml'}", "--post-renderer", sys.executable),
                *("--post-renderer-args", self.programs.write("rendered.py", renderer)),
                f"--set-file=apiserver.caBundle={self.pki.serving_ca}",
                *arguments,
            ],
            capture_output=True,
            text=True,
            timeout=120,
        )
        if done.returncode:
            raise AssertionError(f"helm {command}: {done.stderr}")
        return done.stdout

    def deploy(self) -> None:
        """Create the namespace and the Secrets, and install the chart, but that the Service is this host."""
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        metadata = {"name": NAMESPACE, "labels": labels}
        self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        ca, pair = self.pki.serving_ca, self.pki.pair
        server, poollet = pair("apiserver"), pair("poollet-consoles")
        forwarding = pair("apiserver-forwarding")
        client = pair("poollet-consoles-client")
        for name, files in {
            "exec-apiserver-serving": {"tls.crt": server.certificate, "tls.key": server.key},
            "exec-apiserver-forwarding": {
                "tls.crt": forwarding.certificate,
                "tls.key": forwarding.key,
            },
            "exec-apiserver-poollets": {"ca.crt": ca},
            # Connections to etcd are without TLS here.
            "exec-apiserver-etcd": {"ca.crt": ca, "tls.crt": ca, "tls.key": ca},
            "consoles-serving": {"tls.crt": poollet.certificate, "tls.key": poollet.key},
            "consoles-client": {"tls.crt": client.certificate, "tls.key": client.key},
            "consoles-forwarding": {"ca.crt": self.pki.forwarding_ca},
        }.items():
            given = [f"--from-file={key}={path}" for key, path in files.items()]
            kubectl(
                *(self.kubeconfig, "create", "secret", "generic", name, *given),
                f"--namespace={NAMESPACE}",
            )
        self.helm("install", "--dry-run=server")
        if kubectl(self.kubeconfig, "get", "deployments", "-A", "-o", "name"):
            raise AssertionError("the dry run installed something")
        self.helm("install")

    def deploy_pools(self) -> None:
        broker = "pools.far.broker"
        self.helm(
            "upgrade",
            f"--set={broker}.namespace=machines,{broker}.sourceClusterName=near",
            "--set=hypervisor.enabled=true",
        )


class TakenOverCluster(ChartCluster):
    """The same, deployed by the manifests before a release takes it over."""

    deploy = AggregatedCluster.deploy


def _patch(kind: str, name: str, path: str, value: Any) -> dict[str, Any]:
    patch = json.dumps([{"op": "replace", "path": path, "value": value}])
    return {"target": {"kind": kind, "name": name}, "patch": patch}
