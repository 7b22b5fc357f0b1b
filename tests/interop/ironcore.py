"""
A cluster of ironcore's own making: etcd, kube-apiserver, and ironcore-apiserver behind it.

As ironcore's ``utils/envtest`` starts them, with certificates of ours: one authority for servers,
one for clients, one for kube-apiserver as a front proxy.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
from dataclasses import dataclass
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.interop.programs import Programs, answers, free_port
from twisted_exec.tls.files import read_file
from twisted_exec.tls.pki import CLIENT, PKI, Pair, create_pki, write_kubeconfig

PROXY = "foreign-apiserver"
"""The name that the foreign API server shows to poollets."""


@dataclass(frozen=True)
class Make:
    """
    What differs between ironcore's programs and onmetal's.

    :param directory: where the programs are.
    :param revision: of the machine runtime interface that they speak.
    """

    dialect: str
    directory: str
    domain: str
    apiserver: str
    revision: str
    tool: str
    flags: tuple[str, ...] = ()

    @property
    def groups(self) -> list[str]:
        return [
            f"{name}.{self.domain}" for name in ("compute", "core", "storage", "networking", "ipam")
        ]

    @property
    def group(self) -> str:
        return f"compute.{self.domain}"

    def program(self, name: str) -> str:
        """Where one of its programs is."""
        return os.path.join(self.directory, name)


def ironcore(directory: str) -> Make:
    return Make(
        "ironcore",
        directory,
        "ironcore.dev",
        "ironcore-apiserver",
        "ironcore",
        "irictl-machine",
        ("--enable-priority-and-fairness=false",),
    )


def onmetal(directory: str) -> Make:
    return Make(
        "onmetal", directory, "api.onmetal.de", "onmetal-apiserver", "onmetal-0.1", "orictl-machine"
    )


def kubectl(kubeconfig: str, *arguments: str, check: bool = True, input: str = "") -> str:
    """What it prints; empty when it fails and ``check`` is false."""
    done = subprocess.run(
        ["kubectl", f"--kubeconfig={kubeconfig}", *arguments],
        input=input,
        capture_output=True,
        text=True,
        timeout=120,
    )
    if done.returncode and check:
        raise AssertionError(f"kubectl {' '.join(arguments)}: {done.stderr}")
    return done.stdout if done.returncode == 0 else ""


class ForeignCluster:
    """
    etcd, kube-apiserver and an aggregated API server of ironcore or onmetal.

    :ivar kubeconfig: of an administrator, at kube-apiserver.
    :cvar own_program: what the aggregated API server is called in ``programs``.
    """

    ours = False
    own_program = "aggregated"

    def __init__(self, make: Make, kube_apiserver: str, name: str = "cluster") -> None:
        self.make = make
        self.name = name
        self.programs = Programs(f"{name}-", keep=bool(os.environ.get("KEEP_LOGS")))
        self.pki: PKI = create_pki(self.programs.path("pki"))
        self.port, self._own, self._store, self._peers = (free_port() for _ in range(4))
        self._kube_apiserver = kube_apiserver
        self.kubeconfig = self.user("admin", ["system:masters"])

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    @property
    def own_port(self) -> int:
        """Of the aggregated API server, which can be asked directly, too."""
        return self._own

    def client(self, user: str, groups: list[str]) -> Pair:
        """A client certificate."""
        pair = self.pki.pair(f"user-{user.replace(':', '_')}")
        if not pair.exists:
            self.pki.authority(CLIENT).issue_client(user, groups).write(pair.certificate, pair.key)
        return pair

    def user(self, user: str, groups: list[str]) -> str:
        """A user's kubeconfig; :return: its path."""
        pair = self.client(user, groups)
        path = self.programs.path(f"{user.replace(':', '_')}.kubeconfig")
        write_kubeconfig(
            path,
            server=self.url,
            ca_pem=read_file(self.pki.serving_ca),
            certificate_pem=read_file(pair.certificate),
            key_pem=read_file(pair.key),
            user=user,
            replace=True,
        )
        return path

    def start(self) -> None:
        """Returns when all its API groups are served."""
        serving, front = self.pki.issue_apiserver(
            ["localhost", "127.0.0.1", "aggregated.kube-system.svc"], replace=True
        )
        self._start_store()
        self._start_kube(serving, front)
        self._aggregate()
        self._start_own(serving)
        for group in self.make.groups:
            self.programs.until(
                f"{group} is served",
                lambda group=group: kubectl(
                    self.kubeconfig, "get", "--raw", f"/apis/{group}/v1alpha1", check=False
                ),
            )

    def stop(self) -> None:
        self.programs.stop()

    def _start_store(self) -> None:
        store, peers = (f"http://127.0.0.1:{port}" for port in (self._store, self._peers))
        self.programs.run(
            "etcd",
            "etcd",
            "--data-dir=etcd",
            f"--listen-client-urls={store}",
            f"--advertise-client-urls={store}",
            f"--listen-peer-urls={peers}",
            "--unsafe-no-fsync",
        )
        self.programs.until("etcd", lambda: answers(f"{store}/health"))

    def _start_kube(self, serving: Pair, front: Pair) -> None:
        self._make_account_key()
        self.programs.run(
            "kube-apiserver",
            self._kube_apiserver,
            f"--etcd-servers=http://127.0.0.1:{self._store}",
            f"--secure-port={self.port}",
            "--bind-address=127.0.0.1",
            f"--tls-cert-file={serving.certificate}",
            f"--tls-private-key-file={serving.key}",
            f"--client-ca-file={self.pki.client_ca}",
            "--authorization-mode=RBAC",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--service-account-issuer=https://nobody.example",
            "--service-account-key-file=accounts.key",
            "--service-account-signing-key-file=accounts.key",
            "--disable-admission-plugins=ServiceAccount",
            f"--requestheader-client-ca-file={self.pki.forwarding_ca}",
            "--requestheader-allowed-names=exec-apiserver",
            "--requestheader-username-headers=X-Remote-User",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            f"--proxy-client-cert-file={front.certificate}",
            f"--proxy-client-key-file={front.key}",
            "--enable-aggregator-routing=false",
        )
        admin = self.client("admin", ["system:masters"])
        self.programs.until(
            "kube-apiserver",
            lambda: answers(
                f"{self.url}/readyz", self.pki.serving_ca, (admin.certificate, admin.key)
            ),
        )

    def _make_account_key(self) -> None:
        key = rsa.generate_private_key(65537, 2048)
        pem = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
        self.programs.write("accounts.key", pem.decode())

    def _aggregate(self) -> None:
        service = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "aggregated", "namespace": "kube-system"},
            "spec": {"type": "ExternalName", "externalName": "localhost"},
        }
        self.apply(service, *(self._api_service(group) for group in self.make.groups))

    def _api_service(self, group: str) -> dict[str, Any]:
        return {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": f"v1alpha1.{group}"},
            "spec": {
                "group": group,
                "version": "v1alpha1",
                "service": {"namespace": "kube-system", "name": "aggregated", "port": self._own},
                "caBundle": base64.b64encode(read_file(self.pki.serving_ca)).decode(),
                "groupPriorityMinimum": 2000,
                "versionPriority": 100,
            },
        }

    def _start_own(self, serving: Pair) -> None:
        proxy = self.client(PROXY, ["system:masters"])
        self.programs.run(
            self.own_program,
            self.make.program(self.make.apiserver),
            f"--etcd-servers=http://127.0.0.1:{self._store}",
            f"--kubeconfig={self.kubeconfig}",
            f"--authentication-kubeconfig={self.kubeconfig}",
            f"--authorization-kubeconfig={self.kubeconfig}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self._own}",
            f"--tls-cert-file={serving.certificate}",
            f"--tls-private-key-file={serving.key}",
            *self.make.flags,
            f"--machinepoollet-client-certificate={proxy.certificate}",
            f"--machinepoollet-client-key={proxy.key}",
            f"--machinepoollet-certificate-authority={self.pki.serving_ca}",
            "--machinepoollet-preferred-address-types=InternalIP",
        )

    def apply(self, *objects: dict[str, Any]) -> None:
        """Make objects, whatever validation this kubectl would do."""
        document = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        kubectl(self.kubeconfig, "apply", "--validate=false", "-f", "-", input=json.dumps(document))
